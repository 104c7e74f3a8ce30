//! Tests of a worker's registration.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_batching::BatchStats;
use gristmill_model::{BatchId, JobProgress, LeaseId, Positions, Report, SystemClock};
use gristmill_store::{ChildOutcome, Exchanged, Heartbeat, Want};
use gristmill_worker::{
    Job, NoObserver, Source, SourceError, SourceErrorKind, Worker, WorkerSettings, job_handler,
};
use tokio::sync::Notify;

/// A source without jobs. It answers by a script, and notes the requests.
#[derive(Default)]
struct Scripted {
    asked: Mutex<Vec<&'static str>>,
    /// The failures of the next registrations and exchanges. Later ones succeed.
    failures: Mutex<VecDeque<Option<SourceErrorKind>>>,
    /// The jobs that the worker asks for with its heartbeat, and why it gets none.
    idle: Mutex<Option<Want>>,
    asked_why: Notify,
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

    async fn heartbeat(
        &self,
        _: BatchStats,
        _: Vec<JobProgress>,
        idle: Option<Want>,
    ) -> Result<Heartbeat, SourceError> {
        if idle.is_some() {
            *self.idle.lock().unwrap() = idle;
            self.asked_why.notify_one();
        }
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

    async fn wait_for_work(&self) {
        std::future::pending().await
    }

    fn gives_all(&self) -> bool {
        true
    }
}

/// The answer to a claim is lost, and the source cannot register the worker at once. The worker that the source knows
/// may hold jobs that nobody runs, so it must not continue under its old registration.
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

/// A worker that runs nothing asks its source what holds jobs back.
#[tokio::test]
async fn a_worker_that_claims_in_vain_asks_why() {
    let source = Arc::new(Scripted::default());
    let settings = WorkerSettings {
        queues: vec!["mails".into()],
        heartbeat_every: Duration::from_millis(1),
        asks_why_after: Duration::ZERO,
        ..WorkerSettings::default()
    };
    let mut worker = Worker::new(
        source.clone(),
        settings,
        Arc::new(NoObserver),
        Arc::new(SystemClock),
    );
    worker.handle(
        "mail",
        job_handler(|job: Job<u32>| async move { Ok(job.payload) }),
    );
    tokio::select! {
        ended = worker.run() => panic!("nothing ends the worker: {ended:?}"),
        () = source.asked_why.notified() => {}
    }
    let idle = source.idle.lock().unwrap().clone().unwrap();
    assert_eq!(
        (idle.queues, idle.kinds),
        (vec!["mails".into()], vec!["mail".into()])
    );
}
