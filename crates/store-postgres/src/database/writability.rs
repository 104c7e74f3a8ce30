//! Whether a database accepts writes of this handle.
//!
//! A handle that has written keeps trying: after a failover, its server may be a standby for a moment. A handle that
//! has never written is refused at once, and for a while without another look, so that a dashboard on a standby does
//! not connect every second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::failure::{Failure, ROLE_REMEDY, Result, STANDBY_REMEDY};
use crate::limits::READ_ONLY_AGAIN_AFTER;

/// What the connections of one handle have found about writes.
#[derive(Debug, Default)]
pub(crate) struct Writability {
    has_written: AtomicBool,
    refused: Mutex<Option<(Instant, String)>>,
}

impl Writability {
    /// Fails if the database refused writes a short time ago.
    pub fn check(&self) -> Result<()> {
        match &*self.refused.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((at, reason)) if at.elapsed() < READ_ONLY_AGAIN_AFTER => {
                Err(Failure::ReadOnly(reason.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Records that a connection could write.
    pub fn note_written(&self) {
        self.has_written.store(true, Ordering::Relaxed);
    }

    /// Explains why a new connection cannot write. `standby` asks whether the server is a standby.
    pub async fn explain(&self, failure: Failure, standby: impl Future<Output = Result<bool>>) -> Failure {
        if self.has_written.load(Ordering::Relaxed) {
            return failure;
        }
        let reason = if failure.read_only().is_some() {
            match standby.await {
                Ok(true) => format!("it is a standby; {STANDBY_REMEDY}"),
                Ok(false) => {
                    format!("default_transaction_read_only is on for it, or for the role; {STANDBY_REMEDY}")
                }
                Err(_) => return failure,
            }
        } else if failure.is_forbidden() {
            format!("the role may only read ({}); {ROLE_REMEDY}", failure.reason())
        } else {
            return failure;
        };
        let refused = Some((Instant::now(), reason.clone()));
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
        Failure::ReadOnly(reason)
    }
}
