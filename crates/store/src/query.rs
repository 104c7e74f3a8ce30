//! Queries of a store, and their answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_batching::BatchStats;
use gristmill_model::limits::PAGE_ROWS_MAX;
use gristmill_model::{
    BatchId, BatchOptions, JobId, JobState, Positions, RunId, Scope, ShownProgress, TagCondition, Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::outcome::StoredFailure;

/// A filter of jobs. Conditions that are `None` or empty allow all jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobFilter {
    /// Allows jobs in one of these states.
    pub states: Vec<JobState>,
    /// Allows jobs of this kind.
    pub kind: Option<String>,
    /// Allows jobs on this queue.
    pub queue: Option<String>,
    /// Allows jobs of this group.
    pub group: Option<String>,
    /// Allows jobs of this run.
    pub run: Option<RunId>,
    /// Allows jobs of this batch.
    pub batch: Option<BatchId>,
    /// Allows jobs submitted at this time or later.
    pub submitted_since: Option<Timestamp>,
    /// Allows jobs submitted before this time.
    pub submitted_until: Option<Timestamp>,
    /// Allows the job with this deduplication key. The search reads the keys of all batches that have keys.
    pub key: Option<String>,
    /// Allows jobs whose deduplication key begins with this text. The search reads all keys too.
    pub key_prefix: Option<String>,
    /// Allows jobs with all of these tags.
    pub tags: Vec<TagCondition>,
    /// Allows the children of this job, including siblings that its children spawned.
    pub parent: Option<JobId>,
    /// Leaves out the steps of flows that have the kind of their flow, as those of scripts have.
    pub no_steps: bool,
}

impl JobFilter {
    /// Whether the filter selects batches by id, run or time, and not only by queue, kind and group. Only the rows of
    /// batches have these.
    pub fn names_batches(&self) -> bool {
        self.batch.is_some()
            || self.run.is_some()
            || self.submitted_since.is_some()
            || self.submitted_until.is_some()
    }

    /// Whether the filter distinguishes jobs of one batch by more than their states.
    pub fn tells_jobs_apart(&self) -> bool {
        self.key.is_some() || self.key_prefix.is_some() || !self.tags.is_empty() || self.parent.is_some()
    }
}

/// The jobs that the keys, tags and parent of a filter allow. The positions may include jobs that do not exist.
pub type Narrowed = BTreeMap<BatchId, Positions>;

/// Jobs of one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchPositions {
    /// The batch.
    pub batch: BatchId,
    /// The positions of the jobs.
    pub positions: Positions,
}

impl From<(BatchId, Positions)> for BatchPositions {
    fn from((batch, positions): (BatchId, Positions)) -> BatchPositions {
        BatchPositions { batch, positions }
    }
}

/// A value of a tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TagValue {
    /// The value.
    pub value: String,
    /// Number of jobs with this value.
    pub jobs: u64,
}

/// A selection of jobs to change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a change has one selection; nothing keeps many"
)]
pub enum Selection {
    /// These jobs.
    Jobs(Vec<JobId>),
    /// Those of these jobs that are in one of the states; all of them if no state is named. Each batch is named once.
    Packed {
        /// The jobs, as [`job_ids`](crate::Store::job_ids) returns them.
        jobs: Vec<BatchPositions>,
        /// Their states at the time of the change.
        states: Vec<JobState>,
    },
    /// All jobs that match a filter.
    Filter(JobFilter),
}

impl Selection {
    /// Whether a cancel spares what cleans up after cancelled flows, with its steps: it names no jobs and no batch, so it can be
    /// repeated, and means the flows.
    pub fn spares_cleanups(&self) -> bool {
        match self {
            Selection::Jobs(_) => false,
            Selection::Packed { .. } => true,
            Selection::Filter(filter) => filter.batch.is_none(),
        }
    }
}

impl From<JobId> for Selection {
    fn from(job: JobId) -> Selection {
        Selection::Jobs(vec![job])
    }
}

impl From<Vec<JobId>> for Selection {
    fn from(jobs: Vec<JobId>) -> Selection {
        Selection::Jobs(jobs)
    }
}

impl From<JobFilter> for Selection {
    fn from(filter: JobFilter) -> Selection {
        Selection::Filter(filter)
    }
}

