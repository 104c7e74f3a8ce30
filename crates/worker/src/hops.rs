//! Batches counted by hop, until they are told.

use std::sync::{Arc, Mutex, PoisonError};

use gristmill_batching::{BatchStats, EndReason};

/// What hops moved since a source or store was told of it last. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub struct HopRecorder(Arc<Mutex<BatchStats>>);

impl HopRecorder {
    /// Counts one batch.
    pub fn record(&self, hop: &str, items: u64, end_reason: EndReason) {
        let mut stats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stats.record(hop, usize::try_from(items).unwrap_or(usize::MAX), end_reason);
    }

    /// Takes what has been counted.
    pub fn take(&self) -> BatchStats {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts again what could not be told.
    pub fn give_back(&self, stats: &BatchStats) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).merge(stats);
    }
}
