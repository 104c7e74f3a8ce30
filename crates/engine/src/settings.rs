//! The settings of an engine.

use std::sync::Arc;

use gristmill_model::limits::LEASE_LOST_AFTER_MS;
use gristmill_model::{Clock, SystemClock};

/// The time for which ended batches are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Batches that ended longer ago are pruned. Milliseconds.
    pub age_ms: i64,
    /// This many of the latest ended batches are kept, whatever their age.
    pub keep_batches: u32,
}

/// The settings of an engine.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// The engine's clock.
    pub clock: Arc<dyn Clock>,
    /// The time for which ended batches are kept. `None` means forever. Batches with dead jobs are kept until someone
    /// retries or discards these jobs.
    pub retention: Option<Retention>,
    /// True if this engine does the housekeeping (rescue, expiry, retention, schedules). Several engines may, and one must.
    pub housekeeping: bool,
    /// After this time without a heartbeat, a worker's jobs go to others. Its own workers send heartbeats often enough
    /// for it. All programs on one store must use the same value. Milliseconds.
    pub lease_lost_after_ms: i64,
}

impl Default for EngineSettings {
    fn default() -> Self {
        EngineSettings {
            clock: Arc::new(SystemClock),
            retention: None,
            housekeeping: true,
            lease_lost_after_ms: LEASE_LOST_AFTER_MS,
        }
    }
}
