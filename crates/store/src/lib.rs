//! The store of batches, slices, leases and reports.
//!
//! [`Store`] is the database interface of the engine and the workers. Each call is one atomic operation, and `Ok` means
//! that it is on disk. The crates `store-sqlite` and `store-postgres` implement it with the [`rules`] that both share,
//! and pass the suite of `store-conformance`.

pub mod awaited;
pub mod error;
pub mod event;
pub mod family;
pub mod history;
pub mod hook;
pub mod integrity;
pub mod layout;
pub mod live_output;
pub mod metrics;
mod newest;
pub mod options;
pub mod outcome;
pub mod query;
pub mod rules;
pub mod run;
pub mod schedule;
pub mod wakeups;
pub mod worker;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use gristmill_batching::BatchStats;
use gristmill_model::{
    BatchId, Control, JobId, JobProgress, KeyedBatch, NewBatch, PackedArray, Positions, Report, RunId,
    Timestamp, WorkerId,
};
use gristmill_model::{Followed, Printed};

use rules::lanes::Lane;

pub use awaited::OutcomeWatch;
pub use error::StoreError;
pub use event::{Event, EventCursor, EventJobs, EventPage, RecordedEvent};
pub use family::{
    ChildOutcome, Children, CleanupBatch, DueCleanup, FlowEvent, FlowEventReceipt, Suspension, Suspensions,
};
pub use history::{HistoryFilter, HistoryPeriod, HistoryRow};
pub use integrity::{CheckPage, CheckPlace, Finding};
pub use live_output::OutputPage;
pub use metrics::{LaneMetrics, StoreMetrics};
pub use options::DebugRng;
pub use outcome::{BatchOutcomes, EndedJob, OutcomesRead, OutcomesWanted, StoredFailure, StoredReport};
pub use query::{
    BatchPositions, BatchRow, BatchSummary, Change, Changed, FailedPrerequisite, JobCounts, JobDetails,
    JobFilter, JobPause, JobRow, KindCounts, LockWaits, OpenPrerequisite, Page, PruneOptions, Pruned,
    Selection, StoreStats, TableSize, TagValue,
};
pub use rules::controls::ControlFilter;
pub use rules::keys::SubmittedJobs;
pub use run::{NewRun, Run, RunAdvance, RunState};
pub use schedule::{CatchUp, Fired, NewSchedule, Overlap, Schedule, ScheduleChange};
pub use wakeups::WorkSeen;
pub use worker::{Exchanged, Heartbeat, NewWorker, Rescued, Revoked, Want, WorkerRow};

/// The target of log events for people, such as the loss of a database. Programs print them in any case.
pub const NEWS: &str = "gristmill::news";

