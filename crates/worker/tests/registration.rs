//! When a worker registers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use gristmill_batching::BatchStats;
use gristmill_model::{BatchId, JobProgress, LeaseId, Positions, Report, SystemClock};
use gristmill_store::{ChildOutcome, Exchanged, Heartbeat, Want};
use gristmill_worker::{
    Job, NoObserver, Source, SourceError, SourceErrorKind, Worker, WorkerSettings, job_handler,
};

/// A source without jobs that answers as it is told, and notes what it is asked.
#[derive(Default)]
struct Scripted {
    asked: Mutex<Vec<&'static str>>,
    /// How the next registrations and exchanges fail; those after them succeed.
    failures: Mutex<VecDeque<Option<SourceErrorKind>>>,
}

impl Scripted {
    fn answer(&self, asked: &'static str) -> Result<(), SourceError> {
        self.asked.lock().unwrap().push(asked);
        match self.failures.lock().unwrap().pop_front().flatten() {
            Some(kind) => Err(SourceError {
                message: format!("the script refuses to {asked}"),
                kind,
            }),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Source for Scripted {
    async fn register(&self) -> Result<(), SourceError> {
        self.answer("register")
    }

    async fn exchange(&self, _: Vec<Report>, _: Option<Want>) -> Result<Exchanged, SourceError> {
        self.answer("exchange").map(|()| Exchanged::default())
    }

    async fn heartbeat(&self, _: BatchStats, _: Vec<JobProgress>) -> Result<Heartbeat, SourceError> {
        Ok(Heartbeat {
            known: true,
            ..Heartbeat::default()
        })
    }

    async fn leave(&self, _: BatchStats) -> Result<(), SourceError> {
        Ok(())
    }

    async fn children(
        &self,
        _: LeaseId,
        _: BatchId,
        _: &Positions,
    ) -> Result<Vec<Vec<ChildOutcome>>, SourceError> {
        Ok(Vec::new())
    }

    async fn wait_for_work(&self) {}

    fn gives_all(&self) -> bool {
        true
    }
}

/// The answer to a claim is lost, and the source cannot register the worker at once. The worker that the source knows may
/// hold jobs that nobody runs: it must not go on as that one.
#[tokio::test]
async fn a_worker_that_cannot_register_anew_does_not_go_on_as_before() {
    let source = Arc::new(Scripted::default());
    *source.failures.lock().unwrap() = VecDeque::from([
        None,
        Some(SourceErrorKind::Unregistered),
        Some(SourceErrorKind::Transient),
        Some(SourceErrorKind::Transient),
    ]);
    let settings = WorkerSettings {
        until_empty: true,
        ..WorkerSettings::default()
    };
    let mut worker = Worker::new(
        source.clone(),
        settings,
        Arc::new(NoObserver),
        Arc::new(SystemClock),
    );
    worker.handle(
        "none",
        job_handler(|job: Job<u32>| async move { Ok(job.payload) }),
    );
    worker.run().await.unwrap();
    let asked = source.asked.lock().unwrap().join(" ");
    assert_eq!(asked, "register exchange register register register exchange");
}
