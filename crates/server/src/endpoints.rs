//! The operations, one in each file: types, description, handler. Its roles are in
//! [`rules`](crate::rules).

pub mod backlog;
pub mod batches;
pub mod controls;
pub mod events;
pub mod health;
pub mod history;
pub mod jobs;
pub mod logs;
pub mod memory;
pub mod metrics;
mod newest_batches;
pub mod openapi;
pub mod operations;
pub mod probes;
pub mod queues;
pub mod ready;
pub mod runs;
pub mod schedules;
pub mod stats;
pub mod workers;

use gristmill_model::BatchId;
use gristmill_store::{BatchRow, JobFilter, Page};

use crate::app::App;
use crate::caller::{Caller, QueueScope};
use crate::error::ApiError;

/// Refuses a batch that is not in the caller's queues. `false` where there is no such batch.
async fn check_batch(app: &App, caller: &Caller, batch: BatchId) -> Result<bool, ApiError> {
    if caller.queues == QueueScope::All {
        return Ok(true);
    }
    let filter = JobFilter {
        batch: Some(batch),
        ..JobFilter::default()
    };
    match app
        .store()
        .jobs(
            &filter,
            Page {
                after: None,
                limit: 1,
            },
        )
        .await?
        .first()
    {
        Some(row) => caller.check_queue_of("batch", batch, &row.queue).map(|()| true),
        None => Ok(false),
    }
}

/// Refuses batches that are not in the caller's queues.
fn check_batches(caller: &Caller, batches: &[BatchRow]) -> Result<(), ApiError> {
    batches
        .iter()
        .try_for_each(|row| caller.check_queue_of("batch", row.batch, &row.queue))
}
