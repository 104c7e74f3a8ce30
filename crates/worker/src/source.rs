//! Sources of leases.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_batching::BatchStats;
use gristmill_model::limits::{LEASE_JOBS_MAX, heartbeat_every_ms};
use gristmill_model::{BatchId, Followed, JobId, JobProgress, LeaseId, Positions, Printed, Report, WorkerId};
use gristmill_store::family::{ChildReader, StepPlace};
use gristmill_store::rules::admission::held_back::held_back;
use gristmill_store::{ChildOutcome, Exchanged, Heartbeat, NewWorker, Store, StoreError, Want, WorkSeen};
use tokio::sync::RwLock;

use crate::handler::flow::place::step_of;

/// The remedy for an error of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceErrorKind {
    /// A later try can help.
    Transient,
    /// The source does not know the worker. The worker registers again, and its leases are lost.
    Unregistered,
    /// Nothing helps. The worker ends.
    Fatal,
}

/// The error of a source.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// The problem and the remedy.
    pub message: String,
    /// The remedy.
    pub kind: SourceErrorKind,
}

impl From<StoreError> for SourceError {
    fn from(error: StoreError) -> Self {
        let kind = match error {
            StoreError::Locked { .. } | StoreError::Panicked(_) | StoreError::Unreachable { .. } => {
                SourceErrorKind::Transient
            }
            // The store may have made a claim that nobody knows of. The worker registers as a new one, so that the
            // leases of the old one are lost, and the claim with them.
            StoreError::WorkerUnknown(_) | StoreError::Unknown { .. } => SourceErrorKind::Unregistered,
            _ => SourceErrorKind::Fatal,
        };
        SourceError {
            message: error.to_string(),
            kind,
        }
    }
}

/// A source of leases: a store, or a server over HTTP.
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// Receives the queues and kinds of the worker before it registers. The registration names them.
    fn will_serve(&self, queues: Vec<Arc<str>>, kinds: Vec<Arc<str>>) {
        let _ = (queues, kinds);
    }

    /// Registers the worker. The worker calls it at the start, and again if the source has forgotten it.
    async fn register(&self) -> Result<(), SourceError>;

    /// Commits reports and claims leases, in one round trip and one transaction.
    async fn exchange(&self, reports: Vec<Report>, want: Option<Want>) -> Result<Exchanged, SourceError>;

    /// Sends a heartbeat. `stats` has the batches of the worker's hops since the last call. `progress` has the progress
    /// of its jobs, if there is news. `idle` is the claim of an idle worker that asks why it gets no jobs. The answer
    /// says what holds such jobs back.
    async fn heartbeat(
        &self,
        stats: BatchStats,
        progress: Vec<JobProgress>,
        idle: Option<Want>,
    ) -> Result<Heartbeat, SourceError>;

    /// Sends the output of followed jobs. Lost output still appears in the logs of the jobs.
    async fn put_output(&self, printed: Vec<Printed>) -> Result<(), SourceError> {
        let _ = printed;
        Ok(())
    }

    /// Resolves with all followed jobs when the source has learned of changed followers without a heartbeat.
    async fn followed(&self) -> Vec<Followed> {
        std::future::pending().await
    }

    /// Unregisters the worker. The source releases its jobs without charging an attempt.
    async fn leave(&self, stats: BatchStats) -> Result<(), SourceError>;

    /// The outcomes of the children of jobs that this worker holds to finalize. The lists are in the order of the positions.
    async fn children(
        &self,
        lease: LeaseId,
        batch: BatchId,
        parents: &Positions,
    ) -> Result<Vec<Vec<ChildOutcome>>, SourceError>;

    /// The outcomes of the prerequisites of a job that this worker holds, in the order in which its submit named their batches.
    async fn prerequisites(&self, job: JobId) -> Result<Vec<ChildOutcome>, SourceError> {
        Err(unasked("the prerequisites", job))
    }

    /// The place of a job that this worker holds in the flow that began it; `None` if no flow did.
    async fn step(&self, job: JobId) -> Result<Option<StepPlace>, SourceError> {
        Err(unasked("the flow", job))
    }

    /// Resolves when there may be new jobs to claim.
    async fn wait_for_work(&self);

    /// Waits like [`wait_for_work`](Source::wait_for_work), with a claim. If the source claims for the worker
    /// meanwhile, returns what an [`exchange`](Source::exchange) would have claimed. Returns `None` if the worker
    /// should look by itself. When the worker stops waiting, the jobs claimed for it go back.
    async fn wait_for_claim(&self, want: Option<Want>) -> Option<Exchanged> {
        let _ = want;
        self.wait_for_work().await;
        None
    }

    /// Reports whether a claim that got less than it asked for got all claimable jobs, up to the limits of a lease.
    /// Otherwise the worker asks again at once.
    fn gives_all(&self) -> bool {
        false
    }

    /// The largest number of jobs that one claim gets, whatever the worker asks for.
    fn claim_jobs_max(&self) -> u32 {
        LEASE_JOBS_MAX
    }

    /// Notes that the worker was asked to stop and wants no more jobs. The source may give up requests without a report.
    fn stop(&self) {}

    /// The interval at which the source expects heartbeats of the registered worker. `None` if the source does not set it.
    fn heartbeat_every(&self) -> Option<Duration> {
        None
    }
}

