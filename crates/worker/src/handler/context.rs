//! The channel from a running job to its worker.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use gristmill_model::limits::{VALUE_BYTES_MAX, WRITES_PER_JOB_MAX};
use gristmill_model::{
    BatchId, ChildBatch, JobError, JobId, JobLabels, Positions, Progress, ReportWrite, Siblings, Timestamp,
    TraceParent,
};
use gristmill_store::ChildOutcome;
use gristmill_store::family::StepPlace;
use serde::Serialize;

use crate::handler::micro_batch::{JobOrigin, MicroBatchJob};
use crate::io::IoCounter;
use crate::progress::ProgressBoard;
use crate::signals::Signals;
use crate::source::{Source, SourceError, SourceErrorKind};
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};

/// The error of a job whose question about this has no answer.
fn unread(about: &str, error: &SourceError) -> JobError {
    let failed = JobError::new(about, error.message.clone());
    match error.kind {
        SourceErrorKind::Transient => failed,
        SourceErrorKind::Unregistered | SourceErrorKind::Fatal => failed.permanent(),
    }
}

/// The state that the jobs of one running micro-batch share with their worker.
#[derive(Debug)]
pub(crate) struct DeliveryContext {
    pub board: ProgressBoard,
    pub io: IoCounter,
    pub signals: Signals,
    pub writes: Writes,
    pub siblings: SpawnedSiblings,
    pub source: JobsSource,
}

/// The source that the jobs ask. It is known once they run.
#[derive(Default)]
pub(crate) struct JobsSource(OnceLock<Arc<dyn Source>>);

impl JobsSource {
    pub fn set(&self, source: Arc<dyn Source>) {
        let _ = self.0.set(source);
    }
}

impl std::fmt::Debug for JobsSource {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("JobsSource")
    }
}

/// A statement, and the data of one job for it.
type Write = (Arc<str>, String);

/// The SQL statements that running jobs add to their reports.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    used: AtomicBool,
    by_job: Mutex<BTreeMap<JobId, Vec<Write>>>,
}

impl Writes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, Vec<Write>>> {
        lock(&self.by_job)
    }

    /// Reports whether any job ever added a statement.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    fn add(&self, job: JobId, write: Write) -> Result<(), JobError> {
        self.used.store(true, Ordering::Release);
        let mut by_job = self.lock();
        let writes = by_job.entry(job).or_default();
        if writes.len() >= WRITES_PER_JOB_MAX {
            let message = format!("a job writes at most {WRITES_PER_JOB_MAX} statements with its report");
            return Err(JobError::new("write", message).permanent());
        }
        writes.push(write);
        assert!(
            writes.len() <= WRITES_PER_JOB_MAX,
            "a job keeps at most {WRITES_PER_JOB_MAX} statements"
        );
        Ok(())
    }

    /// Drops the statements of a failed job.
    pub fn forget(&self, job: JobId) {
        self.lock().remove(&job);
    }

    /// Takes the statements of completed jobs of a batch.
    pub fn take(&self, batch: BatchId, completed: &Positions) -> Vec<ReportWrite> {
        let mut by_job = self.lock();
        let mut taken = Vec::new();
        for position in completed.iter() {
            for (sql, item) in by_job.remove(&JobId { batch, position }).into_iter().flatten() {
                taken.push(ReportWrite { position, sql, item });
            }
        }
        taken
    }
}

/// The siblings that running jobs spawned.
#[derive(Debug, Default)]
pub(crate) struct SpawnedSiblings {
    used: AtomicBool,
    by_job: Mutex<BTreeMap<JobId, Vec<ChildBatch>>>,
}

impl SpawnedSiblings {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, Vec<ChildBatch>>> {
        lock(&self.by_job)
    }

    /// Reports whether any job ever spawned siblings.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    fn add(&self, job: JobId, batches: Vec<ChildBatch>) -> Result<(), JobError> {
        self.used.store(true, Ordering::Release);
        let mut by_job = self.lock();
        let all = by_job.entry(job).or_default();
        let before = all.len();
        all.extend(batches);
        Siblings::one(job.position, all.clone()).check().map_err(|error| {
            all.truncate(before);
            JobError::new("siblings", error.to_string()).permanent()
        })
    }

    /// Drops the siblings of a job that did not complete. Returns whether there were any.
    pub fn forget(&self, job: JobId) -> bool {
        self.lock().remove(&job).is_some()
    }

    /// Takes the siblings of completed jobs of a batch.
    pub fn take(&self, batch: BatchId, completed: &Positions) -> Vec<Siblings> {
        let mut by_job = self.lock();
        let spawned = completed.iter().filter_map(|position| {
            let children = by_job.remove(&JobId { batch, position })?;
            Some(Siblings::one(position, children))
        });
        spawned.collect()
    }
}

