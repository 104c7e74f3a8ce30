//! The channel between a running job and its worker.

use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_model::limits::{VALUE_BYTES_MAX, WRITES_PER_JOB_MAX};
use gristmill_model::{
    BatchId, ChildBatch, JobError, JobId, JobLabels, Positions, Progress, ReportWrite, Siblings, Timestamp,
    TraceParent,
};
use serde::Serialize;

use crate::handler::micro_batch::{JobOrigin, MicroBatchJob};
use crate::io::IoCounter;
use crate::progress::ProgressBoard;
use crate::signals::Signals;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};

/// The state that the jobs of one running micro-batch share with their worker.
#[derive(Debug)]
pub(crate) struct DeliveryContext {
    pub board: ProgressBoard,
    pub io: IoCounter,
    pub signals: Signals,
    pub writes: Writes,
    pub siblings: SpawnedSiblings,
}

/// A statement, and a job's data for it.
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

    /// Whether any job ever wanted anything.
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

    /// Whether any job ever spawned any.
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

/// A running job's way to its worker. Cheap to clone; it may be kept and used by other tasks while the job runs.
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

    /// The job's id. It is the same on every attempt, and no other job of the store ever has it.
    pub fn id(&self) -> JobId {
        self.job
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The job's deduplication key, where it has one.
    pub fn key(&self) -> Option<String> {
        self.labels()?.key_of(self.job.position)
    }

    /// The batch that the job was submitted in.
    pub fn batch(&self) -> BatchId {
        self.job.batch
    }

    /// The job's kind.
    pub fn kind(&self) -> &str {
        &self.origin.slice().kind
    }

    /// The queue that the job was submitted to.
    pub fn queue(&self) -> &str {
        &self.origin.slice().queue
    }

    /// Whose job it is, where that was said.
    pub fn group(&self) -> Option<&str> {
        self.origin.slice().group.as_deref()
    }

    /// The job's tags.
    pub fn tags(&self) -> BTreeMap<String, String> {
        let labels = self.labels();
        labels.map_or_else(BTreeMap::new, |labels| labels.tags_of(self.job.position))
    }

    /// The moment by which the job has to have completed, where it was submitted with
    /// [`complete_within_ms`](gristmill_model::BatchOptions::complete_within_ms): it is not tried again after it. By the
    /// store's clock.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.origin.slice().deadline
    }

    /// The parent for spans of the job, where its submitter gave a trace: the worker's span that the job runs in, or the submit's
    /// span where the worker exports none.
    pub fn traceparent(&self) -> Option<TraceParent> {
        self.origin.traceparent()
    }

    fn labels(&self) -> Option<&JobLabels> {
        self.origin.slice().labels.as_deref()
    }

    /// Says how far the job is. May be called as often as one likes: it is told about once a second, together with that
    /// of all jobs of the worker.
    pub fn progress(&self, progress: Progress) {
        if let Some(delivery) = &self.delivery {
            delivery.board.say(self.job, self.attempt, progress);
        }
    }

    /// Says how many bytes the job has read and written since it said so last. A worker with a budget starts no more of
    /// its kind than fit into that.
    pub fn moved(&self, read_bytes: u64, written_bytes: u64) {
        if let Some(delivery) = &self.delivery {
            delivery.io.add(read_bytes, written_bytes);
        }
    }

    /// Has something written in the transaction of the job's report, into tables of the program's own in the store's
    /// database: once, if and when the job is stored as completed, and not at all otherwise. What a later attempt does not
    /// ask for again is not written.
    ///
    /// `sql` is an INSERT, UPDATE or DELETE with one parameter. It is carried out once for all jobs of a report that give it
    /// something, and takes a JSON array of what they give, as with `INSERT INTO seen (id) SELECT value ->> 'id' FROM
    /// json_each(?1)` on SQLite, or `… FROM jsonb_to_recordset($1) AS t (id int)` on PostgreSQL. Where it fails, the job has
    /// failed with what the database says, and is tried again by its policy. Only workers on the store itself can do this.
    ///
    /// # Errors
    ///
    /// If the data is not JSON, or exceeds a limit.
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
                "{bytes} bytes for one statement; the limit is {VALUE_BYTES_MAX}"
            )));
        }
        match &self.delivery {
            Some(delivery) => delivery.writes.add(self.job, (sql.into(), item)),
            None => Err(refused("the handler runs without a worker".to_owned())),
        }
    }

    /// Spawns siblings: further children of the job's own parent, one a payload, which the parent waits for too. They are
    /// stored with the job's report if and when it completes, so that the parent never finalizes without them, and not at
    /// all otherwise; what a later attempt does not spawn again is not there. Where the parent does not wait any more,
    /// since it is over or this job was retried by hand, they are left out. May be called several times.
    ///
    /// A job that was not spawned by another one has failed for good when it completes with siblings, and so has one that
    /// [waits](crate::handler::family::Step::Wait) for children of its own: it may spawn siblings when it finalizes.
    ///
    /// # Errors
    ///
    /// If a payload is invalid, or exceeds a limit.
    pub fn spawn_siblings<P: Serialize>(
        &self,
        kind: &str,
        payloads: impl IntoIterator<Item = P>,
    ) -> Result<(), JobError> {
        let batches = ChildBatch::of(kind, payloads);
        let refused = |error| JobError::new("siblings", format!("a payload: {error}")).permanent();
        self.add_siblings(batches.map_err(refused)?)
    }

    /// The same, with options of their own.
    ///
    /// # Errors
    ///
    /// If the data cannot be stored.
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

    /// Forgets the siblings of a job that does not complete. Whether there were any.
    pub(crate) fn forget_siblings(&self) -> bool {
        let used = self
            .delivery
            .as_ref()
            .filter(|delivery| delivery.siblings.is_used());
        used.is_some_and(|delivery| delivery.siblings.forget(self.job))
    }

    /// Whether the job was cancelled while it runs: its outcome will be refused, so it should end soon. It is given up
    /// after the worker's `cancel_grace`.
    pub fn is_cancelled(&self) -> bool {
        self.delivery
            .as_ref()
            .is_some_and(|delivery| delivery.signals.is_cancelled(self.job))
    }

    /// Resolves when the job is cancelled. Await it concurrently with the job's work.
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

    /// Whether something more urgent needs the slot, and the job may [give itself back](JobContext::give_back).
    pub fn is_pausing(&self) -> bool {
        self.delivery
            .as_ref()
            .is_some_and(|delivery| delivery.signals.is_pausing())
    }

    /// Resolves when a more urgent job needs the slot. Await it concurrently with the job's work.
    pub async fn pausing(&self) {
        match &self.delivery {
            Some(delivery) => delivery.signals.until(Signals::is_pausing).await,
            None => std::future::pending().await,
        }
    }

    /// Gives the job back uncharged, to be run again from its beginning, in its old place in line: the handler returns the
    /// error that this returns.
    pub fn give_back(&self) -> JobError {
        if let Some(delivery) = &self.delivery {
            delivery.signals.give_back(self.job);
        }
        JobError::new("paused", "it yielded to a more urgent job")
    }

    /// Whether it was given back.
    pub(crate) fn take_given_back(&self) -> bool {
        self.delivery
            .as_ref()
            .is_some_and(|delivery| delivery.signals.take_given_back(self.job))
    }

    /// Resolves when the job was cancelled and its grace is over.
    pub(crate) async fn given_up(&self) {
        self.cancelled().await;
        if let Some(delivery) = &self.delivery {
            delivery.signals.grace().await;
        }
    }
}
