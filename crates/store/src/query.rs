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

/// Which jobs are meant. Conditions that are `None` or empty leave all through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobFilter {
    /// Only in one of these states.
    pub states: Vec<JobState>,
    /// Only of this kind.
    pub kind: Option<String>,
    /// Only on this queue.
    pub queue: Option<String>,
    /// Only of this group.
    pub group: Option<String>,
    /// Only of this run.
    pub run: Option<RunId>,
    /// Only of this batch.
    pub batch: Option<BatchId>,
    /// Only submitted at this time or later.
    pub submitted_since: Option<Timestamp>,
    /// Only submitted before this time.
    pub submitted_until: Option<Timestamp>,
    /// Only with this deduplication key. Looks through the keys of all batches that have some.
    pub key: Option<String>,
    /// Only with a deduplication key that begins so. Looks as `key` does.
    pub key_prefix: Option<String>,
    /// Only with all of these tags.
    pub tags: Vec<TagCondition>,
    /// Only what this job spawned, and what its children spawned for it beside themselves.
    pub parent: Option<JobId>,
}

impl JobFilter {
    /// Whether it names batches by more than their queue, kind and group: by their id, run or time. Only their own rows
    /// have these.
    pub fn names_batches(&self) -> bool {
        self.batch.is_some()
            || self.run.is_some()
            || self.submitted_since.is_some()
            || self.submitted_until.is_some()
    }

    /// Whether it tells jobs of one batch apart by more than their states.
    pub fn tells_jobs_apart(&self) -> bool {
        self.key.is_some() || self.key_prefix.is_some() || !self.tags.is_empty() || self.parent.is_some()
    }
}

/// Which jobs a filter's keys, tags and parent leave. Those that there are not may be among the positions.
pub type Narrowed = BTreeMap<BatchId, Positions>;

/// Jobs of one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchPositions {
    /// The batch.
    pub batch: BatchId,
    /// Which of its jobs.
    pub positions: Positions,
}

/// A value of a tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TagValue {
    /// The value.
    pub value: String,
    /// How many jobs have it.
    pub jobs: u64,
}

/// Which jobs are to be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a change has one selection; nothing keeps many"
)]
pub enum Selection {
    /// These jobs.
    Jobs(Vec<JobId>),
    /// Those of these jobs that are in one of the states; all of them, if no state is named. Batches are named once each.
    Packed {
        /// The jobs, as [`job_ids`](crate::Store::job_ids) returns them.
        jobs: Vec<BatchPositions>,
        /// Their states at the time of the change.
        states: Vec<JobState>,
    },
    /// All jobs that match.
    Filter(JobFilter),
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
    /// and stays dead.
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
        /// Why, for people.
        reason: String,
        /// Until then; until they are resumed, where `None`.
        until: Option<Timestamp>,
    },
    /// Ends the jobs' pauses with this reason (all their own pauses if `None`). Jobs without another pause become
    /// claimable in their old place in line. [`expire`](crate::Store::expire) ends pauses whose time has passed.
    Resume {
        /// That of the pauses.
        reason: Option<String>,
    },
}

impl Change {
    /// The states that it can change.
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

/// Part of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Only jobs after this one.
    pub after: Option<JobId>,
    /// At most so many rows; at most [`PAGE_ROWS_MAX`].
    pub limit: u32,
}

/// What a cancel or a retry did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Changed {
    /// Jobs that were changed.
    pub changed: u64,
    /// Jobs that were named but could not be: no such job, or in another state.
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
    /// Its group, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<Arc<str>>,
    /// Where it stands.
    pub state: JobState,
    /// The attempt that runs, ran last or comes next, from 1; 0 where none was or will be made.
    pub attempt: u32,
    /// Higher is claimed first.
    pub priority: i16,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// When it can be claimed, while it waits.
    pub run_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// When a worker took it, while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_at: Option<Timestamp>,
    /// How far it is, while it runs: what its handler says, and in [`JobDetails`], where that is nothing, what can be
    /// expected from others of its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<ShownProgress>,
    /// The message of its last failure, unless it has completed since.
    pub error: Option<String>,
}