/// The channel from a running job to its worker. Other tasks may keep and use a clone while the job runs.
#[derive(Debug, Clone)]
pub struct JobContext {
    job: JobId,
    attempt: u32,
    origin: JobOrigin,
    delivery: Option<Arc<DeliveryContext>>,
}

impl JobContext {
    pub(crate) fn new(job: &MicroBatchJob<'_>, delivery: Arc<DeliveryContext>) -> Self {
        JobContext {
            delivery: Some(delivery),
            ..JobContext::detached(job)
        }
    }

    /// A context without a worker, for handlers that are called directly.
    pub fn detached(job: &MicroBatchJob<'_>) -> Self {
        JobContext {
            job: job.id,
            attempt: job.attempt,
            origin: job.origin(),
            delivery: None,
        }
    }

    /// The id of the job. It is the same on every attempt, and no other job of the store ever has it.
    pub fn id(&self) -> JobId {
        self.job
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The deduplication key of the job, if it has one.
    pub fn key(&self) -> Option<String> {
        self.labels()?.key_of(self.job.position)
    }

    /// The batch of the job.
    pub fn batch(&self) -> BatchId {
        self.job.batch
    }

    /// The kind of the job.
    pub fn kind(&self) -> &str {
        &self.origin.slice().kind
    }

    /// The queue of the job.
    pub fn queue(&self) -> &str {
        &self.origin.slice().queue
    }

    /// The group of the job, if it has one.
    pub fn group(&self) -> Option<&str> {
        self.origin.slice().group.as_deref()
    }

    /// The tags of the job.
    pub fn tags(&self) -> BTreeMap<String, String> {
        let labels = self.labels();
        labels.map_or_else(BTreeMap::new, |labels| labels.tags_of(self.job.position))
    }

    /// The time by which the job must have completed, if its submitter set
    /// [`complete_within_ms`](gristmill_model::BatchOptions::complete_within_ms). The job is not tried again after this
    /// time. The store's clock counts.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.origin.slice().deadline
    }

    /// The parent for spans of the job, if its submitter gave a trace. It is the worker's span of the job, or the span
    /// of the submit if the worker exports no spans.
    pub fn traceparent(&self) -> Option<TraceParent> {
        self.origin.traceparent()
    }

    fn labels(&self) -> Option<&JobLabels> {
        self.origin.slice().labels.as_deref()
    }

    /// Reports the progress of the job. A job may call it as often as it likes. The worker passes the progress of all
    /// of its jobs on about once a second.
    pub fn progress(&self, progress: Progress) {
        if let Some(delivery) = &self.delivery {
            delivery.board.say(self.job, self.attempt, progress);
        }
    }

    /// Reports the bytes that the job has read and written since the last report. A worker with a budget starts only as
    /// many micro-batches of a kind as the budget allows.
    pub fn moved(&self, read_bytes: u64, written_bytes: u64) {
        if let Some(delivery) = &self.delivery {
            delivery.io.add(read_bytes, written_bytes);
        }
    }

    /// Adds a statement to the transaction of the job's report. It writes into the program's own tables in the store's
    /// database. It runs exactly once if the job is stored as completed, and never otherwise. A later attempt must add
    /// its statements again.
    ///
    /// `sql` is an INSERT, UPDATE or DELETE with one parameter. It runs once for all jobs of a report that use it. The
    /// parameter is a JSON array of their items, for example in `INSERT INTO seen (id) SELECT value ->> 'id' FROM
    /// json_each(?1)` on SQLite, or `… FROM jsonb_to_recordset($1) AS t (id int)` on PostgreSQL. If the statement
    /// fails, the job fails with the error of the database, and its retry policy decides. Only workers with direct
    /// access to the store can write.
    ///
    /// # Errors
    ///
    /// The item is not JSON, or exceeds a limit.
    pub fn write_with_report<T: Serialize + ?Sized>(
        &self,
        sql: impl Into<Arc<str>>,
        item: &T,
    ) -> Result<(), JobError> {
        let refused = |reason: String| JobError::new("write", reason).permanent();
        let item = serde_json::to_string(item).map_err(|error| refused(error.to_string()))?;
        if item.len() > VALUE_BYTES_MAX {
            let bytes = item.len();
            return Err(refused(format!(
                "the item of a statement has {bytes} bytes; the limit is {VALUE_BYTES_MAX}"
            )));
        }
        match &self.delivery {
            Some(delivery) => delivery.writes.add(self.job, (sql.into(), item)),
            None => Err(refused("the handler runs without a worker".to_owned())),
        }
    }

