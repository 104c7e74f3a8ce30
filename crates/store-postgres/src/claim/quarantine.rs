//! Batches with damaged rows: their open jobs are paused, so that all other jobs continue.

use std::collections::BTreeSet;
use std::sync::Arc;

use gristmill_model::{BatchId, Report, WorkerId};
use gristmill_store::integrity::DAMAGED;

use crate::database::Database;
use crate::database::connection::Pooled;
use crate::database::pools::Purpose;

/// Pauses all open jobs of the batch `$1`, at `$2`, for the reason `$3`.
const PAUSE: &str =
    "SELECT gristmill.pause_jobs(ARRAY[$1::bigint], ARRAY['{(,)}'::int4multirange], '{}', $2, $3, NULL)";

impl Database {
    /// Pauses the open jobs of a damaged batch.
    pub async fn quarantine(&self, batch: BatchId) {
        let now = self.now().0;
        let paused = self.alone(Purpose::Change, async |connection: Pooled| {
            connection.rows(PAUSE, &[&batch.0, &now, &DAMAGED]).await
        });
        if let Err(error) = paused.await {
            tracing::warn!(%error, batch = batch.0, "a damaged batch is not paused");
        }
    }

    /// Pauses the damaged batches among those that were claimed, and carries out reports that release their jobs.
    pub async fn quarantine_claimed(
        self: &Arc<Self>,
        worker: WorkerId,
        damaged: &BTreeSet<BatchId>,
        released: Vec<Report>,
    ) {
        for batch in damaged {
            tracing::error!(
                batch = batch.0,
                "a claim passes over a damaged batch; `gristmill check` says what is wrong"
            );
            self.quarantine(*batch).await;
        }
        if let Err(error) = self.exchange(worker, released, None).await {
            tracing::warn!(%error, worker = worker.0, "jobs of damaged batches come back once their worker has ended");
        }
    }
}
