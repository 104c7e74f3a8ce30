//! Tests that a worker which is asked to stop comes to its end, whatever its jobs and its source do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_batching::BatchStats;
use gristmill_model::{
    BatchId, JobProgress, Lease, LeaseId, LeasedSlice, PackedArray, Positions, Receipt, Report, RetryPolicy,
    SystemClock, Timestamp,
};
use gristmill_store::{ChildOutcome, Exchanged, Heartbeat, Want};
use gristmill_worker::{Job, NoObserver, Source, SourceError, Worker, WorkerSettings, job_handler};
use tokio::sync::{mpsc, watch};

const LEASE: LeaseId = LeaseId(1);
const BATCH: BatchId = BatchId(1);

/// A source with one job. It answers until it falls silent, and passes the reports on.
struct OneJob {
    is_given: AtomicBool,
    is_silent: watch::Sender<bool>,
    reports: mpsc::UnboundedSender<Report>,
}

impl OneJob {
    fn new() -> (Arc<OneJob>, mpsc::UnboundedReceiver<Report>) {
        let (reports, reported) = mpsc::unbounded_channel();
        let source = OneJob {
            is_given: AtomicBool::new(false),
            is_silent: watch::Sender::new(false),
            reports,
        };
        (Arc::new(source), reported)
    }

    async fn answer(&self) {
        if *self.is_silent.borrow() {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Source for OneJob {
    async fn register(&self) -> Result<(), SourceError> {
        Ok(())
    }

    async fn exchange(&self, reports: Vec<Report>, want: Option<Want>) -> Result<Exchanged, SourceError> {
        self.answer().await;
        let receipts = reports.iter().map(|report| Receipt {
            accepted: report.positions(),
            ..Receipt::default()
        });
        let receipts = receipts.collect();
        for report in reports {
            let _ = self.reports.send(report);
        }
        let lease = (want.is_some() && !self.is_given.swap(true, Ordering::SeqCst)).then(|| Lease {
            id: LEASE,
            slices: vec![slice()],
        });
        Ok(Exchanged {
            receipts,
            lease,
            ..Exchanged::default()
        })
    }

    async fn heartbeat(
        &self,
        _: BatchStats,
        _: Vec<JobProgress>,
        _: Option<Want>,
    ) -> Result<Heartbeat, SourceError> {
        self.answer().await;
        Ok(Heartbeat {
            known: true,
            ..Heartbeat::default()
        })
    }

    async fn leave(&self, _: BatchStats) -> Result<(), SourceError> {
        self.answer().await;
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
        std::future::pending::<()>().await;
    }

    fn gives_all(&self) -> bool {
        true
    }
}

fn slice() -> LeasedSlice {
    LeasedSlice {
        lease: LEASE,
        batch: BATCH,
        kind: "work".into(),
        queue: "default".into(),
        group: None,
        payloads: PackedArray::parse("[7]").unwrap(),
        positions: Positions::from(0..1),
        attempt: 1,
        rescues: 0,
        timeout_ms: None,
        priority: 0,
        retry: RetryPolicy::default(),
        submitted_at: Timestamp(0),
        memos: None,
        deadline: None,
        labels: None,
        traceparent: None,
    }
}

/// A worker over the source. Its job begins and never ends. The receiver gets a signal at the beginning.
fn worker(source: Arc<OneJob>, grace: Option<Duration>) -> (Worker, mpsc::UnboundedReceiver<()>) {
    let (begun, begins) = mpsc::unbounded_channel();
    let settings = WorkerSettings {
        grace,
        ..WorkerSettings::default()
    };
    let mut worker = Worker::new(source, settings, Arc::new(NoObserver), Arc::new(SystemClock));
    worker.handle(
        "work",
        job_handler(move |_: Job<u32>| {
            let begun = begun.clone();
            async move {
                let _ = begun.send(());
                std::future::pending::<()>().await;
                Ok(0)
            }
        }),
    );
    (worker, begins)
}

#[tokio::test]
async fn after_its_grace_a_running_job_is_released_uncharged() {
    let (source, mut reported) = OneJob::new();
    let (worker, mut begins) = worker(source, Some(Duration::from_millis(50)));
    let stopper = worker.stopper();
    let running = tokio::spawn(worker.run());
    begins.recv().await.unwrap();
    stopper.stop();
    let summary = running.await.unwrap().unwrap();
    assert_eq!(summary.failed, 0);
    let report = reported.recv().await.unwrap();
    assert_eq!(report.released, Positions::from(0..1));
    assert!(report.failed.is_empty());
}

#[tokio::test]
async fn a_source_that_fell_silent_does_not_keep_a_worker_that_stops() {
    let (source, mut reported) = OneJob::new();
    let (worker, mut begins) = worker(source.clone(), Some(Duration::from_millis(50)));
    let stopper = worker.stopper();
    let running = tokio::spawn(worker.run());
    begins.recv().await.unwrap();
    source.is_silent.send_replace(true);
    stopper.stop();
    let error = running.await.unwrap().unwrap_err();
    assert!(error.message.contains("these jobs run again"), "{error}");
    assert!(reported.try_recv().is_err());
}
