//! A time in which the server, or a pooler before it, gives a handle no more connections, because a limit of the role,
//! of the database, of the server or of a pool is reached. The existing connections of the handle then serve all
//! purposes.

use std::sync::atomic::{AtomicBool, Ordering};

use gristmill_store::NEWS;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::limits::SHORTAGE_LASTS;

/// Tracks whether a handle is short of connections.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    until: watch::Sender<Option<Instant>>,
    is_told: AtomicBool,
}

impl Shortage {
    /// Records that no connection was available, besides `others` existing ones.
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

    /// Reports whether the shortage lasts. After it, a further connection is tried.
    pub fn is_on(&self, now: Instant) -> bool {
        self.until.borrow().is_some_and(|until| until > now)
    }

    /// Reports whether there has been a shortage.
    pub fn has_been(&self) -> bool {
        self.until.borrow().is_some()
    }

    /// Resolves when a shortage begins, or at once during one.
    pub async fn begun(&self) {
        let mut until = self.until.subscribe();
        let is_on = |until: &Option<Instant>| until.is_some_and(|until| until > Instant::now());
        // `self` holds the sender, so this does not fail.
        let _ = until.wait_for(is_on).await;
    }
}