/// A change of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Cancels jobs that have not ended. Running jobs end as cancelled at once: their lease loses them, their worker
    /// learns it by its next heartbeat, and its reports of them are refused. Cancelling a job that waits for its
    /// children also cancels its descendants, which are not counted.
    Cancel,
    /// Makes dead, cancelled or expired jobs claimable, with all their attempts: they begin with attempt 1 and keep
    /// their earlier failures. A job that had spawned children starts over and spawns others. A rejected job cannot run
    /// and stays dead. A step of a flow keeps its outcome: a retry that names one fails with
    /// [`StoreError::InvalidInput`](crate::StoreError::InvalidInput), and any other retry leaves it out.
    Retry,
    /// Ends dead jobs as cancelled: they no longer count as dead, and no longer protect their batch from a prune. They
    /// keep their failures, and can still be retried, except for rejected jobs.
    Discard,
    /// Changes the priority of jobs that have not ended, from their next claim on: running jobs keep it for a retry,
    /// release or rescue, and blocked jobs for the time when they can be claimed. A manual retry of an ended job
    /// restores its batch's priority.
    Prioritise(i16),
    /// Pauses jobs that have not ended, until they are resumed or the given time. Pauses with several reasons stack; a
    /// pause replaces an earlier one with the same reason. A running job continues, and is paused on a retry, release
    /// or rescue. Jobs that are submitted later are not paused: use [controls](crate::Store::put_controls) for that.
    /// Fails with [`StoreError::InvalidInput`](crate::StoreError::InvalidInput) for more than
    /// [`PAUSES_PER_JOB_MAX`](gristmill_model::limits::PAUSES_PER_JOB_MAX) reasons at a time.
    Pause {
        /// The reason, for people.
        reason: String,
        /// The end of the pause; when the jobs are resumed if `None`.
        until: Option<Timestamp>,
    },
    /// Ends the jobs' pauses with this reason (all their own pauses if `None`). Jobs without another pause become
    /// claimable in their old place in line. [`expire`](crate::Store::expire) ends pauses whose time has passed.
    Resume {
        /// The reason of the pauses.
        reason: Option<String>,
    },
}

impl Change {
    /// The states that the change applies to.
    pub fn states(&self) -> &'static [JobState] {
        match self {
            Change::Cancel | Change::Prioritise(_) | Change::Pause { .. } => &[
                JobState::Blocked,
                JobState::Waiting,
                JobState::Scheduled,
                JobState::Paused,
                JobState::Running,
            ],
            Change::Retry => &[JobState::Dead, JobState::Cancelled, JobState::Expired],
            Change::Discard => &[JobState::Dead],
            Change::Resume { .. } => &[JobState::Paused, JobState::Running],
        }
    }
}

/// A page of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Lists only jobs after this one.
    pub after: Option<JobId>,
    /// Maximum rows; at most [`PAGE_ROWS_MAX`].
    pub limit: u32,
}

/// The result of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Changed {
    /// Number of changed jobs.
    pub changed: u64,
    /// Number of jobs that were named and not changed, because they do not exist or are in another state.
    pub unchanged: u64,
}

/// One job in a listing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobRow {
    /// Its id.
    pub job: JobId,
    /// Its kind.
    pub kind: Arc<str>,
    /// Its queue.
    pub queue: Arc<str>,
    /// Its group, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<Arc<str>>,
    /// Its state.
    pub state: JobState,
    /// The current, last or next attempt, from 1; 0 if there was none and will be none.
    pub attempt: u32,
    /// Its priority. Jobs with a higher one are claimed first.
    pub priority: i16,
    /// The time of its submit.
    pub submitted_at: Timestamp,
    /// The time from which it can be claimed, while it waits.
    pub run_at: Option<Timestamp>,
    /// The time of its end.
    pub finished_at: Option<Timestamp>,
    /// The time of its claim, while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_at: Option<Timestamp>,
    /// Its progress, while it runs, as its handler reports it. Without a report, [`JobDetails`] has an estimate from
    /// other jobs of its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<ShownProgress>,
    /// The message of its last failure, unless it has completed since.
    pub error: Option<String>,
}

/// All data of one job.
#[derive(Debug, Clone, Serialize)]
pub struct JobDetails {
    /// The data of a listing.
    #[serde(flatten)]
    pub row: JobRow,
    /// Its payload.
    pub payload: Box<RawValue>,
    /// Its value, if it completed.
    pub value: Option<Box<RawValue>>,
    /// The options of its batch.
    pub options: BatchOptions,
    /// Its deduplication key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The pauses that hold it: its own, and those of its queue, kind and group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<JobPause>,
    /// Its tags.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Its first prerequisites that have not ended, while it is blocked: at most
    /// [`SHOWN_PREREQUISITES_MAX`](gristmill_model::limits::SHOWN_PREREQUISITES_MAX).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prerequisites: Vec<OpenPrerequisite>,
    /// The prerequisite that did not complete, which is why this job was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<FailedPrerequisite>,
    /// The job that spawned it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
    /// The children that it spawned last, by state. It waits for them while it is blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children: Option<JobCounts>,
    /// The duration of its last attempt, in microseconds.
    pub duration_us: Option<u32>,
    /// The worker that holds it or ended it.
    pub worker: Option<Arc<str>>,
    /// Its failed attempts, oldest first.
    pub failures: Vec<StoredFailure>,
    /// The log of its last attempt, unless it failed (a failure has its own log).
    pub log: Option<String>,
}

/// Jobs of one batch for which a blocked job waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OpenPrerequisite {
    /// Their batch.
    pub batch: BatchId,
    /// The positions of the jobs, as in `0-499,731`; all jobs if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub positions: Option<String>,
    /// The action if one of them does not complete: `cancel`, `fail` or `ignore`.
    pub on_failure: String,
    /// Their states.
    pub counts: JobCounts,
}

