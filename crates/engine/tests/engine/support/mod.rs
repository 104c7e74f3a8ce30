//! A kind of jobs for several tests.

use gristmill_engine::{Job, JobError, Kind, RetryPolicy};
use gristmill_model::BatchOptions;

/// Squares a number. A failed job is retried at once.
pub struct Square;

impl Kind for Square {
    const NAME: &'static str = "square";
    type Payload = i64;
    type Value = i64;

    fn options() -> BatchOptions {
        BatchOptions {
            retry: RetryPolicy {
                delay_ms: 0,
                ..RetryPolicy::default()
            },
            ..BatchOptions::default()
        }
    }
}

pub async fn square(job: Job<i64>) -> Result<i64, JobError> {
    Ok(job.payload * job.payload)
}
