//! The engine over a real SQLite store, used like a program uses it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use gristmill_engine::{
    After, Engine, EngineError, EngineSettings, Event, Job, JobError, JobId, Kind, OnDuplicate, OnFailure,
    RecurrenceRule, RetryPolicy, ScheduleOptions, Unique, WorkerSettings,
};
use gristmill_model::limits::{LEASE_LOST_AFTER_MS, RESCUES_MAX};
use gristmill_model::{BatchOptions, JobState, ManualClock, Timestamp};
use gristmill_store::{Change, JobFilter, NewWorker, Selection, Want};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};
use tokio::sync::{Notify, Semaphore};

use crate::support::{Square, square};

/// An engine on its own store, the clock of both, and the folder, which is deleted when it is dropped.
async fn fixture() -> (Engine, Arc<ManualClock>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Arc::new(ManualClock::new(Timestamp(1_000_000)));
    let engine = open(&folder.path().join("jobs.db"), &clock).await;
    (engine, clock, folder)
}

async fn open(path: &Path, clock: &Arc<ManualClock>) -> Engine {
    let options = SqliteOptions {
        clock: clock.clone(),
        ..SqliteOptions::default()
    };
    let store = SqliteStore::open(path, options).expect("the store opens");
    let settings = EngineSettings {
        clock: clock.clone(),
        housekeeping: false,
        ..EngineSettings::default()
    };
    Engine::new(Arc::new(store), settings)
        .await
        .expect("the engine starts")
}

fn dead() -> JobFilter {
    JobFilter {
        states: vec![JobState::Dead],
        ..JobFilter::default()
    }
}

#[tokio::test]
async fn many_jobs_have_their_expected_outcomes() {
    let (engine, _clock, _folder) = fixture().await;
    let payloads: Vec<i64> = (0..5_000).collect();
    let jobs = engine.submit_many::<Square>(&payloads).await.unwrap();
    assert_eq!(jobs.len(), 5_000);
    assert_eq!(jobs.iter().collect::<HashSet<_>>().len(), 5_000);
    let mut worker = engine.worker();
    let summary = worker
        .handle::<Square, _, _>(square)
        .until_empty()
        .run()
        .await
        .unwrap();
    assert_eq!(
        (summary.completed, summary.failed, summary.refused),
        (5_000, 0, 0)
    );
    for index in [0usize, 1, 999, 1_000, 4_999] {
        let value = engine.value::<Square>(jobs[index]).await.unwrap();
        assert_eq!(value, Some((index * index) as i64));
    }
    let stats = engine.store().stats().await.unwrap();
    assert_eq!((stats.batches, stats.slices, stats.leases), (5, 0, 0));
    assert!(stats.hops.hop("claim").is_some_and(|hop| hop.items == 5_000));
}

#[tokio::test]
async fn a_graph_runs_in_its_order() {
    let (engine, _clock, _folder) = fixture().await;
    let first = engine.submit::<Square>(&2).await.unwrap();
    let next = engine
        .submit_after::<Square>(&3, vec![After::job(first)])
        .await
        .unwrap();
    let last = engine
        .submit_after::<Square>(&4, vec![After::batch(next.batch), After::batch(first.batch)])
        .await
        .unwrap();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut worker = engine.worker();
    let seen = order.clone();
    worker.handle::<Square, _, _>(move |job: Job<i64>| {
        seen.lock().unwrap().push(job.id);
        square(job)
    });
    assert_eq!(worker.until_empty().run().await.unwrap().completed, 3);
    assert_eq!(*order.lock().unwrap(), [first, next, last]);
    let ready = engine
        .submit_after::<Square>(&5, vec![After::job(last).on_failure(OnFailure::Fail)])
        .await
        .unwrap();
    assert_eq!(
        engine.job(ready).await.unwrap().unwrap().row.state,
        JobState::Waiting
    );
}

