//! A time in which the server, or a pooler before it, gives a handle no more connections: a limit of the role, of the database, of
//! the server or of a pool is reached. Those that the handle has then do for all purposes.

use std::sync::atomic::{AtomicBool, Ordering};

use gristmill_store::NEWS;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::limits::SHORTAGE_LASTS;

/// Whether a handle is short of connections.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    until: watch::Sender<Option<Instant>>,
    is_told: AtomicBool,
}

impl Shortage {
    /// No connection was to be had, while there are `others`.
    pub fn begin(&self, database: &str, reason: &str, others: usize, now: Instant) {
        self.until.send_replace(Some(now + SHORTAGE_LASTS));
        if others > 0 && !self.is_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: NEWS,
                "{database} gives this process no more connections ({reason}): it goes on with the {others} that it has, \
                 which is slower; docs/operations.md says how many programs use"
            );
        }
    }

    /// Whether it lasts. A further connection is tried after it.
    pub fn is_on(&self, now: Instant) -> bool {
        self.until.borrow().is_some_and(|until| until > now)
    }

    /// Whether there has been one.
    pub fn has_been(&self) -> bool {
        self.until.borrow().is_some()
    }

    /// Resolves when one begins, or lasts.
    pub async fn begun(&self) {
        let mut until = self.until.subscribe();
        let is_on = |until: &Option<Instant>| until.is_some_and(|until| until > Instant::now());
        // This holds the sender.
        let _ = until.wait_for(is_on).await;
    }
}
