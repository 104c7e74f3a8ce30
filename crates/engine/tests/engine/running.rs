//! Progress, pauses and cancellations of running jobs.
#![cfg(feature = "testing")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gristmill_engine::testing::TestEngine;
use gristmill_engine::{
    Admission, Backpressure, Engine, EngineSettings, IoRate, Job, JobError, Kind, PressureSource, Progress,
    Threshold, WorkerSettings,
};
use gristmill_model::{BatchOptions, JobState, ManualClock, Timestamp};
use gristmill_store::{Change, Selection};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};
use tokio::sync::Semaphore;

struct Copy;

impl Kind for Copy {
    const NAME: &'static str = "copy";
    type Payload = u64;
    type Value = u64;
}

#[tokio::test]
async fn a_handler_reports_the_progress_of_its_job() {
    let engine = TestEngine::new().await;
    let job = engine.submit::<Copy>(&200).await.unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let mut worker = engine.worker();
    let closed = gate.clone();
    let running = worker
        .handle::<Copy, _, _>(move |job: Job<u64>| {
            let gate = closed.clone();
            async move {
                for done in 0..=50 {
                    job.context
                        .progress(Progress::of(done, job.payload).message("copying"));
                }
                let _open = gate.acquire().await;
                Ok::<_, JobError>(job.payload)
            }
        })
        .start();
    let shown = loop {
        let details = engine.job(job).await.unwrap().unwrap();
        if let Some(shown) = details.row.progress {
            break shown;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(shown.progress.fraction, Some(0.25));
    assert_eq!(shown.progress.message.as_deref(), Some("copying"));
    gate.add_permits(1);
    while engine.value::<Copy>(job).await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    let details = engine.job(job).await.unwrap().unwrap();
    assert_eq!(
        (details.row.state, details.row.progress),
        (JobState::Completed, None)
    );
    running.stop().await.unwrap();
}

#[derive(Debug)]
struct Set(Mutex<f64>);

impl PressureSource for Set {
    fn name(&self) -> &str {
        "set"
    }

    fn pressure(&self) -> f64 {
        *self.0.lock().unwrap()
    }
}

#[tokio::test]
async fn only_urgent_jobs_are_claimed_under_pressure() {
    let engine = TestEngine::new().await;
    for priority in [0i16, 10, 20] {
        let options = BatchOptions {
            priority,
            ..BatchOptions::default()
        };
        engine
            .submit_with::<Copy>(&priority.unsigned_abs().into(), options)
            .await
            .unwrap();
    }
    let pressure = Arc::new(Set(Mutex::new(0.0)));
    let threshold = |pressure, admits| Threshold { pressure, admits };
    for (set, expected) in [
        (1.0, vec![]),
        (0.7, vec![20]),
        (0.5, vec![10, 20]),
        (0.1, vec![0, 10, 20]),
    ] {
        *pressure.0.lock().unwrap() = set;
        let mut worker = engine.worker();
        worker.settings(WorkerSettings {
            backpressure: Backpressure {
                sources: vec![pressure.clone()],
                thresholds: vec![
                    threshold(0.5, Admission::From(10)),
                    threshold(0.7, Admission::From(20)),
                    threshold(0.9, Admission::Nothing),
                ],
            },
            ..WorkerSettings::default()
        });
        worker.handle::<Copy, _, _>(|job: Job<u64>| async move { Ok::<_, JobError>(job.payload) });
        engine.drain(&mut worker).await;
        let mut values = engine.values::<Copy>().await;
        values.sort_unstable();
        assert_eq!(values, expected, "under a pressure of {set}");
    }
}

/// A pressure that admits only urgent jobs until it was asked a few times.
#[derive(Debug)]
struct Falling(AtomicUsize);

impl PressureSource for Falling {
    fn name(&self) -> &str {
        "falling"
    }

    fn pressure(&self) -> f64 {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => 0.7,
            _ => 0.0,
        }
    }
}

#[tokio::test]
async fn a_drain_under_pressure_waits_for_the_jobs_that_are_not_urgent() {
    let engine = TestEngine::new().await;
    engine.submit::<Copy>(&7).await.unwrap();
    let mut worker = engine.worker();
    worker.settings(WorkerSettings {
        backpressure: Backpressure {
            sources: vec![Arc::new(Falling(AtomicUsize::new(0)))],
            thresholds: vec![Threshold {
                pressure: 0.5,
                admits: Admission::From(10),
            }],
        },
        ..WorkerSettings::default()
    });
    worker.handle::<Copy, _, _>(|job: Job<u64>| async move { Ok::<_, JobError>(job.payload) });
    worker.until_empty().run().await.unwrap();
    assert_eq!(engine.values::<Copy>().await, [7]);
}

#[tokio::test]
async fn running_jobs_stay_within_the_budget_of_bytes() {
    for (budget, at_once) in [(100, 1), (130, 2), (1_000, 4)] {
        let engine = TestEngine::new().await;
        engine
            .submit_many::<Copy>(&[1, 2, 3, 4, 5, 6, 7, 8])
            .await
            .unwrap();
        let read = |read_bytes_per_s| IoRate {
            read_bytes_per_s,
            written_bytes_per_s: 0,
        };
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut worker = engine.worker();
        worker.settings(WorkerSettings {
            concurrency: 4,
            micro_batch_jobs_max: 1,
            io_budget: Some(read(budget)),
            io_rates: [("copy".into(), read(60))].into(),
            ..WorkerSettings::default()
        });
        let (counted, seen) = (running.clone(), most.clone());
        worker.handle::<Copy, _, _>(move |job: Job<u64>| {
            let (running, most) = (counted.clone(), seen.clone());
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // Waits until as many jobs run as may, and then long enough for one too many to begin.
                while most.load(Ordering::SeqCst) < at_once {
                    tokio::task::yield_now().await;
                }
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, JobError>(job.payload)
            }
        });
        assert_eq!(engine.drain(&mut worker).await.completed, 8);
        assert_eq!(most.load(Ordering::SeqCst), at_once, "with a budget of {budget}");
    }
}