#[tokio::test]
async fn jobs_of_many_small_batches_are_run_together() {
    let (engine, _clock, _folder) = fixture().await;
    let mut jobs = Vec::new();
    for number in 0..300i64 {
        // Each submit waits for the one before, so that each job is a batch of its own.
        jobs.push(engine.submit::<Square>(&number).await.unwrap());
    }
    let batches: HashSet<_> = jobs.iter().map(|job| job.batch).collect();
    assert_eq!(batches.len(), 300);
    let most = Arc::new(AtomicUsize::new(0));
    let mut worker = engine.worker();
    let seen = most.clone();
    worker.handle_batch::<Square, _, _>(move |jobs: Vec<Job<i64>>| {
        seen.fetch_max(jobs.len(), Ordering::SeqCst);
        async move {
            let outcome = |job: Job<i64>| match job.payload {
                number if number % 100 == 7 => Err(JobError::new("seven", "not this one").permanent()),
                number => Ok(number * number),
            };
            jobs.into_iter().map(outcome).collect()
        }
    });
    let summary = worker.concurrency(1).until_empty().run().await.unwrap();
    assert_eq!((summary.completed, summary.failed, summary.refused), (297, 3, 0));
    assert!(most.load(Ordering::SeqCst) > 1, "each job was run alone");
    for (number, job) in (0..).zip(&jobs) {
        match engine.value::<Square>(*job).await {
            Ok(value) => assert_eq!(value, Some(number * number)),
            Err(error) => assert!(
                number % 100 == 7 && error.to_string().contains("not this one"),
                "{number}: {error}"
            ),
        }
    }
}

#[tokio::test]
async fn concurrent_single_submits_get_ids_of_their_own() {
    let (engine, _clock, _folder) = fixture().await;
    let tasks: Vec<_> = (0..200i64)
        .map(|number| {
            let engine = engine.clone();
            tokio::spawn(async move { (number, engine.submit::<Square>(&number).await.unwrap()) })
        })
        .collect();
    let mut jobs = Vec::new();
    for task in tasks {
        jobs.push(task.await.unwrap());
    }
    engine
        .worker()
        .handle::<Square, _, _>(square)
        .until_empty()
        .run()
        .await
        .unwrap();
    for (number, job) in jobs {
        assert_eq!(engine.value::<Square>(job).await.unwrap(), Some(number * number));
    }
}

#[tokio::test]
async fn a_panicking_handler_fails_its_job_and_frees_its_slot() {
    let (engine, _clock, _folder) = fixture().await;
    let jobs = engine
        .submit_many::<Square>(&(0..50).collect::<Vec<_>>())
        .await
        .unwrap();
    let mut worker = engine.worker();
    worker
        .concurrency(1)
        .handle::<Square, _, _>(|job: Job<i64>| async move {
            assert!(job.payload % 10 != 3, "thirteen and its like");
            square(job).await
        });
    let summary = worker.until_empty().run().await.unwrap();
    assert_eq!(summary.completed, 45);
    assert_eq!(summary.failed, 5 * 3, "each of the five had its three attempts");
    let Err(EngineError::NotCompleted { state, error, .. }) = engine.value::<Square>(jobs[13]).await else {
        panic!("job 13 must be dead");
    };
    assert_eq!(state, JobState::Dead);
    assert!(error.unwrap().message.contains("thirteen and its like"));
}

