//! The settings of an engine.

use std::sync::Arc;

use gristmill_model::limits::LEASE_LOST_AFTER_MS;
use gristmill_model::{Clock, SystemClock};

/// How long ended batches are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Batches that ended longer ago are pruned. Milliseconds.
    pub age_ms: i64,
    /// The latest so many ended batches are kept, whatever their age.
    pub keep_batches: u32,
}

/// The settings of an engine.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// How long ended batches are kept; for ever where `None`. Batches with dead jobs are kept until
    /// someone retries or discards those.
    pub retention: Option<Retention>,
    /// Whether this engine keeps the house (rescue, expiry, retention, schedules). Several may; one must.
    pub housekeeping: bool,
    /// Without a heartbeat for so long, a worker's jobs are given to others; its own workers' hearts beat as often as
    /// that needs. The same for all programs on one store. Milliseconds.
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
