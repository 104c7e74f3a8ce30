//! The operations, one in each file: types, description and handler. Their roles are in [`rules`](crate::rules).

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
use gristmill_store::{JobFilter, Page};

use crate::app::App;
use crate::caller::{Caller, QueueScope};
use crate::error::ApiError;

/// Reports whether the caller may see a batch. A batch of another queue looks like a missing one. Different answers
/// would tell the caller how many batches others submit.
async fn has_batch(app: &App, caller: &Caller, batch: BatchId) -> Result<bool, ApiError> {
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
        Some(row) => Ok(caller.queues.contains(&row.queue)),
        None => Ok(false),
    }
}
