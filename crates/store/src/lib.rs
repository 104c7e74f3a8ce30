//! Where batches, slices, leases and reports are kept.
//!
//! [`Store`] is what the engine and the workers need of a database. Every store passes the same suite of
//! checks: `conformance`, behind the feature of that name. Each call is one operation: it holds as a whole
//! or not at all, and when it has answered `Ok`, what it did is on disk.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod error;
pub mod outcome;
pub mod query;
pub mod run;
pub mod sqlite;
pub mod worker;

use async_trait::async_trait;
use gristmill_batching::BatchStats;
use gristmill_model::{BatchId, JobId, NewBatch, Report, RunId, Timestamp, WorkerId};

pub use error::StoreError;
pub use outcome::{BatchOutcomes, StoredFailure, StoredReport};
pub use query::{
    BatchRow, Changed, JobCounts, JobDetails, JobFilter, JobRow, KindCounts, Page, PruneOptions, Pruned,
    Selection, StoreStats,
};
pub use run::{NewRun, Run, RunAdvance, RunState};
pub use sqlite::{SqliteOptions, SqliteStore, Synchronous};
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

    // --- workers ---

    /// Makes a worker known, with a first heartbeat.
    async fn register_worker(&self, worker: NewWorker) -> Result<WorkerId, StoreError>;

    /// Commits reports and claims leases in one transaction. One receipt a report, in the same order.
    /// A report that is refused, in whole or in part, does not keep the others from being committed.
    /// Failed jobs are retried or end as dead by their batch's policy, on the attempt that the lease says.
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

    /// Ends jobs that nobody started before their batch's `expires_at`. Returns how many. Claims leave such
    /// jobs alone whether this was called or not. A job that failed once, was rescued from a dead worker or
    /// was retried by hand does not expire any more.
    async fn expire(&self) -> Result<u64, StoreError>;

    /// Deletes whole batches that have ended. Ids are never given again. Batches of a run that is not
    /// finished are kept: its output is yet to be written. Works in portions of whole batches, so that others
    /// do not wait for long; after an error, what was deleted up to then stays deleted.
    async fn prune(&self, options: PruneOptions) -> Result<Pruned, StoreError>;

    // --- changing jobs ---

    /// Cancels jobs that are not over. Those that run end as cancelled at once: their lease loses
    /// them, their worker is told by its next heartbeat, and its reports of them are refused.
    async fn cancel(&self, selection: Selection) -> Result<Changed, StoreError>;

    /// Makes dead, cancelled or expired jobs claimable again, with all their attempts before them: they begin
    /// again with attempt 1, and their earlier failures are kept. A job that was rejected cannot run and stays
    /// dead.
    async fn retry(&self, selection: Selection) -> Result<Changed, StoreError>;

    // --- queries: on snapshots, beside the writer ---

    /// One job with everything that is known of it.
    async fn job(&self, id: JobId) -> Result<Option<JobDetails>, StoreError>;

    /// Jobs that match, by id ascending, a page at a time.
    async fn jobs(&self, filter: &JobFilter, page: Page) -> Result<Vec<JobRow>, StoreError>;

    /// How many jobs match, by state.
    async fn counts(&self, filter: &JobFilter) -> Result<JobCounts, StoreError>;

    /// The batches of a run, by id ascending, after `after` (all, where `None`), at most `limit`.
    async fn run_batches(
        &self,
        run: RunId,
        after: Option<BatchId>,
        limit: u32,
    ) -> Result<Vec<BatchRow>, StoreError>;

    /// The ended jobs of one batch, packed as they are stored. `None` where there is no such batch.
    async fn outcomes(&self, batch: BatchId) -> Result<Option<BatchOutcomes>, StoreError>;

    /// Whether all jobs of a batch have ended. `true` where there is no such batch.
    async fn is_finished(&self, batch: BatchId) -> Result<bool, StoreError>;

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

    // --- waking up ---

    /// Resolves when jobs may have become claimable through this store's handle: at once, if that happened
    /// since the last call. Spurious wake-ups are allowed, lost ones are not, for one caller at a time; of
    /// several, all that wait are woken, and one that does not wait at that moment. What other processes
    /// submit is not seen: callers poll for that.
    async fn wait_for_work(&self);

    /// Writes out what is still queued and closes the store. Later calls fail with [`StoreError::Closed`].
    async fn close(&self) -> Result<(), StoreError>;
}
