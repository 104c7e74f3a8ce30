//! The operations, one in each file: types, description, handler. Its roles are in
//! [`rules`](crate::rules).

pub mod cancel;
pub mod children;
pub mod controls;
pub mod discard;
pub mod events;
pub mod exchange;
pub mod health;
pub mod heartbeat;
pub mod history;
pub mod job;
pub mod job_ids;
pub mod jobs;
pub mod leave;
pub mod logs;
pub mod metrics;
pub mod openapi;
pub mod output;
pub mod pause;
pub mod prioritise;
pub mod priority;
pub mod queues;
pub mod ready;
pub mod register;
pub mod results;
pub mod retry;
pub mod schedule;
pub mod schedules;
pub mod selection;
pub mod stats;
pub mod submit;
pub mod submit_options;
pub mod submit_stream;
pub mod tags;
pub mod unique;
pub mod workers;

use gristmill_model::{BatchId, WorkerId};
use gristmill_store::{BatchRow, JobFilter, Page};

use crate::app::App;
use crate::caller::{Caller, QueueScope};
use crate::error::ApiError;

/// Reads a worker's id from a path.
fn worker_id(text: &str) -> Result<WorkerId, ApiError> {
    text.parse().map(WorkerId).map_err(|_| {
        ApiError::invalid(
            format!(
                "`{}` is not a worker's id",
                text.chars().take(40).collect::<String>()
            ),
            "use the number that registering answered",
        )
    })
}

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
        Some(row) => caller.check_queue(&row.queue).map(|()| true),
        None => Ok(false),
    }
}

/// Refuses batches that are not in the caller's queues.
fn check_batches(caller: &Caller, batches: &[BatchRow]) -> Result<(), ApiError> {
    batches
        .iter()
        .try_for_each(|batch| caller.check_queue(&batch.queue))
}
