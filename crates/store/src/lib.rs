//! Where batches, slices, leases and reports are kept.
//!
//! [`Store`] is what the engine and the workers need of a database. Every store passes the same suite of
//! checks: `conformance`, behind the feature of that name. Each call is one operation: it holds as a whole
//! or not at all, and when it has answered `Ok`, what it did is on disk.

mod admission;
mod awaited;
mod cache;
mod check;
mod compaction;
#[cfg(feature = "conformance")]
pub mod conformance;
mod contents;
mod controls;
mod deadline;
mod debounce;
mod dependency;
mod ending;
pub mod error;
pub mod event;
pub mod family;
pub mod history;
pub mod keys;
mod lanes;
pub mod live_output;
mod merge;
mod open;
pub mod options;
pub mod outcome;
mod pack;
mod pauses;
mod piece;
pub mod postgres;
mod progress;
pub mod query;
mod report_write;
pub mod run;
pub mod schedule;
pub mod sqlite;
mod token_bucket;
mod waiting;
mod work;
pub mod worker;

use std::collections::BTreeSet;

use async_trait::async_trait;
use gristmill_batching::BatchStats;
use gristmill_model::{
    BatchId, Control, JobId, JobProgress, KeyedBatch, NewBatch, Positions, Report, RunId, Timestamp, WorkerId,
};
use gristmill_model::{Followed, Printed};

pub use awaited::OutcomeWatch;
pub use controls::ControlFilter;
pub use error::StoreError;
pub use event::{Event, EventCursor, EventJobs, EventPage, RecordedEvent};
pub use family::{ChildOutcome, Children};
pub use history::{HistoryFilter, HistoryPeriod, HistoryRow};
pub use keys::SubmittedJobs;
pub use live_output::OutputPage;
pub use open::{is_postgres, open};
pub use options::DebugRng;
pub use outcome::{BatchOutcomes, StoredFailure, StoredReport};
pub use postgres::{PostgresOptions, PostgresStore};
pub use query::{
    BatchPositions, BatchRow, Changed, JobCounts, JobDetails, JobFilter, JobPause, JobRow, KindCounts, Page,
    PruneOptions, Pruned, Selection, StoreStats, TableSize, TagValue,
};
pub use run::{NewRun, Run, RunAdvance, RunState};
pub use schedule::{CatchUp, Fired, NewSchedule, Overlap, Schedule, ScheduleChange};
pub use sqlite::{SqliteOptions, SqliteStore, Synchronous};
pub use work::WorkSeen;
pub use worker::{Exchanged, Heartbeat, NewWorker, Rescued, Revoked, Want, WorkerRow};