#[tokio::test]
async fn retries_follow_the_policy_and_the_error() {
    let (engine, clock, _folder) = fixture().await;
    let retry = RetryPolicy {
        attempts_max: 4,
        backoff: gristmill_model::Backoff::Linear,
        delay_ms: 1_000,
        delay_ms_max: 60_000,
    };
    let options = BatchOptions {
        retry,
        ..BatchOptions::default()
    };
    let job = engine.submit_with::<Square>(&7, options).await.unwrap();
    let attempts = Arc::new(AtomicU32::new(0));
    let seen = attempts.clone();
    let mut worker = engine.worker();
    let running = worker
        .settings(WorkerSettings {
            poll_every: Duration::from_millis(1),
            ..WorkerSettings::default()
        })
        .handle::<Square, _, _>(move |job: Job<i64>| {
            let seen = seen.clone();
            async move {
                seen.store(job.attempt, Ordering::SeqCst);
                match job.attempt {
                    1 => Err(JobError::new("Once", "no")),
                    2 => Err(JobError::new("Twice", "slow down").retry_after_ms(5_000)),
                    _ => square(job).await,
                }
            }
        })
        .start();
    for (attempt, delay_ms) in [(1, 1_000), (2, 5_000)] {
        let waiting = loop {
            let details = engine.job(job).await.unwrap().unwrap();
            if details.row.state == JobState::Scheduled && details.failures.len() == attempt {
                break details;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(
            waiting.row.run_at,
            Some(Timestamp(engine.clock().now().0 + delay_ms))
        );
        assert_eq!(
            attempts.load(Ordering::SeqCst),
            attempt as u32,
            "not before its time"
        );
        clock.advance_ms(delay_ms);
    }
    while engine.value::<Square>(job).await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    let details = engine.job(job).await.unwrap().unwrap();
    assert_eq!(details.failures.len(), 2);
    assert_eq!(details.row.attempt, 3);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_worker_until_empty_waits_for_its_own_retries() {
    let (engine, _clock, _folder) = fixture().await;
    // The job runs again in its slot this many times, and then goes back in line.
    let repeats = gristmill_model::limits::REPEATS_MAX;
    let mut options = Square::options();
    options.retry.attempts_max = repeats + 2;
    let job = engine.submit_with::<Square>(&7, options).await.unwrap();
    let watched = engine.clone();
    let mut worker = engine.worker();
    worker.handle::<Square, _, _>(move |job: Job<i64>| {
        let engine = watched.clone();
        async move {
            // Meanwhile the worker asks for more, and learns that there is none.
            for _ in 0..20 {
                engine.job(job.id).await.expect("the store answers");
            }
            if job.attempt <= repeats + 1 {
                Err(JobError::new("Once", "no"))
            } else {
                square(job).await
            }
        }
    });
    worker.until_empty().run().await.unwrap();
    assert_eq!(engine.value::<Square>(job).await.unwrap(), Some(49));
}

#[tokio::test]
async fn a_permanent_error_is_not_tried_again_until_someone_says_so() {
    let (engine, _clock, _folder) = fixture().await;
    let job = engine.submit::<Square>(&7).await.unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let mut worker = engine.worker();
    worker.handle::<Square, _, _>(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Err(JobError::new("Gone", "410").permanent()) }
    });
    worker.until_empty().run().await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(
        engine
            .change(Selection::Filter(dead()), Change::Retry)
            .await
            .unwrap()
            .changed,
        1
    );
    engine
        .worker()
        .handle::<Square, _, _>(square)
        .until_empty()
        .run()
        .await
        .unwrap();
    assert_eq!(engine.value::<Square>(job).await.unwrap(), Some(49));
}

#[tokio::test]
async fn a_drain_ends_what_runs_and_gives_back_the_rest_uncharged() {
    let (engine, _clock, _folder) = fixture().await;
    engine
        .submit_many::<Square>(&(0..1_000).collect::<Vec<_>>())
        .await
        .unwrap();
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let (told, gate) = (begun.clone(), go.clone());
    let mut worker = engine.worker();
    let running = worker
        .concurrency(1)
        .handle::<Square, _, _>(move |job: Job<i64>| {
            let (told, gate) = (told.clone(), gate.clone());
            async move {
                told.notify_one();
                gate.acquire().await.expect("open").forget();
                square(job).await
            }
        })
        .start();
    begun.notified().await;
    running.stopper().stop();
    go.add_permits(1_000);
    let summary = running.join().await.unwrap();
    assert!(summary.completed >= 1, "what ran was ended and committed");
    assert!(summary.completed < 1_000);
    let counts = engine.store().counts(&JobFilter::default()).await.unwrap();
    assert_eq!(counts.completed, summary.completed);
    assert_eq!(counts.waiting, 1_000 - summary.completed);
    assert_eq!(counts.running, 0);
    let rest = engine
        .worker()
        .handle::<Square, _, _>(|job: Job<i64>| async move {
            assert_eq!(job.attempt, 1, "given back uncharged");
            square(job).await
        })
        .until_empty()
        .run()
        .await
        .unwrap();
    assert_eq!(rest.completed, 1_000 - summary.completed);
}

#[tokio::test]
async fn a_limit_is_never_exceeded() {
    let (engine, _clock, _folder) = fixture().await;
    engine
        .submit_many::<Square>(&(0..500).collect::<Vec<_>>())
        .await
        .unwrap();
    let settings = WorkerSettings {
        jobs_limit: Some(77),
        ..WorkerSettings::default()
    };
    let summary = engine
        .worker()
        .settings(settings)
        .handle::<Square, _, _>(square)
        .run()
        .await
        .unwrap();
    assert_eq!(summary.completed, 77);
    let counts = engine.store().counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.completed, counts.waiting), (77, 423));
}

