//! Retries, and misbehaving handlers.
#![cfg(feature = "testing")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_engine::testing::TestEngine;
use gristmill_engine::{
    Handler, Job, JobError, Kind, RecurrenceRule, RetryPolicy, ScheduleOptions, Unique, WorkerBuilder,
};
use gristmill_model::limits::REPEATS_MAX;
use gristmill_model::{BatchOptions, Completed, JobState, NewBatch, PackedArray};
use gristmill_store::JobFilter;
use gristmill_worker::{MicroBatch, OutcomeSink, Outcomes, job_handler};

struct Square;

impl Kind for Square {
    const NAME: &'static str = "square";
    type Payload = i64;
    type Value = i64;
}

/// Options that retry at once, with this many attempts in total.
fn at_once(attempts_max: u32) -> BatchOptions {
    BatchOptions {
        retry: RetryPolicy {
            attempts_max,
            delay_ms: 0,
            ..RetryPolicy::default()
        },
        ..BatchOptions::default()
    }
}

async fn claimed(engine: &TestEngine) -> u64 {
    let stats = engine.store().stats().await.unwrap();
    stats.hops.hop("claim").map_or(0, |hop| hop.items)
}

#[tokio::test]
async fn without_a_delay_a_job_runs_again_in_the_same_slot() {
    let engine = TestEngine::new().await;
    let mut jobs = Vec::new();
    for payload in 0..4 {
        jobs.push(engine.submit_with::<Square>(&payload, at_once(3)).await.unwrap());
    }
    let mut worker = engine.worker();
    worker
        .concurrency(1)
        .handle::<Square, _, _>(|job: Job<i64>| async move {
            // Job 0 completes at once, job 1 on its second attempt, job 2 on its third, and job 3 never.
            assert!(job.payload != 2 || job.attempt == 3, "attempt {}", job.attempt);
            if i64::from(job.attempt) > job.payload {
                Ok(job.payload * job.payload)
            } else {
                Err(JobError::new("Again", format!("attempt {}", job.attempt)))
            }
        });
    let summary = engine.drain(&mut worker).await;
    assert_eq!((summary.completed, summary.failed), (3, 1 + 2 + 3));
    for (job, attempts) in jobs.iter().zip([1u32, 2, 3, 3]) {
        let details = engine.job(*job).await.unwrap().unwrap();
        assert_eq!(details.row.attempt, attempts, "job {job}");
        let failed: Vec<u32> = details.failures.iter().map(|failure| failure.attempt).collect();
        let completed = details.row.state == JobState::Completed;
        assert_eq!(failed, (1..attempts + u32::from(!completed)).collect::<Vec<_>>());
    }
    assert_eq!(claimed(&engine).await, 4, "nothing was claimed twice");
}

#[tokio::test]
async fn an_error_may_ask_to_be_tried_again_at_once() {
    let engine = TestEngine::new().await;
    let job = engine.submit::<Square>(&4).await.unwrap();
    let mut worker = engine.worker();
    worker.handle::<Square, _, _>(|job: Job<i64>| async move {
        match job.attempt {
            1 => Err(JobError::new("Conflict", "409").retry_after_ms(0)),
            2 => Err(JobError::new("Busy", "503")),
            _ => Ok(job.payload),
        }
    });
    assert_eq!(engine.drain(&mut worker).await.failed, 2);
    let row = engine.job(job).await.unwrap().unwrap().row;
    assert_eq!(row.attempt, 3);
    assert_ne!(row.state, JobState::Completed, "the policy has a delay");
}

#[tokio::test]
async fn a_job_that_keeps_failing_goes_back_in_line() {
    let engine = TestEngine::new().await;
    let attempts_max = REPEATS_MAX + 3;
    let job = engine
        .submit_with::<Square>(&7, at_once(attempts_max))
        .await
        .unwrap();
    let mut worker = engine.worker();
    worker.handle::<Square, _, _>(|_| async { Err(JobError::new("Never", "no")) });
    worker.until_empty().run().await.unwrap();
    let details = engine.job(job).await.unwrap().unwrap();
    assert_eq!(
        (details.row.state, details.row.attempt),
        (JobState::Dead, attempts_max)
    );
    assert_eq!(details.failures.len() as u32, attempts_max);
    assert_eq!(claimed(&engine).await, 2);
}

struct Flaky;

impl Kind for Flaky {
    const NAME: &'static str = "flaky";
    type Payload = i64;
    type Value = i64;

    fn options() -> BatchOptions {
        at_once(2)
    }
}

