//! Batches counted by hop, until they are reported.

use std::sync::{Arc, Mutex, PoisonError};

use gristmill_batching::{BatchStats, EndReason};

/// The batches of each hop since the last report. Clones are cheap and share their state.
#[derive(Debug, Clone, Default)]
pub struct HopRecorder(Arc<Mutex<BatchStats>>);

impl HopRecorder {
    /// Counts one batch.
    pub fn record(&self, hop: &str, items: u64, end_reason: EndReason) {
        let mut stats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stats.record(hop, usize::try_from(items).unwrap_or(usize::MAX), end_reason);
    }

    /// Takes the counts.
    pub fn take(&self) -> BatchStats {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Restores counts that could not be reported.
    pub fn give_back(&self, stats: &BatchStats) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).merge(stats);
    }
}
