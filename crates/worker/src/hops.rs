//! The batches of each hop, counted until they are reported.

use std::sync::Arc;

use gristmill_batching::{BatchStats, EndReason};

use crate::sync::{Mutex, lock};

/// The batches of each hop since the last report. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct HopRecorder(Arc<Mutex<BatchStats>>);

impl HopRecorder {
    /// Counts one batch.
    pub fn record(&self, hop: &str, items: u64, end_reason: EndReason) {
        let mut stats = lock(&self.0);
        stats.record(hop, usize::try_from(items).unwrap_or(usize::MAX), end_reason);
    }

    /// Takes the counts.
    pub fn take(&self) -> BatchStats {
        std::mem::take(&mut *lock(&self.0))
    }

    /// Restores counts that could not be reported.
    pub fn give_back(&self, stats: &BatchStats) {
        lock(&self.0).merge(stats);
    }
}