/// A durable store of batches. Object-safe, shared between tasks.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug + 'static {
    // --- submitting ---

    /// Stores batches, all or none, and returns their ids in the same order. With `advance`, the
    /// run's position in its input moves in the same transaction, so that no line is submitted twice.
    async fn submit(
        &self,
        batches: Vec<NewBatch>,
        advance: Option<RunAdvance>,
    ) -> Result<Vec<BatchId>, StoreError>;

    /// Stores one job: a batch of one. Concurrent calls with equal kind, queue and options are packed
    /// into one batch before they are written.
    async fn submit_one(&self, job: NewBatch) -> Result<JobId, StoreError>;

    /// Stores batches whose jobs have deduplication keys, all or none. A job whose key another job has is skipped,
    /// replaces that job, runs after it or is refused, by the options of its batch. Of jobs with the same key in one
    /// batch, the last one stays. Fails with [`StoreError::DuplicateKey`] if duplicates are rejected.
    async fn submit_keyed(&self, batches: Vec<KeyedBatch>) -> Result<Vec<SubmittedJobs>, StoreError>;

    // --- workers ---

    /// Registers a worker, with a first heartbeat.
    async fn register_worker(&self, worker: NewWorker) -> Result<WorkerId, StoreError>;

    /// Commits reports and claims leases in one transaction. Returns one receipt for each report, in the same order. A
    /// refused report, or part of one, does not affect the others. Failed jobs are retried or end as dead by their
    /// batch's policy, on the attempt of the lease. Jobs that the report suspends wait for the children that are stored
    /// with it; when all have ended, they can be claimed again, to finalize, on the same attempt. If children cannot be
    /// stored, their parents end as dead. Fails with [`StoreError::WorkerUnknown`] only if the worker wants jobs and is
    /// not registered; its reports are then refused by their leases.
    async fn exchange(
        &self,
        worker: WorkerId,
        reports: Vec<Report>,
        want: Option<Want>,
    ) -> Result<Exchanged, StoreError>;

    /// Records a heartbeat of a worker, and returns the jobs that it no longer holds. `hops` are the batch statistics
    /// since the last call, which the store adds up.
    async fn heartbeat(&self, worker: WorkerId, hops: BatchStats) -> Result<Heartbeat, StoreError>;

    /// Stores the progress of a worker's jobs, packed, in place of its last report. Shown for jobs that it holds. At
    /// most [`PROGRESS_JOBS_MAX`](gristmill_model::limits::PROGRESS_JOBS_MAX). Does nothing if the worker is not
    /// registered.
    async fn put_progress(&self, worker: WorkerId, jobs: Vec<JobProgress>) -> Result<(), StoreError>;

    /// Keeps the output of these jobs for a while, for a named follower. Must be repeated within
    /// [`FOLLOWED_FOR_MS`](gristmill_model::limits::FOLLOWED_FOR_MS). Workers learn of it by their heartbeats.
    async fn follow(&self, follower: &str, followed: Vec<Followed>) -> Result<(), StoreError>;

    /// Ends a follower.
    async fn unfollow(&self, follower: &str) -> Result<(), StoreError>;

    /// Keeps output of a worker's jobs for some seconds, while there is a follower. At most
    /// [`LIVE_OUTPUT_BYTES_PER_WRITE_MAX`](gristmill_model::limits::LIVE_OUTPUT_BYTES_PER_WRITE_MAX) bytes. Returns the
    /// jobs that the worker does not hold, or not with this kind. Their output is not kept.
    async fn put_output(&self, worker: WorkerId, printed: Vec<Printed>) -> Result<Vec<JobId>, StoreError>;

    /// Reads the kept output of these jobs after a place, from 0. For a moment, a piece of another worker may still
    /// appear before the last one. Offsets show which output was read.
    async fn live_output(&self, followed: Vec<Followed>, after: i64) -> Result<OutputPage, StoreError>;

    /// Unregisters a worker, and releases its jobs without charging an attempt.
    async fn leave(&self, worker: WorkerId, hops: BatchStats) -> Result<(), StoreError>;

    /// Asks a worker to drain: it learns so by its next heartbeat, and then stops as it does on a signal. Returns whether
    /// the worker is registered. A worker that registers anew is not asked.
    async fn drain_worker(&self, worker: WorkerId) -> Result<bool, StoreError>;

    /// Adds statistics of hops outside of workers, such as `submit`. The store itself counts batches that it packs
    /// (single jobs, by [`submit_one`](Store::submit_one)).
    async fn record(&self, hops: BatchStats) -> Result<(), StoreError>;

    /// All registered workers.
    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError>;

    // --- housekeeping ---

    /// Rescues the leases of workers whose last heartbeat is before `silent_before`, and of the workers in `dead`:
    /// makes their positions claimable with one rescue more, and removes the workers. Jobs over
    /// [`RESCUES_MAX`](gristmill_model::limits::RESCUES_MAX) end as dead.
    async fn rescue(&self, silent_before: Timestamp, dead: Vec<WorkerId>) -> Result<Rescued, StoreError>;

    /// Ends jobs that no worker started before their batch's `expires_at`, jobs that missed their deadline from the
    /// first attempt on, pauses that are over, and cleanups of flows that take longer than they may. Returns the number of ended
    /// jobs. Claims skip such jobs in any case.
    /// A job that failed once, was rescued from a dead worker or was retried manually no longer expires.
    async fn expire(&self) -> Result<u64, StoreError>;

    /// The first moment at which [`expire`](Store::expire) would end a job: one that nobody starts in time, one that waits
    /// for an event or a moment, or one that cleans up after a flow. `None` where no job has such a moment. Costs three seeks.
    async fn next_expiry(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Cancelled flows for which nobody has begun the cleanup, the earliest first: those of up to so many rows. A flow that a worker ran
    /// when it was cancelled, itself or a step of it, is among them if that was at `ran_before` or earlier: its worker learns of the
    /// cancel later.
    async fn cleanups_due(&self, ran_before: Timestamp, rows_max: u32)
    -> Result<Vec<DueCleanup>, StoreError>;

    /// Begins to clean up after cancelled flows of different batches, by a batch of instances, in one transaction. `None` begins nothing
    /// for these flows, which can be retried then. Returns `false`, and stores nothing, where another process has begun
    /// the cleanup for one of them.
    async fn begin_cleanups(
        &self,
        flows: Vec<BatchPositions>,
        cleanup: Option<CleanupBatch>,
    ) -> Result<bool, StoreError>;

    /// Deletes whole batches that have ended. Ids are never reused. Keeps batches of an unfinished run, whose output is
    /// not written yet, batches of children while jobs of their parents' batch are open, and both while a cleanup after a cancelled flow
    /// has not begun. Works in portions of whole
    /// batches, so that others do not wait for long; an error does not undo earlier portions. Forgets the kinds, queues and groups of
    /// which no jobs are left, with the counts of their ended jobs.
    async fn prune(&self, options: PruneOptions) -> Result<Pruned, StoreError>;

    /// Compacts the reports of completed jobs of an ended batch into one row, if it has more than `reports_max` small
    /// ones. Answers to queries stay the same, and no event is recorded. Examines the latest batches, and works in
    /// portions, so that others do not wait for long. Returns the number of removed rows.
    async fn compact(&self, reports_max: u32) -> Result<u64, StoreError>;

    // --- changing jobs ---

    /// Changes jobs in one transaction, however many a filter matches. To change many jobs in portions, give the pages of
    /// [`job_ids`](Store::job_ids) as [`Selection::Packed`], as the engine does.
    async fn change(&self, selection: Selection, change: Change) -> Result<Changed, StoreError>;

    /// Sends events to flows, in one transaction. An event ends the job that waits for it: the oldest one of the flow. An
    /// event that the flow does not await yet is kept. Returns one receipt for each event, in the same order.
    async fn send_events(&self, events: Vec<FlowEvent>) -> Result<Vec<FlowEventReceipt>, StoreError>;

    // --- queries: on snapshots, beside the writer ---

    /// One job with all its data.
    async fn job(&self, id: JobId) -> Result<Option<JobDetails>, StoreError>;

    /// Jobs that match, by id ascending, a page at a time.
    async fn jobs(&self, filter: &JobFilter, page: Page) -> Result<Vec<JobRow>, StoreError>;

    /// The matching jobs with the highest ids, by id descending, at most `limit`: at most
    /// [`PAGE_ROWS_MAX`](gristmill_model::limits::PAGE_ROWS_MAX).
    async fn newest_jobs(&self, filter: &JobFilter, limit: u32) -> Result<Vec<JobRow>, StoreError> {
        newest::newest_jobs(self, filter, limit).await
    }

    /// The jobs that a worker with this wish would get if it claimed now, in the order of claims, whatever the size of their
    /// payloads: by the same admission, with pauses, limits, shares and aging. Takes nothing. At most
    /// [`NEXT_JOBS_MAX`](gristmill_model::limits::NEXT_JOBS_MAX). Without queues, of all queues. Among shares, a worker may
    /// begin with another one, because each handle serves them in turn.
    async fn next_jobs(&self, want: &Want) -> Result<Vec<JobRow>, StoreError>;

    /// The batch with the highest id, if there is one. Costs a seek.
    async fn newest_batch(&self) -> Result<Option<BatchId>, StoreError>;

    /// The number of matching jobs, by state.
    async fn counts(&self, filter: &JobFilter) -> Result<JobCounts, StoreError>;

    /// These batches with the states of their jobs, by id ascending, at most
    /// [`PAGE_ROWS_MAX`](gristmill_model::limits::PAGE_ROWS_MAX); without those that do not exist.
    async fn batch_summaries(&self, batches: &[BatchId]) -> Result<Vec<BatchSummary>, StoreError>;

    /// The ids of matching jobs, packed: by batch ascending, after the batch `after` (from the first if `None`), of at
    /// most `batches_max` batches. Empty only if there are no more.
    async fn job_ids(
        &self,
        filter: &JobFilter,
        after: Option<BatchId>,
        batches_max: u32,
    ) -> Result<Vec<BatchPositions>, StoreError>;

    /// The values of a tag of all stored jobs, ascending, after `after` (from the first if `None`), at most `limit`.
    async fn tag_values(
        &self,
        name: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<TagValue>, StoreError>;

    /// The groups that stored jobs of a queue (of all, if `None`) have and that begin with a text, ascending, at most `limit`.
    async fn groups(&self, queue: Option<&str>, prefix: &str, limit: u32) -> Result<Vec<String>, StoreError>;

    /// The batches of a run, by id ascending, after `after` (from the first if `None`), at most `limit`.
    async fn run_batches(
        &self,
        run: RunId,
        after: Option<BatchId>,
        limit: u32,
    ) -> Result<Vec<BatchRow>, StoreError>;

    /// The payloads of a batch, packed as they were submitted: without those that were added to debounced jobs later.
    /// `None` if the batch does not exist.
    async fn payloads(&self, batch: BatchId) -> Result<Option<PackedArray>, StoreError>;

    /// The ended jobs of one batch, packed as they are stored. `None` if the batch does not exist.
    async fn outcomes(&self, batch: BatchId) -> Result<Option<BatchOutcomes>, StoreError>;

    /// Some ended jobs of one batch, or all of a small one, if they have no more bytes than are wanted. Never reads much more than that.
    async fn outcomes_of(&self, wanted: &OutcomesWanted) -> Result<OutcomesRead, StoreError>;

    /// The children that these jobs of a batch spawned last, by position ascending, without jobs that have none. Of flows,
    /// all children. [`child_outcomes`](family::child_outcomes) returns their outcomes.
    async fn children(&self, batch: BatchId, parents: &Positions) -> Result<Vec<Children>, StoreError>;

    /// The suspensions of each of these jobs of a batch, from the first to the last.
    async fn suspensions(&self, batch: BatchId, jobs: &Positions) -> Result<Suspensions, StoreError>;

    /// The job that spawned a child, and its suspension by which it did. Costs a look at the jobs that suspended together.
    async fn suspension_of(&self, child: JobId) -> Result<Option<(JobId, Suspension)>, StoreError>;

    /// The kinds of which a job has suspended as a flow, by name.
    async fn flow_kinds(&self) -> Result<Vec<Arc<str>>, StoreError>;

    /// Whether all jobs of a batch have ended. `true` if the batch does not exist.
    async fn is_finished(&self, batch: BatchId) -> Result<bool, StoreError>;

    /// Counts and durations of ended jobs, by kind and queue: the latest period first. Read from the totals of reports.
    /// Pruned batches do not count. Fails with [`StoreError::InvalidInput`] if there are more than
    /// [`HISTORY_ROWS_MAX`](gristmill_model::limits::HISTORY_ROWS_MAX) rows.
    async fn history(&self, filter: &HistoryFilter) -> Result<Vec<HistoryRow>, StoreError>;

    /// The figures for monitoring, by kind and queue. Costs a look at each lane and at each piece of open work, however many
    /// jobs have ended. Jobs that another handle ended count once a heartbeat, [`record`](Store::record) or
    /// [`close`](Store::close) of that handle has followed.
    async fn metrics(&self) -> Result<StoreMetrics, StoreError>;

    /// The open jobs of [`metrics`](Store::metrics), without those that have ended: nothing is written, and no size is measured.
    async fn open_lanes(&self) -> Result<Vec<LaneMetrics>, StoreError>;

    /// Lanes with jobs that a worker wants and that could be claimed at `due_by` already, were it not for controls and for others: at
    /// most [`DUE_LANES_MAX`](rules::admission::held_back::DUE_LANES_MAX). Costs about as much as a claim: it looks into as many
    /// lanes.
    async fn due_lanes(&self, want: &Want, due_by: Timestamp) -> Result<Vec<Lane>, StoreError>;

    /// The jobs by queue, kind and state. With `no_steps`, as [`JobFilter::no_steps`] says.
    async fn kind_counts(&self, no_steps: bool) -> Result<Vec<KindCounts>, StoreError>;

    /// Totals by kind and queue, workers, batch statistics by hop, sizes.
    async fn stats(&self) -> Result<StoreStats, StoreError>;

    /// Counts operations on this store, of all processes, that wait for locks of other transactions. A store without
    /// such locks has none.
    async fn lock_waits(&self) -> Result<LockWaits, StoreError> {
        Ok(LockWaits::default())
    }

    /// Looks for damage in one part of the store, in a read transaction of its own. A check begins with the default
    /// place, and ends with a page without a next place. Commits of others between two parts are not damage.
    async fn check(&self, place: CheckPlace) -> Result<CheckPage, StoreError>;

    // --- runs ---

    /// The run with this name.
    async fn run(&self, name: &str) -> Result<Option<Run>, StoreError>;

    /// All runs, latest first.
    async fn runs(&self) -> Result<Vec<Run>, StoreError>;

    /// Creates a run. Fails with [`StoreError::RunExists`] if the name is taken.
    async fn create_run(&self, run: NewRun) -> Result<Run, StoreError>;

    /// Changes the stored script, input, options and state of a run.
    async fn update_run(&self, run: RunId, new: NewRun, state: RunState) -> Result<(), StoreError>;

    /// Changes a run as [`update_run`](Store::update_run) to [`RunState::Finished`], and stores the job of the run's
    /// hook in the same transaction. Stores no job if the run was finished before.
    async fn finish_run(&self, run: RunId, new: NewRun, hook: NewBatch) -> Result<(), StoreError>;

    /// Deletes a run and its batches, regardless of their jobs' states. Running jobs lose their lease, as in a cancel.
    async fn delete_run(&self, run: RunId) -> Result<(), StoreError>;

    // --- schedules ---

    /// Creates or changes schedules, all or none. A schedule with an unchanged rule keeps its next due moment.
    async fn put_schedules(&self, schedules: Vec<NewSchedule>) -> Result<(), StoreError>;

    /// Submits the jobs of at most `limit` due schedules, packed. Each moment fires once, even if several processes
    /// call this at the same time.
    async fn fire_schedules(&self, limit: u32) -> Result<Fired, StoreError>;

    /// Pauses, resumes, triggers or deletes schedules, all or none. Returns the number of those that exist.
    async fn change_schedules(
        &self,
        names: BTreeSet<String>,
        change: ScheduleChange,
    ) -> Result<u64, StoreError>;

    /// The schedule with this name.
    async fn schedule(&self, name: &str) -> Result<Option<Schedule>, StoreError>;

    /// Schedules by name, after `after` (from the first if `None`), at most `limit`.
    async fn schedules(&self, after: Option<&str>, limit: u32) -> Result<Vec<Schedule>, StoreError>;

    // --- controls ---

    /// Sets pauses, limits, shares and aging rules, all or none. A control replaces one with the same scope and effect
    /// (and reason, for a pause). Running jobs continue.
    async fn put_controls(&self, controls: Vec<Control>) -> Result<(), StoreError>;

    /// Lifts controls. Returns their number.
    async fn delete_controls(&self, filter: ControlFilter) -> Result<u64, StoreError>;

    /// All controls by age, without ended pauses: at most
    /// [`CONTROLS_MAX`](gristmill_model::limits::CONTROLS_MAX).
    async fn controls(&self) -> Result<Vec<Control>, StoreError>;

    // --- events ---

    /// Records events from now on, until [`EVENTS_KEPT_MS`](gristmill_model::limits::EVENTS_KEPT_MS) have passed
    /// without a further call, and deletes older events. Returns the cursor behind all events; a concurrent commit may
    /// be on either side of it. Without listeners the store records nothing.
    async fn listen(&self) -> Result<EventCursor, StoreError>;

    /// The events after a cursor (all stored events if `None`), in commit order, of at most `limit` rows, but at most
    /// [`EVENTS_PAGE_MAX`](gristmill_model::limits::EVENTS_PAGE_MAX).
    async fn events(&self, after: Option<EventCursor>, limit: u32) -> Result<EventPage, StoreError>;

    // --- time and waking up ---

    /// The current time by the clock that all users of the store share: compare its timestamps, such as heartbeats,
    /// with this one.
    fn now(&self) -> Timestamp;

    /// Resolves when jobs may have become claimable since the caller's last call. `seen` belongs to the caller and
    /// begins with its default. Spurious wake-ups are allowed. Submits through this handle never lose a wake-up. For
    /// submits of other processes, a PostgreSQL store usually wakes callers, and a SQLite store never does, so callers
    /// also poll.
    async fn wait_for_work(&self, seen: &WorkSeen);

    /// As [`wait_for_work`](Store::wait_for_work), for a worker that is ready to claim: if this handle stores matching
    /// jobs meanwhile, the same transaction claims them for the worker. Returns the claim as of an
    /// [`exchange`](Store::exchange); `None` if the caller must claim by itself. If the caller goes away, the store
    /// releases the claim.
    async fn wait_for_claim(&self, worker: WorkerId, want: Want, seen: &WorkSeen) -> Option<Exchanged> {
        let _ = (worker, want);
        self.wait_for_work(seen).await;
        None
    }

    /// Notifies, within some milliseconds, when jobs of a batch may have ended, in any process. Notifications can be
    /// spurious, or lost with a connection or while the watch begins, so callers also poll. Must be called within a
    /// Tokio runtime.
    fn watch_outcomes(&self, batch: BatchId) -> OutcomeWatch;

    /// Finishes queued operations and closes the store. Later calls fail with [`StoreError::Closed`].
    async fn close(&self) -> Result<(), StoreError>;
}