/// Everything that is known of one job.
#[derive(Debug, Clone, Serialize)]
pub struct JobDetails {
    /// As in a listing.
    #[serde(flatten)]
    pub row: JobRow,
    /// Its payload.
    pub payload: Box<RawValue>,
    /// Its value, once completed.
    pub value: Option<Box<RawValue>>,
    /// What holds for its batch.
    pub options: BatchOptions,
    /// Its deduplication key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What keeps it back: its own pauses, and those of its queue, kind and group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<JobPause>,
    /// Its tags.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Its first prerequisites that have not ended, while it is blocked: at most
    /// [`SHOWN_PREREQUISITES_MAX`](gristmill_model::limits::SHOWN_PREREQUISITES_MAX).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prerequisites: Vec<OpenPrerequisite>,
    /// The prerequisite that did not complete, so that this job was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<FailedPrerequisite>,
    /// The job that spawned it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
    /// The children that it spawned last, by state. While it is blocked, it waits for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children: Option<JobCounts>,
    /// How long its last attempt took. Microseconds.
    pub duration_us: Option<u32>,
    /// The worker that holds it or ended it.
    pub worker: Option<Arc<str>>,
    /// Its failed attempts, oldest first.
    pub failures: Vec<StoredFailure>,
    /// What it printed in its last attempt, if that did not fail (a failure has a log of its own).
    pub log: Option<String>,
}

/// Jobs of one batch that a blocked job waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OpenPrerequisite {
    /// Their batch.
    pub batch: BatchId,
    /// The positions of the jobs, as in `0-499,731`; `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub positions: Option<String>,
    /// The action if one of them does not complete: `cancel`, `fail` or `ignore`.
    pub on_failure: String,
    /// Their states.
    pub counts: JobCounts,
}

/// A job that did not complete, so that jobs that waited for it were cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedPrerequisite {
    /// The first such job of the prerequisite.
    pub job: JobId,
    /// The state in which it ended.
    pub state: JobState,
}

/// A pause that keeps a job back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobPause {
    /// Why.
    pub reason: String,
    /// When it is over by itself; never, where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Which jobs it is for; this one, where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
}

/// How many jobs, by state.
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

    /// Adds others.
    pub fn add(&mut self, others: &JobCounts) {
        let mut others = *others;
        for state in JobState::ALL {
            *self.get_mut(state) += *others.get_mut(state);
        }
    }

    /// All jobs that are over.
    pub fn ended(&self) -> u64 {
        self.completed + self.dead + self.cancelled + self.expired
    }

    /// All jobs.
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
    /// How many jobs it has.
    pub count: u32,
    /// When it was submitted.
    pub submitted_at: Timestamp,
}

/// The first of these batches, as many as a page has, by id.
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
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// Its jobs by state.
    pub counts: JobCounts,
}

/// Which ended batches are to be deleted. Both conditions must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PruneOptions {
    /// Only batches whose last job ended before this moment.
    pub finished_before: Timestamp,
    /// Keep the latest so many ended batches, whatever their age.
    pub keep_batches: u32,
    /// Delete batches with dead jobs too; otherwise they are kept for someone to look at.
    pub dead_too: bool,
    /// Only count, delete nothing.
    pub dry_run: bool,
}

/// What a prune deleted (or would have).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Pruned {
    /// Batches.
    pub batches: u64,
    /// Jobs in them.
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
    /// By kind and queue.
    pub kinds: Vec<KindCounts>,
    /// Batches by hop (`submit`, `claim`, `run`, `commit`) and why they ended, since the store was made.
    pub hops: BatchStats,
    /// Registered workers.
    pub workers: u64,
    /// Rows: batches, slices, leases, reports, failures.
    pub batches: u64,
    /// Claimable pieces.
    pub slices: u64,
    /// Claims that are held.
    pub leases: u64,
    /// Packed outcomes.
    pub reports: u64,
    /// Failed attempts.
    pub failures: u64,
    /// Bytes of the database on disk.
    pub size_bytes: u64,
    /// What each of its tables takes of them, the largest first, where the database tells.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableSize>,
}

/// What a table takes on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableSize {
    /// Its name.
    pub table: String,
    /// Bytes of its rows, long columns included.
    pub row_bytes: u64,
    /// Bytes of its indexes.
    pub index_bytes: u64,
    /// Rows that were deleted or replaced and still take room, about.
    pub rows_dead: u64,
}

/// Operations that wait for locks which other transactions hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockWaits {
    /// How many wait.
    pub writers: u64,
    /// How long the first of them has waited. Milliseconds.
    pub longest_ms: u64,
    /// Some of the transactions that they wait for: their processes and roles, for people.
    pub holders: Vec<String>,
}