/// A durable store of batches. Object-safe, shared between tasks.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug + 'static {
    // --- submitting ---

    /// Stores batches, all or none, and returns their ids in the same order. With `advance`, the
    /// run's place in its input moves in the same transaction, so that no line is submitted twice.
    async fn submit(
        &self,
        batches: Vec<NewBatch>,
        advance: Option<RunAdvance>,
    ) -> Result<Vec<BatchId>, StoreError>;

    /// Stores one job: a batch of one. Concurrent calls with equal kind, queue and options are packed
    /// into one batch before they are written.
    async fn submit_one(&self, job: NewBatch) -> Result<JobId, StoreError>;

    /// Stores batches whose jobs have deduplication keys, all or none. A job whose key another one has, in whatever
    /// process, is skipped, replaces that one, runs after it or is refused, as its batch says; of jobs with the same key
    /// in one batch the last one stays. Fails with [`StoreError::DuplicateKey`] where duplicates are refused.
    async fn submit_keyed(&self, batches: Vec<KeyedBatch>) -> Result<Vec<SubmittedJobs>, StoreError>;

    // --- workers ---

    /// Makes a worker known, with a first heartbeat.
    async fn register_worker(&self, worker: NewWorker) -> Result<WorkerId, StoreError>;

    /// Commits reports and claims leases in one transaction. One receipt a report, in the same order.
    /// A report that is refused, in whole or in part, does not keep the others from being committed.
    /// Failed jobs are retried or end as dead by their batch's policy, on the attempt that the lease says. Jobs that the
    /// report suspends wait for the children that are stored with it; once all have ended, they can be claimed once more,
    /// to finalize, on the same attempt. Where children cannot be stored, their parents are dead.
    /// Fails with [`StoreError::WorkerUnknown`] only where something is wanted and the worker is not
    /// registered (any more); reports are then refused by their leases.
    async fn exchange(
        &self,
        worker: WorkerId,
        reports: Vec<Report>,
        want: Option<Want>,
    ) -> Result<Exchanged, StoreError>;

    /// Says that a worker lives, and learns what it no longer holds. `hops` are the batch statistics
    /// since the last call; the store adds them up.
    async fn heartbeat(&self, worker: WorkerId, hops: BatchStats) -> Result<Heartbeat, StoreError>;

    /// Keeps how far the jobs of a worker are, packed, in the place of what it told last. Shown of those that it holds. At
    /// most [`PROGRESS_JOBS_MAX`](gristmill_model::limits::PROGRESS_JOBS_MAX). Nothing where the worker is not registered
    /// (any more).
    async fn put_progress(&self, worker: WorkerId, jobs: Vec<JobProgress>) -> Result<(), StoreError>;

    /// Has what these jobs print kept for a while, for a follower by its own name. It is to be said again within
    /// [`FOLLOWED_FOR_MS`](gristmill_model::limits::FOLLOWED_FOR_MS). Workers learn of it by their heartbeats.
    async fn follow(&self, follower: &str, followed: Vec<Followed>) -> Result<(), StoreError>;

    /// Ends what a follower asked for.
    async fn unfollow(&self, follower: &str) -> Result<(), StoreError>;

    /// Keeps what jobs of a worker printed, for some seconds and only while somebody follows. At most
    /// [`LIVE_OUTPUT_BYTES_PER_WRITE_MAX`](gristmill_model::limits::LIVE_OUTPUT_BYTES_PER_WRITE_MAX) bytes. Returns the jobs
    /// that the worker does not hold (any more), or not as this kind: of these nothing is kept.
    async fn put_output(&self, worker: WorkerId, printed: Vec<Printed>) -> Result<Vec<JobId>, StoreError>;

    /// What is kept of the output of these jobs after a place, from 0. A piece of another worker may still appear before the
    /// last one for a moment: offsets tell what was seen.
    async fn live_output(&self, followed: Vec<Followed>, after: i64) -> Result<OutputPage, StoreError>;

    /// Ends a worker: what it still holds goes back uncharged.
    async fn leave(&self, worker: WorkerId, hops: BatchStats) -> Result<(), StoreError>;

    /// Adds up statistics of hops that are no worker's, such as `submit`. What a store packs by itself (single
    /// jobs, by [`submit_one`](Store::submit_one)) it counts by itself.
    async fn record(&self, hops: BatchStats) -> Result<(), StoreError>;

    /// All registered workers.
    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError>;

    // --- housekeeping ---

    /// Takes the leases of workers whose last heartbeat is before `silent_before`, and of the workers
    /// in `dead`, makes their positions claimable again with one rescue more, and forgets the workers.
    /// Jobs over [`RESCUES_MAX`](gristmill_model::limits::RESCUES_MAX) end as dead.
    async fn rescue(&self, silent_before: Timestamp, dead: Vec<WorkerId>) -> Result<Rescued, StoreError>;

    /// Ends jobs that nobody started before their batch's `expires_at`, those that did not complete in time from their first
    /// attempt on, and pauses of jobs that are over. Returns how many jobs ended. Claims leave such
    /// jobs alone whether this was called or not. A job that failed once, was rescued from a dead worker or
    /// was retried by hand does not expire any more.
    async fn expire(&self) -> Result<u64, StoreError>;

    /// Deletes whole batches that have ended. Ids are never given again. Batches of a run that is not
    /// finished are kept: its output is yet to be written. So are those of children, while jobs of their parents' batch
    /// are open. Works in portions of whole batches, so that others
    /// do not wait for long; after an error, what was deleted up to then stays deleted.
    async fn prune(&self, options: PruneOptions) -> Result<Pruned, StoreError>;

    /// Makes one row of the reports of completed jobs of a batch that has ended, where there are more than `reports_max`
    /// small ones. Whatever is asked, the answers stay the same; nothing is an event. Looks at the latest batches, and works
    /// in portions, so that others do not wait for long. Returns how many rows went.
    async fn compact(&self, reports_max: u32) -> Result<u64, StoreError>;

    // --- changing jobs ---

    /// Cancels jobs that are not over. Those that run end as cancelled at once: their lease loses
    /// them, their worker is told by its next heartbeat, and its reports of them are refused. With a job that waits for
    /// its children, these are cancelled, and theirs; they are not counted.
    async fn cancel(&self, selection: Selection) -> Result<Changed, StoreError>;

    /// Makes dead, cancelled or expired jobs claimable again, with all their attempts before them: they begin
    /// again with attempt 1, and their earlier failures are kept; one that had spawned children begins from the start and
    /// spawns others. A job that was rejected cannot run and stays dead.
    async fn retry(&self, selection: Selection) -> Result<Changed, StoreError>;

    /// Ends dead jobs as cancelled: they no longer count as dead, and do not keep their batch from being pruned. Their
    /// failures are kept, and they can still be retried (but for those that were rejected).
    async fn discard(&self, selection: Selection) -> Result<Changed, StoreError>;

    /// Gives jobs that are not over another priority. It holds from their next claim on: those that run keep it for
    /// when they are tried again, are given back or rescued, those that wait for others for when they can be claimed.
    /// A job that is over and is retried by hand has its batch's priority again.
    async fn prioritise(&self, selection: Selection, priority: i16) -> Result<Changed, StoreError>;

    /// Keeps jobs that are not over from being claimed, until they are resumed or that moment has passed. Pauses of
    /// several reasons stack; one of the same reason takes the place of the one before. What runs is let be, and is paused
    /// when it comes back (to be tried again, given back or rescued). Jobs that are submitted later are not paused, whatever
    /// was selected: for that there are [controls](Store::put_controls). Fails with [`StoreError::InvalidInput`] for more
    /// than [`PAUSES_PER_JOB_MAX`](gristmill_model::limits::PAUSES_PER_JOB_MAX) reasons at a time.
    async fn pause_jobs(
        &self,
        selection: Selection,
        reason: &str,
        until: Option<Timestamp>,
    ) -> Result<Changed, StoreError>;

    /// Ends the pause of this reason of jobs (all their own pauses, where `None`): what nothing else keeps back can be
    /// claimed again, in its old place in line. Pauses that are over by themselves [`expire`](Store::expire) ends, too.
    async fn resume_jobs(&self, selection: Selection, reason: Option<&str>) -> Result<Changed, StoreError>;

    // --- queries: on snapshots, beside the writer ---

    /// One job with everything that is known of it.
    async fn job(&self, id: JobId) -> Result<Option<JobDetails>, StoreError>;

    /// Jobs that match, by id ascending, a page at a time.
    async fn jobs(&self, filter: &JobFilter, page: Page) -> Result<Vec<JobRow>, StoreError>;

    /// How many jobs match, by state.
    async fn counts(&self, filter: &JobFilter) -> Result<JobCounts, StoreError>;

    /// The ids of the jobs that match, packed: by batch ascending, those of batches after `after` (of all, where `None`),
    /// at most so many batches. Empty only where there are no more.
    async fn job_ids(
        &self,
        filter: &JobFilter,
        after: Option<BatchId>,
        batches_max: u32,
    ) -> Result<Vec<BatchPositions>, StoreError>;

    /// The values of a tag, ascending, after `after` (all, where `None`), at most `limit`, of all jobs that are stored.
    async fn tag_values(
        &self,
        name: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<TagValue>, StoreError>;

    /// The batches of a run, by id ascending, after `after` (all, where `None`), at most `limit`.
    async fn run_batches(
        &self,
        run: RunId,
        after: Option<BatchId>,
        limit: u32,
    ) -> Result<Vec<BatchRow>, StoreError>;

    /// The ended jobs of one batch, packed as they are stored. `None` where there is no such batch.
    async fn outcomes(&self, batch: BatchId) -> Result<Option<BatchOutcomes>, StoreError>;

    /// The children that these jobs of a batch spawned last, by position ascending. Jobs without any are left out.
    /// [`child_outcomes`](family::child_outcomes) tells how they ended.
    async fn children(&self, batch: BatchId, parents: &Positions) -> Result<Vec<Children>, StoreError>;

    /// Whether all jobs of a batch have ended. `true` where there is no such batch.
    async fn is_finished(&self, batch: BatchId) -> Result<bool, StoreError>;

    /// How many jobs ended, how, and how long they took, by kind and queue: the latest period first. Read from what
    /// reports say of all their jobs together. Of batches that were pruned nothing is left. Fails with
    /// [`StoreError::InvalidInput`] where there are more than
    /// [`HISTORY_ROWS_MAX`](gristmill_model::limits::HISTORY_ROWS_MAX) rows.
    async fn history(&self, filter: &HistoryFilter) -> Result<Vec<HistoryRow>, StoreError>;

    /// Totals by kind and queue, workers, batch statistics by hop, sizes.
    async fn stats(&self) -> Result<StoreStats, StoreError>;

    // --- runs ---

    /// The run of that name.
    async fn run(&self, name: &str) -> Result<Option<Run>, StoreError>;

    /// All runs, latest first.
    async fn runs(&self) -> Result<Vec<Run>, StoreError>;

    /// Begins a run. Fails with [`StoreError::RunExists`] where the name is taken.
    async fn create_run(&self, run: NewRun) -> Result<Run, StoreError>;

    /// Changes what a run remembers of its script, input and options, and its state.
    async fn update_run(&self, run: RunId, new: NewRun, state: RunState) -> Result<(), StoreError>;

    /// Forgets a run and deletes its batches, whatever their jobs' states. Running jobs lose their lease, as
    /// if they were cancelled.
    async fn delete_run(&self, run: RunId) -> Result<(), StoreError>;

    // --- schedules ---

    /// Makes schedules, all or none. One of the same name is changed; where its rule stays the same, it stays due as
    /// it was.
    async fn put_schedules(&self, schedules: Vec<NewSchedule>) -> Result<(), StoreError>;

    /// Submits the jobs of schedules that are due, of at most `limit` schedules, packed. Each moment is acted on once,
    /// however many processes call this at the same time.
    async fn fire_schedules(&self, limit: u32) -> Result<Fired, StoreError>;

    /// Pauses, resumes, triggers or deletes schedules, all or none. Returns how many of them there are.
    async fn change_schedules(
        &self,
        names: BTreeSet<String>,
        change: ScheduleChange,
    ) -> Result<u64, StoreError>;

    /// The schedule of that name.
    async fn schedule(&self, name: &str) -> Result<Option<Schedule>, StoreError>;

    /// Schedules by name, those after `after` (all, where `None`), at most `limit`.
    async fn schedules(&self, after: Option<&str>, limit: u32) -> Result<Vec<Schedule>, StoreError>;

    // --- controls ---

    /// Sets pauses, limits, shares and agings, all or none. One of the same scope and effect (and reason, for a pause)
    /// takes the place of the one before. What runs already is left alone.
    async fn put_controls(&self, controls: Vec<Control>) -> Result<(), StoreError>;

    /// Lifts controls: resumes what was paused, and so on. Returns how many there were.
    async fn delete_controls(&self, filter: ControlFilter) -> Result<u64, StoreError>;

    /// All controls but for pauses that are over, by age: at most
    /// [`CONTROLS_MAX`](gristmill_model::limits::CONTROLS_MAX).
    async fn controls(&self) -> Result<Vec<Control>, StoreError>;

    // --- events ---

    /// Has what happens from now on kept, until [`EVENTS_KEPT_MS`](gristmill_model::limits::EVENTS_KEPT_MS) have passed
    /// without a further call, and forgets what is older than that. Returns the place behind what has happened; what is
    /// being committed at this very moment may be on either side of it. While nobody listens nothing is kept.
    async fn listen(&self) -> Result<EventCursor, StoreError>;

    /// The events after a place (all that are kept, where `None`), in the order in which they were committed, of at most
    /// `limit` rows, but at most [`EVENTS_PAGE_MAX`](gristmill_model::limits::EVENTS_PAGE_MAX).
    async fn events(&self, after: Option<EventCursor>, limit: u32) -> Result<EventPage, StoreError>;

    // --- time and waking up ---

    /// The present moment by the clock that all users of the store go by: moments that it has given, such as those of
    /// heartbeats, are compared with this one.
    fn now(&self) -> Timestamp;

    /// Resolves when jobs may have become claimable that this caller has not heard of: at once, if that happened since
    /// its last call. `seen` is the caller's own and begins with its default. Spurious wake-ups are allowed, lost ones
    /// are not, for what is submitted through this handle. Of what other processes submit, a PostgreSQL store tells as
    /// a rule, and a SQLite store never: callers look for that every now and then.
    async fn wait_for_work(&self, seen: &WorkSeen);

    /// As [`wait_for_work`](Store::wait_for_work), by a worker that would claim what it wants at once: where this handle stores
    /// such jobs meanwhile, they are claimed for it in the same transaction. Gives what an
    /// [`exchange`](Store::exchange) would have claimed; `None` where the caller is to look by itself. Where the caller goes
    /// away, what was claimed for it is given back.
    async fn wait_for_claim(&self, worker: WorkerId, want: Want, seen: &WorkSeen) -> Option<Exchanged> {
        let _ = (worker, want);
        self.wait_for_work(seen).await;
        None
    }

    /// Tells when jobs of a batch may have ended, within some milliseconds, whatever process ended them. Spurious news are
    /// allowed, and so are lost ones where a connection is lost, or a report is committed as the watch begins: callers look
    /// every now and then, too. Must be called within a Tokio runtime.
    fn watch_outcomes(&self, batch: BatchId) -> OutcomeWatch;

    /// Writes out what is still queued and closes the store. Later calls fail with [`StoreError::Closed`].
    async fn close(&self) -> Result<(), StoreError>;
}

/// What a panic said.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no message".to_owned())
}
