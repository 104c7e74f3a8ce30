//! The counts of ended jobs that a handle gathers.

use std::sync::{Arc, MutexGuard, PoisonError};

use gristmill_model::Receipt;
use gristmill_store::StoreError;
use gristmill_store::metrics::{GatheredEnds, ReportedEnds};

use crate::SqliteStore;
use crate::writer::operation::Durability;

impl SqliteStore {
    /// The gathered counts.
    pub(crate) fn gathered(&self) -> MutexGuard<'_, GatheredEnds> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the accepted jobs of reports. If many have gathered, the store gets the counts at once.
    pub(crate) async fn gather(&self, reported: &[ReportedEnds], receipts: &[Receipt]) {
        let is_full = {
            let mut gathered = self.gathered();
            gathered.add(reported, receipts);
            gathered.is_full()
        };
        if is_full {
            self.flush_or_warn().await;
        }
    }

    /// Adds the gathered counts to those of the store. After a failure they are kept for the next time.
    pub(crate) async fn flush_or_warn(&self) {
        if let Err(error) = self.flush_ended().await {
            tracing::warn!(%error, "the counts of ended jobs cannot be stored yet");
        }
    }

    async fn flush_ended(&self) -> Result<(), StoreError> {
        let ended = self.gathered().take();
        if ended.is_empty() {
            return Ok(());
        }
        let ended = Arc::new(ended);
        let work = ended.clone();
        let added = self
            .write_with(Durability::Needless, 0, move |transaction| {
                transaction.add_ended(&work)
            })
            .await;
        if added.is_err() {
            self.gathered().put_back(ended.to_vec());
        }
        added
    }
}
