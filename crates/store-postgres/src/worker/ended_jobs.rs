//! The counts of ended jobs that a handle gathers.

use std::sync::Arc;

use futures::FutureExt;
use gristmill_model::Receipt;
use gristmill_store::StoreError;
use gristmill_store::metrics::ReportedEnds;

use crate::database::Database;
use crate::database::pools::Purpose;
use crate::database::transaction::Durability;

impl Database {
    /// Counts the accepted jobs of reports. If many have gathered, the store gets the counts at once.
    pub async fn gather(self: &Arc<Self>, reported: &[ReportedEnds], receipts: &[Receipt]) {
        let is_full = {
            let mut gathered = self.cache.ended();
            gathered.add(reported, receipts);
            gathered.is_full()
        };
        if is_full {
            self.flush_or_warn().await;
        }
    }

    /// Adds the gathered counts to those of the store. After a failure they are kept for the next time.
    pub async fn flush_or_warn(self: &Arc<Self>) {
        if let Err(error) = self.flush_ended().await {
            tracing::warn!(%error, "the counts of ended jobs cannot be stored yet");
        }
    }

    async fn flush_ended(self: &Arc<Self>) -> Result<(), StoreError> {
        let ended = self.cache.ended().take();
        if ended.is_empty() {
            return Ok(());
        }
        let ended = Arc::new(ended);
        let work = ended.clone();
        let added = self
            .write(Purpose::Signal, Durability::Needless, move |transaction| {
                let ended = work.clone();
                async move { transaction.add_ended(&ended).await }.boxed()
            })
            .await;
        if added.is_err() {
            self.cache.ended().put_back(ended.to_vec());
        }
        added
    }
}
