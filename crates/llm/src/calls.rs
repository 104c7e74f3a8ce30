//! Runs the jobs of a micro-batch whose work is calls of a service, all at once. The service's limiter decides how many of
//! them call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use gristmill_model::{Completed, FailedJob, JobError, PackedArray, PackedBuilder, PackedError, Positions};
use gristmill_worker::{JobContext, MicroBatch, MicroBatchJob, OutcomeSink, Outcomes};
use serde::Serialize;
use tokio::sync::watch;

use crate::limits::DRAIN_POLL_MS;
use crate::service::limiter::{CALLING, Calling};

/// Packs the value of one job.
///
/// # Errors
///
/// The value is too large or too deep for a store.
pub fn pack<V: Serialize>(value: &V) -> Result<PackedArray, PackedError> {
    let mut values = PackedBuilder::new();
    values.push_value(value)?;
    Ok(values.finish())
}

/// Runs all jobs of a micro-batch at once. `call` gives the [packed](pack) value of a job.
///
/// A drain (a shutdown) gives back the jobs that do not call a model just then, and those whose call does not end within
/// `grace`, if it is given. The call of a cancelled job is given up.
pub async fn run_calls<'w, R>(
    work: &'w MicroBatch,
    sink: &dyn OutcomeSink,
    grace: Option<Duration>,
    call: impl Fn(MicroBatchJob<'w>) -> R,
) where
    R: Future<Output = Result<PackedArray, JobError>>,
{
    let begun = Instant::now();
    let draining = watch::Sender::new(false);
    let timeout_ms = work.timeout_ms();
    let mut running: FuturesUnordered<_> = work
        .jobs()
        .map(|job| {
            let (index, context, draining) = (job.index, sink.context(&job), draining.subscribe());
            let called = within(timeout_ms, call(job));
            async move {
                (
                    index,
                    until_draining(until_cancelled(called, context), draining, grace).await,
                )
            }
        })
        .collect();
    let mut left = work.indexes();
    loop {
        let next = tokio::time::timeout(Duration::from_millis(DRAIN_POLL_MS), running.next());
        match next.await {
            Ok(None) => break,
            Ok(Some((index, Some(result)))) => {
                let duration_us = u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX);
                assert!(left.contains(index), "each job of a micro-batch ends once");
                left = left.difference(&Positions::from_iter([index]));
                sink.answer(outcomes(index, result, duration_us));
            }
            // The job was given up, or none has ended.
            Ok(Some((_, None))) | Err(_) => {}
        }
        if sink.is_draining() {
            draining.send_replace(true);
        }
    }
    if !left.is_empty() {
        sink.answer(Outcomes {
            released: left,
            ..Outcomes::default()
        });
    }
}

/// The time limit of a job begins with its first call: a job may wait long for its turn.
async fn within<T>(
    timeout_ms: Option<u64>,
    call: impl Future<Output = Result<T, JobError>>,
) -> Result<T, JobError> {
    let Some(timeout_ms) = timeout_ms else {
        return call.await;
    };
    let limit = async {
        if let Ok(calling) = CALLING.try_with(Arc::clone) {
            calling.begins().await;
        }
        tokio::time::sleep(Duration::from_millis(timeout_ms)).await;
    };
    tokio::select! {
        biased;
        ended = call => ended,
        () = limit => Err(JobError::new(
            "timeout",
            format!("the job did not end within {timeout_ms} ms after its first call began"),
        )),
    }
}

async fn until_cancelled<T>(
    call: impl Future<Output = Result<T, JobError>>,
    context: JobContext,
) -> Result<T, JobError> {
    tokio::select! {
        biased;
        ended = call => ended,
        // The store refuses this outcome.
        () = context.cancelled() => Err(JobError::new("cancelled", "the job was cancelled").permanent()),
    }
}

/// Returns the result, or `None` if a drain comes while the job waits for its turn or for the end of a pause. A call that
/// runs costs money, so it is waited for.
async fn until_draining<T>(
    call: impl Future<Output = T>,
    mut draining: watch::Receiver<bool>,
    grace: Option<Duration>,
) -> Option<T> {
    let calling = Arc::new(Calling::default());
    let drained = async {
        if draining.wait_for(|draining| *draining).await.is_err() {
            std::future::pending::<()>().await;
        }
        match grace {
            None => calling.rests().await,
            Some(grace) => {
                let _ = tokio::time::timeout(grace, calling.rests()).await;
            }
        }
    };
    tokio::select! {
        biased;
        ended = CALLING.scope(calling.clone(), call) => Some(ended),
        () = drained => None,
    }
}

fn outcomes(index: u32, result: Result<PackedArray, JobError>, duration_us: u32) -> Outcomes {
    match result {
        Ok(values) => Outcomes {
            completed: Some(Completed {
                positions: Positions::from_iter([index]),
                values,
                durations_us: vec![duration_us],
            }),
            ..Outcomes::default()
        },
        Err(error) => Outcomes {
            failed: vec![FailedJob {
                position: index,
                error,
                duration_us,
            }],
            ..Outcomes::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::limiter::{Limiter, LimiterSettings};

    #[tokio::test(start_paused = true)]
    async fn the_time_limit_of_a_job_begins_with_its_call() {
        let limiter = Limiter::new(LimiterSettings {
            concurrency: 1,
            ..LimiterSettings::default()
        });
        let other = limiter.acquire(1).await;
        let long = Duration::from_secs(60);
        let ask = |takes: Duration| {
            let limiter = limiter.clone();
            let call = async move {
                let permit = limiter.acquire(1).await;
                tokio::time::sleep(takes).await;
                limiter.succeeded(permit, 1, 1);
                Ok(())
            };
            CALLING.scope(Arc::default(), within(Some(1_000), call))
        };
        let ends = async {
            tokio::time::sleep(long).await;
            limiter.succeeded(other, 1, 1);
        };
        let (ended, ()) = tokio::join!(ask(Duration::from_millis(900)), ends);
        assert_eq!(ended, Ok(()));
        let late = ask(long).await.expect_err("its call takes too long");
        assert_eq!(late.error_type, "timeout");
    }
}
