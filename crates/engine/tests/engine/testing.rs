//! The tools for tests of other programs.
#![cfg(feature = "testing")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gristmill_engine::testing::TestEngine;
use gristmill_engine::{Job, JobError, Kind, RecurrenceRule, RetryPolicy, ScheduleOptions};
use gristmill_model::{Backoff, BatchOptions, Timestamp};
use gristmill_store::PruneOptions;

struct Fetch;

impl Kind for Fetch {
    const NAME: &'static str = "fetch";
    type Payload = String;
    type Value = u32;

    fn options() -> BatchOptions {
        BatchOptions {
            retry: RetryPolicy {
                backoff: Backoff::Constant,
                delay_ms: 30_000,
                ..RetryPolicy::default()
            },
            ..BatchOptions::default()
        }
    }
}

#[tokio::test]
async fn a_retry_waits_until_the_clock_is_moved() {
    let engine = TestEngine::new().await;
    engine.submit::<Fetch>(&"here".to_owned()).await.unwrap();
    let attempts = std::sync::Arc::new(AtomicU32::new(0));
    let drain = async || {
        let mut worker = engine.worker();
        let attempts = attempts.clone();
        worker.handle::<Fetch, _, _>(move |_: Job<String>| {
            let attempt = attempts.fetch_add(1, Ordering::SeqCst) + 1;
            async move {
                match attempt {
                    1 => Err(JobError::new("network", "away")),
                    attempt => Ok(attempt),
                }
            }
        });
        engine.drain(&mut worker).await
    };
    assert_eq!(drain().await.failed, 1);
    assert_eq!(drain().await.completed, 0, "it is not time yet");
    engine.advance(Duration::from_secs(30)).await;
    assert_eq!(drain().await.completed, 1);
    assert_eq!(engine.values::<Fetch>().await, [2]);
}

#[tokio::test]
async fn ended_jobs_stay_until_they_are_pruned() {
    let engine = TestEngine::new().await;
    engine.submit::<Fetch>(&"here".to_owned()).await.unwrap();
    let mut worker = engine.worker();
    worker.handle::<Fetch, _, _>(async |_: Job<String>| Ok(7));
    engine.drain(&mut worker).await;
    engine.advance(Duration::from_secs(10 * 366 * 86_400)).await;
    engine.rescue().await.unwrap();
    engine.store().compact(1_000).await.unwrap();
    assert_eq!(
        engine.values::<Fetch>().await,
        [7],
        "nothing is deleted by age alone"
    );
    let options = PruneOptions {
        finished_before: Timestamp(i64::MAX),
        keep_batches: 0,
        dead_too: false,
        dry_run: false,
    };
    assert_eq!(engine.store().prune(options).await.unwrap().jobs, 1);
    assert!(engine.values::<Fetch>().await.is_empty());
}

#[tokio::test]
async fn schedules_fire_as_the_clock_moves() {
    let engine = TestEngine::new().await;
    let rule = RecurrenceRule::Every { interval_ms: 60_000 };
    let options = ScheduleOptions::of::<Fetch>();
    engine
        .schedule::<Fetch>("every minute", rule, &"there".to_owned(), options)
        .await
        .unwrap();
    engine.assert_submitted::<Fetch>(&[]).await;
    engine.advance(Duration::from_secs(60)).await;
    engine.advance(Duration::from_secs(60)).await;
    engine
        .assert_submitted::<Fetch>(&["there".to_owned(), "there".to_owned()])
        .await;
}