    /// Spawns siblings: further children of the job's own parent, one for each payload. The parent waits for them, too.
    /// They are stored with the job's report if the job completes, so the parent never finalizes without them.
    /// Otherwise they are dropped, and a later attempt must spawn them again. They are also dropped if the parent no
    /// longer waits, because it has ended or because this job was retried by hand. A job may call this several times.
    ///
    /// A job without a parent that completes with siblings fails for good. So does a job that
    /// [waits](crate::handler::family::Step::Wait) for its own children: it may spawn siblings when it finalizes.
    ///
    /// # Errors
    ///
    /// A payload is invalid, or exceeds a limit.
    pub fn spawn_siblings<P: Serialize>(
        &self,
        kind: &str,
        payloads: impl IntoIterator<Item = P>,
    ) -> Result<(), JobError> {
        let batches = ChildBatch::of(kind, payloads);
        let refused = |error| JobError::new("siblings", format!("a payload: {error}")).permanent();
        self.add_siblings(batches.map_err(refused)?)
    }

    /// Spawns siblings like [`spawn_siblings`](JobContext::spawn_siblings), with their own options.
    ///
    /// # Errors
    ///
    /// The siblings cannot be stored.
    pub fn spawn_sibling_batch(&self, siblings: ChildBatch) -> Result<(), JobError> {
        self.add_siblings(vec![siblings])
    }

    fn add_siblings(&self, batches: Vec<ChildBatch>) -> Result<(), JobError> {
        match &self.delivery {
            Some(delivery) => delivery.siblings.add(self.job, batches),
            None => {
                Err(JobError::new("siblings", "the handler runs without a worker".to_owned()).permanent())
            }
        }
    }

    /// Drops the siblings of a job that does not complete. Returns whether there were any.
    pub(crate) fn forget_siblings(&self) -> bool {
        let used = self
            .delivery
            .as_ref()
            .filter(|delivery| delivery.siblings.is_used());
        used.is_some_and(|delivery| delivery.siblings.forget(self.job))
    }

    /// Reads the outcomes of the job's prerequisites, in the order in which its submit named their batches: the values of
    /// [`after`](gristmill_model::NewBatch::after). They are read from the store when the job asks, once for the jobs of a batch as
    /// long as the worker keeps them.
    ///
    /// # Errors
    ///
    /// They exceed [`PREREQUISITES_BYTES_MAX`](gristmill_model::limits::PREREQUISITES_BYTES_MAX), were deleted, or cannot be read.
    pub async fn prerequisites(&self) -> Result<Vec<ChildOutcome>, JobError> {
        self.source()?
            .prerequisites(self.job)
            .await
            .map_err(|error| unread("prerequisites", &error))
    }

    /// Finds the flow that began the job as a step; `None` if no flow did.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub async fn step(&self) -> Result<Option<StepPlace>, JobError> {
        self.source()?
            .step(self.job)
            .await
            .map_err(|error| unread("flow", &error))
    }

    fn source(&self) -> Result<&Arc<dyn Source>, JobError> {
        let source = self
            .delivery
            .as_ref()
            .and_then(|delivery| delivery.source.0.get());
        source.ok_or_else(|| JobError::new("source", "the handler runs without a worker").permanent())
    }

    /// Reports whether the job was cancelled while it runs. Its outcome will be refused, so it should end soon. The
    /// worker abandons it after its `cancel_grace`.
    pub fn is_cancelled(&self) -> bool {
        self.delivery
            .as_ref()
            .is_some_and(|delivery| delivery.signals.is_cancelled(self.job))
    }

    /// Resolves when the job is cancelled. Await it beside the job's work.
    pub async fn cancelled(&self) {
        match &self.delivery {
            Some(delivery) => {
                delivery
                    .signals
                    .until(|signals| signals.is_cancelled(self.job))
                    .await
            }
            None => std::future::pending().await,
        }
    }

    /// Reports whether a more urgent job needs the slot. The job may then [give itself back](JobContext::give_back).
    pub fn is_pausing(&self) -> bool {
        self.delivery
            .as_ref()
            .is_some_and(|delivery| delivery.signals.is_pausing())
    }

    /// Resolves when a more urgent job needs the slot. Await it beside the job's work.
    pub async fn pausing(&self) {
        match &self.delivery {
            Some(delivery) => delivery.signals.until(Signals::is_pausing).await,
            None => std::future::pending().await,
        }
    }

    /// Gives the job back without charging an attempt. It later runs again from its beginning, from its old place in
    /// the queue. The handler must return the error that this function returns.
    pub fn give_back(&self) -> JobError {
        if let Some(delivery) = &self.delivery {
            delivery.signals.give_back(self.job);
        }
        JobError::new("paused", "the job made room for a more urgent job")
    }

    /// Reports whether the job was given back.
    pub(crate) fn take_given_back(&self) -> bool {
        self.delivery
            .as_ref()
            .is_some_and(|delivery| delivery.signals.take_given_back(self.job))
    }

    /// Resolves when the job was cancelled and its grace period has ended.
    pub(crate) async fn given_up(&self) {
        self.cancelled().await;
        if let Some(delivery) = &self.delivery {
            delivery.signals.grace().await;
        }
    }
}