fn fail_always(worker: &mut WorkerBuilder) {
    worker.handle::<Flaky, _, _>(|_| async { Err(JobError::new("Never", "no")) });
    worker.handler(
        "plain",
        job_handler(|_: Job<i64>| async { Err::<i64, _>(JobError::new("Never", "no")) }),
    );
}

#[tokio::test]
async fn the_policy_of_a_kind_applies_to_all_ways_of_submitting() {
    let engine = TestEngine::new().await;
    let mut jobs = vec![engine.submit::<Flaky>(&1).await.unwrap()];
    jobs.extend(engine.submit_many::<Flaky>(&[2, 3]).await.unwrap());
    jobs.push(engine.submit_after::<Flaky>(&4, Vec::new()).await.unwrap());
    let unique = engine.submit_unique::<Flaky>(&5, "five", Unique::default());
    jobs.push(unique.await.unwrap());
    let streamed = engine.submit_stream::<Flaky>(futures::stream::iter([6, 7]));
    assert_eq!(streamed.await.unwrap(), 2);
    let rule = RecurrenceRule::Every { interval_ms: 60_000 };
    engine
        .schedule::<Flaky>("every minute", rule, &8, ScheduleOptions::of::<Flaky>())
        .await
        .unwrap();
    engine.advance(Duration::from_secs(60)).await;
    // Without a kind's options, the default policy applies.
    let plain = NewBatch::new("plain", PackedArray::parse("[9]").unwrap());
    let plain = engine.submit_one(plain).await.unwrap();
    assert_eq!(engine.submitted::<Flaky>().await.len(), 8);

    let mut failed = 0;
    for _ in 0..RetryPolicy::default().attempts_max {
        let mut worker = engine.worker();
        fail_always(&mut worker);
        failed += engine.drain(&mut worker).await.failed;
        // Only a job that waits for its next attempt becomes due: the schedule is not due again.
        engine.advance(Duration::from_secs(19)).await;
    }
    assert_eq!(failed, 8 * 2 + 3);
    let counts = engine.store().counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.dead, counts.total()), (9, 9));
    for job in jobs {
        let details = engine.job(job).await.unwrap().unwrap();
        assert_eq!(details.failures.len(), 2, "job {job}");
    }
    let details = engine.job(plain).await.unwrap().unwrap();
    assert_eq!(details.failures.len() as u32, RetryPolicy::default().attempts_max);
}

/// A handler that misbehaves once, in one of several ways.
struct Misbehaving {
    way: u32,
    done: AtomicBool,
}

#[async_trait]
impl Handler for Misbehaving {
    async fn run(&self, _: usize, work: MicroBatch, sink: &dyn OutcomeSink) {
        let way = if self.done.swap(true, Ordering::SeqCst) {
            u32::MAX
        } else {
            self.way
        };
        match way {
            0 => panic!("before anything is answered"),
            1 => {
                tokio::task::yield_now().await;
                std::panic::panic_any(17_u8);
            }
            2 => {
                let released = Outcomes {
                    released: "0".parse().unwrap(),
                    ..Outcomes::default()
                };
                sink.answer(released.clone());
                sink.answer(released);
                panic!("after one job was answered, twice");
            }
            3 => {} // Answers nothing.
            _ => sink.answer(Outcomes {
                completed: Some(Completed {
                    positions: work.indexes(),
                    values: work.payloads().clone(),
                    durations_us: vec![1; work.jobs_count() as usize],
                }),
                ..Outcomes::default()
            }),
        }
    }
}

#[tokio::test]
async fn whatever_a_handler_does_its_slot_becomes_free_again() {
    let engine = TestEngine::new().await;
    let mut worker = engine.worker();
    worker.concurrency(1);
    for way in 0..4 {
        let kind = format!("misbehaving-{way}");
        let jobs = NewBatch {
            options: at_once(1),
            ..NewBatch::new(kind.clone(), PackedArray::parse("[1,2]").unwrap())
        };
        engine.submit_batches(vec![jobs]).await.unwrap();
        let done = AtomicBool::new(false);
        worker.handler(kind, Arc::new(Misbehaving { way, done }));
    }
    let job = engine.submit_with::<Square>(&3, at_once(1)).await.unwrap();
    worker.handle::<Square, _, _>(|job: Job<i64>| async move { Ok::<_, JobError>(job.payload) });
    // If its only slot were kept, the worker would not end.
    engine.drain(&mut worker).await;
    assert_eq!(engine.value::<Square>(job).await.unwrap(), Some(3));
    let counts = engine.store().counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.ended(), counts.total()), (9, 9));
    assert!(counts.dead >= 3, "{counts:?}");
}