#[tokio::test]
async fn batch_handlers_answer_each_job_by_itself() {
    let (engine, _clock, _folder) = fixture().await;
    let jobs = engine
        .submit_many::<Square>(&(0..300).collect::<Vec<_>>())
        .await
        .unwrap();
    let largest = Arc::new(AtomicUsize::new(0));
    let seen = largest.clone();
    let mut worker = engine.worker();
    worker.handle_batch::<Square, _, _>(move |jobs: Vec<Job<i64>>| {
        seen.fetch_max(jobs.len(), Ordering::SeqCst);
        async move {
            let answer = |job: Job<i64>| match job.payload % 3 {
                0 => Err(JobError::new("Fizz", "by three").permanent()),
                _ => Ok(job.payload * job.payload),
            };
            jobs.into_iter().map(answer).collect()
        }
    });
    let summary = worker.until_empty().run().await.unwrap();
    assert_eq!((summary.completed, summary.failed), (200, 100));
    assert!(largest.load(Ordering::SeqCst) > 1);
    assert_eq!(engine.value::<Square>(jobs[4]).await.unwrap(), Some(16));
    assert!(engine.value::<Square>(jobs[3]).await.is_err());
}

#[tokio::test]
async fn a_timeout_fails_the_attempt() {
    let (engine, _clock, _folder) = fixture().await;
    let options = BatchOptions {
        timeout_ms: Some(20),
        retry: RetryPolicy::NEVER,
        ..BatchOptions::default()
    };
    let job = engine.submit_with::<Square>(&1, options).await.unwrap();
    let mut worker = engine.worker();
    worker.handle::<Square, _, _>(|_| std::future::pending());
    worker.until_empty().run().await.unwrap();
    let failures = engine.job(job).await.unwrap().unwrap().failures;
    assert_eq!(failures[0].error.error_type, "timeout");
}