/// A job that did not complete, which is why its dependents were cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedPrerequisite {
    /// The first such job of the prerequisite.
    pub job: JobId,
    /// The state in which it ended.
    pub state: JobState,
}

/// A pause of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobPause {
    /// The reason.
    pub reason: String,
    /// The time at which it ends by itself; never if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The jobs to which it applies; only this job if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
}

/// Number of jobs by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are the states'")]
pub struct JobCounts {
    pub blocked: u64,
    pub waiting: u64,
    pub scheduled: u64,
    pub paused: u64,
    pub running: u64,
    pub completed: u64,
    pub dead: u64,
    pub cancelled: u64,
    pub expired: u64,
}

impl JobCounts {
    /// The count of one state.
    pub fn get_mut(&mut self, state: JobState) -> &mut u64 {
        match state {
            JobState::Blocked => &mut self.blocked,
            JobState::Waiting => &mut self.waiting,
            JobState::Scheduled => &mut self.scheduled,
            JobState::Paused => &mut self.paused,
            JobState::Running => &mut self.running,
            JobState::Completed => &mut self.completed,
            JobState::Dead => &mut self.dead,
            JobState::Cancelled => &mut self.cancelled,
            JobState::Expired => &mut self.expired,
        }
    }

    /// Adds other counts.
    pub fn add(&mut self, others: &JobCounts) {
        let mut others = *others;
        for state in JobState::ALL {
            *self.get_mut(state) += *others.get_mut(state);
        }
    }

    /// Number of ended jobs.
    pub fn ended(&self) -> u64 {
        self.completed + self.dead + self.cancelled + self.expired
    }

    /// Number of all jobs.
    pub fn total(&self) -> u64 {
        self.blocked + self.waiting + self.scheduled + self.paused + self.running + self.ended()
    }
}

/// A batch without its payloads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BatchRow {
    /// Its id.
    pub batch: BatchId,
    /// Its kind.
    pub kind: Arc<str>,
    /// Its queue.
    pub queue: Arc<str>,
    /// Number of jobs.
    pub count: u32,
    /// The time of the submit.
    pub submitted_at: Timestamp,
}

/// Sorts these batches by id, after cutting them to one page.
pub fn sorted_page(batches: &[BatchId]) -> Vec<BatchId> {
    let mut page: Vec<BatchId> = batches.iter().take(PAGE_ROWS_MAX as usize).copied().collect();
    page.sort_unstable();
    page.dedup();
    page
}

/// A batch with the states of its jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSummary {
    /// Its id.
    pub batch: BatchId,
    /// The kind of its jobs.
    pub kind: Arc<str>,
    /// Their queue.
    pub queue: Arc<str>,
    /// Their group.
    pub group: Option<Arc<str>>,
    /// The time of the submit.
    pub submitted_at: Timestamp,
    /// Its jobs by state.
    pub counts: JobCounts,
}

/// The ended batches to delete. Both conditions must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PruneOptions {
    /// Deletes only batches whose last job ended before this time.
    pub finished_before: Timestamp,
    /// Keeps this number of latest ended batches, whatever their age.
    pub keep_batches: u32,
    /// Deletes batches with dead jobs too. Otherwise they are kept for inspection.
    pub dead_too: bool,
    /// Only counts, and deletes nothing.
    pub dry_run: bool,
}

/// The result of a prune, or of its dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Pruned {
    /// Number of batches.
    pub batches: u64,
    /// Number of their jobs.
    pub jobs: u64,
}

/// Totals of one kind on one queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KindCounts {
    /// The kind.
    pub kind: Arc<str>,
    /// The queue.
    pub queue: Arc<str>,
    /// Its jobs by state.
    #[serde(flatten)]
    pub counts: JobCounts,
}

/// Totals of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreStats {
    /// The jobs by kind and queue.
    pub kinds: Vec<KindCounts>,
    /// Batches by hop (`submit`, `claim`, `run`, `commit`) and the reason of their end, since the store was created.
    pub hops: BatchStats,
    /// Registered workers.
    pub workers: u64,
    /// Number of batches.
    pub batches: u64,
    /// Number of claimable slices.
    pub slices: u64,
    /// Number of leases.
    pub leases: u64,
    /// Number of packed outcomes.
    pub reports: u64,
    /// Number of failed attempts.
    pub failures: u64,
    /// Bytes of the database on disk.
    pub size_bytes: u64,
    /// The size of each table, largest first, if the database knows it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableSize>,
}

/// The size of a table on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableSize {
    /// Its name.
    pub table: String,
    /// Bytes of its rows, including long columns.
    pub row_bytes: u64,
    /// Bytes of its indexes.
    pub index_bytes: u64,
    /// Approximate number of deleted or replaced rows that still take room.
    pub rows_dead: u64,
}

/// Operations that wait for locks of other transactions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockWaits {
    /// Number of waiting operations.
    pub writers: u64,
    /// The time for which the first of them has waited, in milliseconds.
    pub longest_ms: u64,
    /// Some of the transactions that hold the locks: their processes and roles, for people.
    pub holders: Vec<String>,
}