fn unasked(what: &str, job: JobId) -> SourceError {
    SourceError {
        message: format!("this source does not tell {what} of job {job}"),
        kind: SourceErrorKind::Fatal,
    }
}

/// A store as a source.
#[derive(Debug)]
pub struct StoreSource {
    store: Arc<dyn Store>,
    worker: Mutex<NewWorker>,
    lease_lost_after_ms: i64,
    id: RwLock<Option<WorkerId>>,
    work_seen: WorkSeen,
    children: ChildReader,
}

impl StoreSource {
    /// A worker of this process on `store`. It is not registered yet. Its leases are lost after this time without a
    /// heartbeat.
    pub fn new(store: Arc<dyn Store>, worker: NewWorker, lease_lost_after_ms: i64) -> Self {
        StoreSource {
            store,
            worker: Mutex::new(worker),
            lease_lost_after_ms,
            id: RwLock::new(None),
            work_seen: WorkSeen::default(),
            children: ChildReader::default(),
        }
    }

    fn worker(&self) -> MutexGuard<'_, NewWorker> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn id(&self) -> Result<WorkerId, SourceError> {
        let id = *self.id.read().await;
        id.ok_or_else(|| SourceError {
            message: "the worker is not registered".to_owned(),
            kind: SourceErrorKind::Unregistered,
        })
    }
}

#[async_trait]
impl Source for StoreSource {
    fn will_serve(&self, queues: Vec<Arc<str>>, kinds: Vec<Arc<str>>) {
        let mut worker = self.worker();
        (worker.queues, worker.kinds) = (queues, kinds);
    }

    async fn register(&self) -> Result<(), SourceError> {
        let worker = self.worker().clone();
        let id = self.store.register_worker(worker).await?;
        *self.id.write().await = Some(id);
        Ok(())
    }

    async fn exchange(&self, reports: Vec<Report>, want: Option<Want>) -> Result<Exchanged, SourceError> {
        Ok(self.store.exchange(self.id().await?, reports, want).await?)
    }

    async fn heartbeat(
        &self,
        stats: BatchStats,
        progress: Vec<JobProgress>,
        idle: Option<Want>,
    ) -> Result<Heartbeat, SourceError> {
        if !progress.is_empty() {
            self.store.put_progress(self.id().await?, progress).await?;
        }
        let mut heartbeat = self.store.heartbeat(self.id().await?, stats).await?;
        if let Some(want) = &idle {
            heartbeat.held_back = held_back(&*self.store, want).await;
        }
        Ok(heartbeat)
    }

    async fn put_output(&self, printed: Vec<Printed>) -> Result<(), SourceError> {
        self.store.put_output(self.id().await?, printed).await?;
        Ok(())
    }

    async fn leave(&self, stats: BatchStats) -> Result<(), SourceError> {
        Ok(self.store.leave(self.id().await?, stats).await?)
    }

    async fn children(
        &self,
        _: LeaseId,
        batch: BatchId,
        parents: &Positions,
    ) -> Result<Vec<Vec<ChildOutcome>>, SourceError> {
        Ok(self.children.outcomes(&*self.store, batch, parents).await?)
    }

    async fn prerequisites(&self, job: JobId) -> Result<Vec<ChildOutcome>, SourceError> {
        let read = self.children.prerequisites(&*self.store, job).await?;
        read.map_err(|unread| SourceError {
            message: unread.to_string(),
            kind: SourceErrorKind::Fatal,
        })
    }

    async fn step(&self, job: JobId) -> Result<Option<StepPlace>, SourceError> {
        Ok(step_of(&*self.store, job).await?)
    }

    async fn wait_for_work(&self) {
        self.store.wait_for_work(&self.work_seen).await;
    }

    async fn wait_for_claim(&self, want: Option<Want>) -> Option<Exchanged> {
        if let Some(want) = want
            && let Ok(worker) = self.id().await
        {
            return self.store.wait_for_claim(worker, want, &self.work_seen).await;
        }
        self.wait_for_work().await;
        None
    }

    fn gives_all(&self) -> bool {
        true
    }

    fn heartbeat_every(&self) -> Option<Duration> {
        let every_ms = heartbeat_every_ms(self.lease_lost_after_ms);
        Some(Duration::from_millis(every_ms.unsigned_abs().max(1)))
    }
}