/// An engine whose workers learn within milliseconds that their jobs were cancelled, and its folder.
async fn quick_engine() -> (Engine, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions {
        clock: Arc::new(ManualClock::new(Timestamp(1_000_000))),
        ..SqliteOptions::default()
    };
    let settings = EngineSettings {
        clock: options.clock.clone(),
        housekeeping: false,
        lease_lost_after_ms: 15,
        ..EngineSettings::default()
    };
    let store = SqliteStore::open(folder.path().join("jobs.db"), options).unwrap();
    (Engine::new(Arc::new(store), settings).await.unwrap(), folder)
}

#[tokio::test]
async fn a_cancelled_job_is_signalled_and_given_up_after_its_grace() {
    let (engine, _folder) = quick_engine().await;
    let polite = engine.submit::<Copy>(&1).await.unwrap();
    let deaf = engine.submit::<Copy>(&2).await.unwrap();
    let (heard, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (hears, begins) = (heard.clone(), begun.clone());
    let mut worker = engine.worker();
    worker.settings(WorkerSettings {
        concurrency: 2,
        micro_batch_jobs_max: 1,
        cancel_grace: Duration::from_millis(1),
        ..WorkerSettings::default()
    });
    let running = worker
        .handle::<Copy, _, _>(move |job: Job<u64>| {
            let (heard, begun) = (hears.clone(), begins.clone());
            async move {
                begun.fetch_add(1, Ordering::SeqCst);
                match job.payload {
                    1 => job.context.cancelled().await,
                    2 => std::future::pending().await,
                    _ => return Ok(job.payload),
                }
                assert!(job.context.is_cancelled());
                heard.fetch_add(1, Ordering::SeqCst);
                Err::<u64, _>(JobError::new("Stopped", "as asked"))
            }
        })
        .start();
    while begun.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    let both = Selection::Jobs(vec![polite, deaf]);
    assert_eq!(engine.change(both, Change::Cancel).await.unwrap().changed, 2);
    // Both slots are free for other jobs again.
    let others = engine.submit_many::<Copy>(&[3, 4, 5]).await.unwrap();
    for job in others {
        while engine.value::<Copy>(job).await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    }
    let summary = running.stop().await.unwrap();
    assert_eq!(heard.load(Ordering::SeqCst), 1);
    assert_eq!((summary.completed, summary.refused), (3, 2));
    for job in [polite, deaf] {
        let details = engine.job(job).await.unwrap().unwrap();
        assert_eq!(
            (details.row.state, details.failures.len()),
            (JobState::Cancelled, 0)
        );
    }
}

#[tokio::test]
async fn writes_of_a_job_are_committed_with_its_outcome() {
    let (engine, folder) = quick_engine().await;
    let connection = rusqlite::Connection::open(folder.path().join("jobs.db")).unwrap();
    connection
        .execute("CREATE TABLE copied (number INTEGER PRIMARY KEY)", [])
        .unwrap();
    let mut options = BatchOptions::default();
    options.retry.delay_ms = 0;
    for number in 1..=20 {
        engine
            .submit_with::<Copy>(&number, options.clone())
            .await
            .unwrap();
    }
    let mut worker = engine.worker();
    worker.handle::<Copy, _, _>(|job: Job<u64>| async move {
        let sql = "INSERT INTO copied SELECT value FROM json_each(?1)";
        job.context.write_with_report(sql, &job.payload)?;
        // Writes of a failed attempt do not happen. Otherwise the row would appear twice.
        if job.attempt == 1 && job.payload.is_multiple_of(3) {
            Err(JobError::new("Again", "not yet"))
        } else {
            Ok(job.payload)
        }
    });
    let summary = worker.until_empty().run().await.unwrap();
    assert_eq!((summary.completed, summary.failed), (20, 6));
    let (count, sum): (i64, i64) = connection
        .query_row("SELECT count(*), sum(number) FROM copied", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!((count, sum), (20, 210));
}

#[tokio::test]
async fn an_urgent_job_takes_the_slot_of_a_pausable_one() {
    let engine = TestEngine::new().await;
    let low = engine.submit::<Copy>(&1).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = order.clone();
    let mut worker = engine.worker();
    worker.concurrency(1).preempt_from(50).pausable(Copy::NAME);
    let running = worker
        .handle::<Copy, _, _>(move |job: Job<u64>| {
            let order = seen.clone();
            async move {
                let first = {
                    let mut order = order.lock().unwrap();
                    order.push(job.payload);
                    order.len() == 1
                };
                if first {
                    job.context.pausing().await;
                    return Err(job.context.give_back());
                }
                Ok::<_, JobError>(job.payload)
            }
        })
        .start();
    while order.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    // The first priority is not urgent enough, and the second one is.
    for (payload, priority) in [(2, 49), (3, 50)] {
        let options = BatchOptions {
            priority,
            ..BatchOptions::default()
        };
        engine.submit_with::<Copy>(&payload, options).await.unwrap();
    }
    while engine.values::<Copy>().await.len() < 3 {
        tokio::task::yield_now().await;
    }
    running.stop().await.unwrap();
    let order = order.lock().unwrap().clone();
    assert_eq!(order[..2], [1, 3], "{order:?}");
    assert_eq!(order.iter().filter(|payload| **payload == 1).count(), 2);
    let details = engine.job(low).await.unwrap().unwrap();
    assert_eq!(
        (details.row.attempt, details.failures.len()),
        (1, 0),
        "it was not charged"
    );
}

#[tokio::test]
async fn a_worker_that_is_asked_to_drain_ends_its_job_releases_the_rest_and_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("jobs.db"), SqliteOptions::default()).unwrap();
    let engine = Engine::new(Arc::new(store), EngineSettings::default())
        .await
        .unwrap();
    let jobs = engine.submit_many::<Copy>(&[1, 2, 3]).await.unwrap();
    let (gate, begun) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (closed, begins) = (gate.clone(), begun.clone());
    let mut worker = engine.worker();
    worker.settings(WorkerSettings {
        concurrency: 1,
        micro_batch_jobs_max: 1,
        ..WorkerSettings::default()
    });
    let running = worker
        .handle::<Copy, _, _>(move |job: Job<u64>| {
            let (gate, begun) = (closed.clone(), begins.clone());
            async move {
                begun.add_permits(1);
                let _open = gate.acquire().await;
                Ok::<_, JobError>(job.payload)
            }
        })
        .start();
    let _begun = begun.acquire().await.unwrap();
    let states = async || {
        let mut states = Vec::new();
        for job in &jobs {
            states.push(engine.job(*job).await.unwrap().unwrap().row.state);
        }
        states
    };
    let registered = engine.store().workers().await.unwrap().remove(0);
    assert!(engine.store().drain_worker(registered.id).await.unwrap());
    // The answer to the first heartbeat asks the worker to drain. At its second heartbeat it has read that answer.
    let mut heartbeats = BTreeSet::new();
    while heartbeats.len() < 3 {
        heartbeats.insert(engine.store().workers().await.unwrap()[0].heartbeat_at);
        tokio::task::yield_now().await;
    }
    let waiting = JobState::Waiting;
    assert_eq!(states().await, [JobState::Running, waiting, waiting]);
    gate.add_permits(3);
    let summary = running.join().await.unwrap();
    assert_eq!((summary.completed, summary.failed, summary.refused), (1, 0, 0));
    assert_eq!(states().await, [JobState::Completed, waiting, waiting]);
    assert!(engine.store().workers().await.unwrap().is_empty());
}