#[tokio::test]
async fn a_payload_of_another_type_fails_its_job_alone() {
    let (engine, _clock, _folder) = fixture().await;
    let payloads = gristmill_model::PackedArray::parse(r#"[2, "two", 3]"#).unwrap();
    let batch = gristmill_model::NewBatch::new("square", payloads);
    let batch = engine.submit_batches(vec![batch]).await.unwrap()[0];
    engine
        .worker()
        .handle::<Square, _, _>(square)
        .until_empty()
        .run()
        .await
        .unwrap();
    let job = |position| JobId { batch, position };
    assert_eq!(engine.value::<Square>(job(2)).await.unwrap(), Some(9));
    let failures = engine.job(job(1)).await.unwrap().unwrap().failures;
    assert_eq!(failures.len(), 1);
    assert!(failures[0].error.message.contains("does not match"));
}

#[tokio::test]
async fn a_silent_workers_jobs_are_rescued_and_its_late_report_refused() {
    let (engine, clock, folder) = fixture().await;
    let job = engine.submit::<Square>(&5).await.unwrap();
    let store = engine.store();
    let silent = NewWorker {
        name: "silent".to_owned(),
        host: "elsewhere".to_owned(),
        process_id: 1,
        process_started: String::new(),
        queues: Vec::new(),
        kinds: Vec::new(),
    };
    let silent = store.register_worker(silent).await.unwrap();
    let want = Want {
        jobs_max: 1,
        queues: vec!["default".into()],
        kinds: vec!["square".into()],
        priority_min: None,
    };
    let lease = store
        .exchange(silent, Vec::new(), Some(want))
        .await
        .unwrap()
        .lease
        .unwrap();

    clock.advance_ms(LEASE_LOST_AFTER_MS - 1);
    assert_eq!(engine.rescue().await.unwrap().jobs, 0, "not before its time");
    clock.advance_ms(2);
    // Another process on the same store does the rescue.
    let other = open(&folder.path().join("jobs.db"), &clock).await;
    assert_eq!(other.rescue().await.unwrap().jobs, 1);
    assert_eq!(
        engine.job(job).await.unwrap().unwrap().row.state,
        JobState::Waiting
    );
    other
        .worker()
        .handle::<Square, _, _>(square)
        .until_empty()
        .run()
        .await
        .unwrap();

    let slice = &lease.slices[0];
    let mut late = gristmill_model::Report::new(lease.id, slice.batch, slice.attempt);
    late.completed = Some(gristmill_model::Completed {
        positions: slice.positions.clone(),
        values: gristmill_model::PackedArray::parse("[666]").unwrap(),
        durations_us: vec![1],
    });
    let receipt = &store.exchange(silent, vec![late], None).await.unwrap().receipts[0];
    assert_eq!(receipt.refused, slice.positions);
    assert_eq!(engine.value::<Square>(job).await.unwrap(), Some(25));
}

#[tokio::test]
async fn a_job_that_kills_every_worker_ends_as_dead() {
    let (engine, clock, _folder) = fixture().await;
    let job = engine.submit::<Square>(&5).await.unwrap();
    let mut deaths = 0;
    while engine.job(job).await.unwrap().unwrap().row.state == JobState::Waiting {
        deaths += 1;
        assert!(deaths <= RESCUES_MAX + 1, "a crash loop is bounded");
        let doomed = NewWorker {
            name: format!("doomed-{deaths}"),
            host: "elsewhere".to_owned(),
            process_id: 1,
            process_started: String::new(),
            queues: Vec::new(),
            kinds: Vec::new(),
        };
        let doomed = engine.store().register_worker(doomed).await.unwrap();
        let want = Want {
            jobs_max: 1,
            queues: vec!["default".into()],
            kinds: Vec::new(),
            priority_min: None,
        };
        assert!(
            engine
                .store()
                .exchange(doomed, Vec::new(), Some(want))
                .await
                .unwrap()
                .lease
                .is_some()
        );
        clock.advance_ms(LEASE_LOST_AFTER_MS + 1);
        engine.rescue().await.unwrap();
    }
    let details = engine.job(job).await.unwrap().unwrap();
    assert_eq!(details.row.state, JobState::Dead);
    assert!(deaths >= 2);
    assert!(details.row.error.unwrap().contains("worker"));
}

#[tokio::test]
async fn events_tell_what_is_on_disk() {
    let (engine, _clock, _folder) = fixture().await;
    let mut events = engine.events(None).await.unwrap();
    let job = engine.submit::<Square>(&3).await.unwrap();
    let submitted = events.next().await.unwrap();
    let Event::Submitted { jobs } = submitted.event else {
        panic!("{submitted:?}");
    };
    assert_eq!((jobs.batch, jobs.kind.as_deref()), (job.batch, Some("square")));
    engine
        .worker()
        .handle::<Square, _, _>(square)
        .until_empty()
        .run()
        .await
        .unwrap();
    let completed = events.next().await.unwrap();
    let Event::Completed { jobs, attempt } = completed.event else {
        panic!("{completed:?}");
    };
    assert_eq!(
        (jobs.batch, jobs.positions.to_string(), attempt),
        (job.batch, "0".into(), 1)
    );
    // Another listener resumes after the events that it has seen.
    let mut again = engine.events(Some(submitted.cursor)).await.unwrap();
    assert_eq!(again.next().await.unwrap().cursor, completed.cursor);
    assert_eq!(engine.value::<Square>(job).await.unwrap(), Some(9));
}

/// The server stops polling the stream of a slow client.
#[tokio::test]
async fn a_listener_that_is_not_polled_blocks_no_other() {
    let (engine, _clock, _folder) = fixture().await;
    let mut stalled = engine.events(None).await.unwrap();
    let mut stalled_next = std::pin::pin!(stalled.next());
    assert!(futures::poll!(&mut stalled_next).is_pending());
    let mut other = engine.events(None).await.unwrap();
    engine.submit::<Square>(&3).await.unwrap();
    let event = tokio::time::timeout(Duration::from_secs(30), other.next()).await;
    let event = event.expect("the other listener gets on").unwrap();
    assert!(matches!(event.event, Event::Submitted { .. }));
    assert_eq!(stalled_next.await.unwrap().cursor, event.cursor);
}

#[tokio::test]
async fn a_stream_is_submitted_batch_by_batch() {
    let (engine, _clock, _folder) = fixture().await;
    let submitted = engine
        .submit_stream::<Square>(futures::stream::iter(0..2_345))
        .await
        .unwrap();
    assert_eq!(submitted, 2_345);
    let counts = engine.store().counts(&JobFilter::default()).await.unwrap();
    assert_eq!(counts.waiting, 2_345);
    assert_eq!(engine.store().stats().await.unwrap().batches, 3);
}

#[tokio::test]
async fn schedules_submit_typed_jobs() {
    let (engine, clock, _folder) = fixture().await;
    let rule = RecurrenceRule::Every { interval_ms: 60_000 };
    let options = ScheduleOptions::of::<Square>();
    engine
        .schedule::<Square>("nightly", rule, &12, options)
        .await
        .unwrap();
    assert_eq!(engine.fire_schedules().await.unwrap(), 0);
    let mut events = engine.events(None).await.unwrap();
    clock.advance_ms(60_000);
    assert_eq!(engine.fire_schedules().await.unwrap(), 1);
    let event = events.next().await.unwrap().event;
    assert!(matches!(event, Event::Submitted { jobs } if jobs.positions.len() == 1));
    engine
        .worker()
        .handle::<Square, _, _>(square)
        .until_empty()
        .run()
        .await
        .unwrap();
    let schedule = engine.store().schedule("nightly").await.unwrap().unwrap();
    assert_eq!(
        engine.value::<Square>(schedule.last_job.unwrap()).await.unwrap(),
        Some(144)
    );
}

/// A second job with the same key is the first one, until that has ended. A job that comes while it runs, runs after it.
#[tokio::test]
async fn jobs_with_the_same_key_are_one() {
    let (engine, _, _folder) = fixture().await;
    let skip = Unique::default();
    let first = engine.submit_unique::<Square>(&3, "three", skip).await.unwrap();
    assert_eq!(
        engine.submit_unique::<Square>(&4, "three", skip).await.unwrap(),
        first
    );
    let other = engine.submit_unique::<Square>(&5, "five", skip).await.unwrap();
    let ran = Arc::new(AtomicU32::new(0));
    let mut worker = engine.worker();
    let (count, submitter) = (ran.clone(), engine.clone());
    worker.handle::<Square, _, _>(move |job: Job<i64>| {
        let (count, engine) = (count.clone(), submitter.clone());
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            if job.payload == 3 {
                let rerun = Unique {
                    on_duplicate: OnDuplicate::Rerun,
                    ..Unique::default()
                };
                let again = engine.submit_unique::<Square>(&6, "three", rerun).await.unwrap();
                assert_eq!(again, job.id);
            }
            square(job).await
        }
    });
    worker.until_empty().run().await.unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 3);
    assert_eq!(engine.value::<Square>(first).await.unwrap(), Some(9));
    assert_eq!(engine.value::<Square>(other).await.unwrap(), Some(25));
    let completed = JobFilter {
        states: vec![JobState::Completed],
        ..JobFilter::default()
    };
    assert_eq!(engine.store().counts(&completed).await.unwrap().completed, 3);
    assert_ne!(
        engine.submit_unique::<Square>(&3, "three", skip).await.unwrap(),
        first
    );
}
