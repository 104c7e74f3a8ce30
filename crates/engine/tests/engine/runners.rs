//! Handlers whose runners can take no jobs for a while, for example because the processes of a script cannot start.
#![cfg(feature = "testing")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use gristmill_engine::testing::TestEngine;
use gristmill_engine::{Capacity, Handler, Job, JobError, Kind};
use gristmill_model::{Completed, NewBatch, PackedArray};
use gristmill_store::JobFilter;
use gristmill_worker::{MicroBatch, OutcomeSink, Outcomes, RunnerChange, RunnerListener};
use tokio::sync::mpsc;

struct Square;

impl Kind for Square {
    const NAME: &'static str = "square";
    type Payload = i64;
    type Value = i64;
}

/// Goes out at its first call, and gives its jobs back until it returns.
struct Fickle {
    listener: Mutex<Option<RunnerListener>>,
    is_out: AtomicBool,
    calls: AtomicU32,
    /// The change that it reports when it goes out.
    change: RunnerChange,
    went_out: mpsc::UnboundedSender<()>,
}

impl Fickle {
    fn new(change: RunnerChange) -> (Arc<Fickle>, mpsc::UnboundedReceiver<()>) {
        let (went_out, goes_out) = mpsc::unbounded_channel();
        let fickle = Fickle {
            listener: Mutex::default(),
            is_out: AtomicBool::new(false),
            calls: AtomicU32::new(0),
            change,
            went_out,
        };
        (Arc::new(fickle), goes_out)
    }

    fn tell(&self, change: RunnerChange) {
        self.listener.lock().unwrap().as_ref().unwrap().tell(change);
    }
}

#[async_trait]
impl Handler for Fickle {
    async fn run(&self, _: usize, work: MicroBatch, sink: &dyn OutcomeSink) {
        if self.calls.fetch_add(1, Ordering::SeqCst) == 0 {
            self.is_out.store(true, Ordering::SeqCst);
            self.tell(self.change.clone());
            let _ = self.went_out.send(());
        }
        let mut outcomes = Outcomes::default();
        if self.is_out.load(Ordering::SeqCst) {
            outcomes.returned = work.indexes()
        } else {
            outcomes.completed = Some(Completed {
                positions: work.indexes(),
                values: work.payloads().clone(),
                durations_us: vec![1; work.jobs_count() as usize],
            })
        }
        sink.answer(outcomes);
    }

    fn capacity(&self) -> Capacity {
        Capacity {
            runners: Some(1),
            ..Capacity::default()
        }
    }

    fn listen(&self, listener: RunnerListener) {
        *self.listener.lock().unwrap() = Some(listener);
    }
}

async fn submit(engine: &TestEngine) {
    let jobs = NewBatch::new("fickle".to_owned(), PackedArray::parse("[1,2,3]").unwrap());
    engine.submit_batches(vec![jobs]).await.unwrap();
}

#[tokio::test]
async fn a_drain_gives_back_what_no_runner_can_take_runs_the_rest_and_waits_for_the_runners() {
    let engine = TestEngine::new().await;
    submit(&engine).await;
    for payload in 0..3 {
        engine.submit::<Square>(&payload).await.unwrap();
    }
    let (fickle, mut goes_out) = Fickle::new(RunnerChange::Out(0));
    let (squared, mut squares) = mpsc::unbounded_channel();
    let mut worker = engine.worker();
    worker.concurrency(2).until_empty();
    worker.handler("fickle", fickle.clone());
    worker.handle::<Square, _, _>(move |job: Job<i64>| {
        let squared = squared.clone();
        async move {
            let _ = squared.send(());
            Ok::<_, JobError>(job.payload * job.payload)
        }
    });
    let running = worker.start();
    goes_out.recv().await.unwrap();
    for _ in 0..3 {
        squares.recv().await.unwrap();
    }
    fickle.is_out.store(false, Ordering::SeqCst);
    fickle.tell(RunnerChange::Back(0));
    let summary = running.join().await.unwrap();
    assert_eq!((summary.completed, summary.failed), (6, 0));
    let counts = engine.store().counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.completed, counts.total()), (6, 6));
}

#[tokio::test]
async fn a_worker_whose_handler_fails_gives_back_what_it_holds_and_ends_with_the_reason() {
    let engine = TestEngine::new().await;
    submit(&engine).await;
    let (fickle, mut goes_out) = Fickle::new(RunnerChange::Failed("no process starts".to_owned()));
    let mut worker = engine.worker();
    worker.concurrency(2).handler("fickle", fickle);
    let running = worker.start();
    goes_out.recv().await.unwrap();
    let error = running.join().await.unwrap_err();
    assert_eq!(error.message, "no process starts");
    let counts = engine.store().counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.waiting, counts.total()), (3, 3));
    // No job was charged: they run on their first attempt.
    let (steady, _goes_out) = Fickle::new(RunnerChange::Out(0));
    steady.calls.store(1, Ordering::SeqCst);
    let mut worker = engine.worker();
    worker.handler("fickle", steady);
    let summary = engine.drain(&mut worker).await;
    assert_eq!((summary.completed, summary.failed), (3, 0));
}
