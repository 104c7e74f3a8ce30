//! The store in one SQLite file.
//!
//! One thread writes (`writer`): it takes all operations that have gathered and carries them out in one transaction.
//! Queries run concurrently on connections of their own (`readers`). Several processes may open the same file; each has
//! its writer, and SQLite lets one of them write at a time.

mod caller_transaction;
mod change;
mod claim;
mod columns;
mod commit;
mod failure;
mod graph;
mod labels;
pub mod layout;
mod limits;
mod open;
mod options;
mod query;
mod readers;
mod submit;
mod sums;
mod transaction;
mod worker;
mod writer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use async_trait::async_trait;
use gristmill_batching::BatchStats;
use gristmill_model::batch::check_name;
use gristmill_model::limits::{EVENTS_PAGE_MAX, PAGE_ROWS_MAX, SCHEDULES_FIRED_MAX};
use gristmill_model::{
    BatchId, Control, Followed, JobId, JobProgress, KeyedBatch, NewBatch, PackedArray, Positions, Printed,
    Report, RunId, Timestamp, WorkerId,
};
use gristmill_store::live_output::{OutputPage, check_printed, pack_followed};
use gristmill_store::metrics::{GatheredEnds, ReportedEnds};
use gristmill_store::query::sorted_page;
use gristmill_store::rules::check::{
    check_batches, check_change, check_filter, check_keyed, check_report, check_single,
};
use gristmill_store::rules::controls::check_controls;
use gristmill_store::rules::lanes::Lane;
use gristmill_store::rules::waiting::{Unclaimed, WaitingWorkers};
use gristmill_store::wakeups::WorkCounter;
use gristmill_store::{
    BatchOutcomes, BatchPositions, BatchRow, BatchSummary, Change, Changed, CheckPage, CheckPlace, Children,
    CleanupBatch, ControlFilter, DueCleanup, EventCursor, EventPage, Exchanged, Finding, Fired, FlowEvent,
    FlowEventReceipt, Heartbeat, HistoryFilter, HistoryRow, JobCounts, JobDetails, JobFilter, JobRow,
    KindCounts, LaneMetrics, NewRun, NewSchedule, NewWorker, OutcomeWatch, OutcomesRead, OutcomesWanted,
    Page, PruneOptions, Pruned, Rescued, Run, RunAdvance, RunState, Schedule, ScheduleChange, Selection,
    Store, StoreError, StoreMetrics, StoreStats, SubmittedJobs, Suspension, Suspensions, TagValue, Want,
    WorkSeen, WorkerRow,
};

pub use crate::caller_transaction::{ForeignConnection, ForeignSubmitter, Row, Value};
use crate::failure::Failure;
use crate::open::place::OpenFiles;
pub use crate::open::place::{log_path, resolve_link};
pub use crate::open::run_lock::RunFileLock;
pub use crate::open::{APPLICATION_ID, create_private};
pub use crate::options::{Access, SqliteOptions, Synchronous};
use crate::query::ended::EndedLookout;
use crate::readers::Readers;
use crate::transaction::Transaction;
use crate::worker::steady_clock::Clocks;
pub use crate::worker::steady_clock::SteadyClock;
use crate::writer::hand_over::HandOver;
use crate::writer::operation::{Durability, OPERATION_BYTES, Operation, Reply, Work, WriterReply, weight_of};

/// A store in one SQLite file. Dropping it writes out its queue, like [`close`](Store::close).
pub struct SqliteStore {
    path: PathBuf,
    clock: Clocks,
    /// `None` for a read-only store, and while the store is dropped.
    hand_over: Option<HandOver>,
    writer: Mutex<Option<JoinHandle<()>>>,
    readers: Arc<Readers>,
    work: Arc<WorkCounter>,
    waiting: Arc<WaitingWorkers>,
    ended: EndedLookout,
    /// Why the store is read-only, if it is.
    read_only: Option<&'static str>,
    /// The fault of its log that was found before it was opened.
    missing_log: Option<String>,
    /// Counts of ended jobs that are not in the file yet.
    gathered: Mutex<GatheredEnds>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SqliteStore")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the store in the file at `path`, or at the end of the symbolic link there, and makes it if there is none.
    /// Fails with [`StoreError::NotAStore`] for another program's database, and with [`StoreError::Open`] for a file
    /// that is no database or cannot be opened.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
        let path = path.as_ref();
        let path = resolve_link(path).map_err(|error| StoreError::Open {
            path: path.to_path_buf(),
            reason: error.to_string(),
        })?;
        let clock = Clocks::new(options.clock.clone(), options.steady_clock.clone());
        let busy_timeout_ms = options.busy_timeout_ms;
        let open::Opened {
            connection,
            read_only,
            missing_log,
        } = open::open(&path, &options)?;
        let files = Arc::new(OpenFiles::at(&path));
        let work = Arc::new(WorkCounter::default());
        let waiting = Arc::new(WaitingWorkers::default());
        let start = |connection| {
            writer::hand_over::start(connection, options, files.clone(), work.clone(), waiting.clone())
        };
        let started = connection.map(start).transpose()?;
        let (hand_over, writer) = started.unzip();
        Ok(SqliteStore {
            readers: Readers::new(path.clone(), files, read_only.is_some(), busy_timeout_ms),
            path,
            clock,
            hand_over,
            writer: Mutex::new(writer),
            work,
            waiting,
            ended: EndedLookout::default(),
            read_only,
            missing_log,
            gathered: Mutex::default(),
        })
    }

    /// Reports whether operations that write are refused.
    pub fn is_read_only(&self) -> bool {
        self.read_only.is_some()
    }

    /// The store's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hands an operation to the writer and waits for its answer, which comes when the operation is on disk.
    async fn write<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl Fn(&mut Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.write_with(Durability::Promised, bytes, work).await
    }

    async fn write_with<T: Send + 'static>(
        &self,
        durability: Durability,
        bytes: usize,
        work: impl Fn(&mut Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        let run = Box::new(move |transaction: &mut Transaction<'_>| {
            let answer = work(transaction)?;
            Ok(Box::new(answer) as writer::operation::Answer)
        });
        let work = Work { run, durability };
        match self.hand_over(Operation::Work(work), bytes).await? {
            Reply::Work(answer) => answer
                .downcast()
                .map(|answer| *answer)
                .map_err(|_| StoreError::Database("the writer answered another operation".to_owned())),
            Reply::Single(_) | Reply::Closed => Err(StoreError::Closed),
        }
    }

    /// Makes the writer give back jobs that nobody waits for any more.
    fn give_back(&self, unclaimed: Unclaimed) {
        if let Some(writer) = &self.hand_over {
            writer.give_back(unclaimed);
        }
    }

    async fn hand_over(&self, operation: Operation, bytes: usize) -> WriterReply {
        if let Some(reason) = self.read_only {
            return Err(StoreError::ReadOnly {
                path: self.path.clone(),
                reason: reason.to_owned(),
            });
        }
        let writer = self.hand_over.as_ref().ok_or(StoreError::Closed)?;
        writer.submit(operation, bytes + OPERATION_BYTES).await
    }

    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&rusqlite::Connection) -> failure::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let answer = self.readers.read(query).await;
        if let Err(StoreError::Damaged { batch, .. }) = &answer {
            self.quarantine(*batch).await;
        }
        answer
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn submit(
        &self,
        batches: Vec<NewBatch>,
        advance: Option<RunAdvance>,
    ) -> Result<Vec<BatchId>, StoreError> {
        check_batches(&batches)?;
        let bytes = weight_of(&batches);
        let work = move |transaction: &mut Transaction<'_>| transaction.submit(&batches, advance.as_ref());
        self.write(bytes, work).await
    }

    async fn submit_one(&self, job: NewBatch) -> Result<JobId, StoreError> {
        check_single(&job)?;
        let bytes = job.payloads.as_str().len();
        match self.hand_over(Operation::Single(job), bytes).await? {
            Reply::Single(job) => Ok(job),
            Reply::Work(_) | Reply::Closed => Err(StoreError::Closed),
        }
    }

    async fn submit_keyed(&self, batches: Vec<KeyedBatch>) -> Result<Vec<SubmittedJobs>, StoreError> {
        let keys = check_keyed(&batches)?;
        let bytes = batches
            .iter()
            .map(|batch| batch.batch.payloads.as_str().len() + batch.keys.as_str().len())
            .sum();
        self.write(bytes, move |transaction| {
            transaction.submit_keyed(&batches, &keys)
        })
        .await
    }

    async fn register_worker(&self, worker: NewWorker) -> Result<WorkerId, StoreError> {
        check_name("worker", &worker.name)?;
        let beat = self.clock.beat();
        self.write(0, move |transaction| transaction.register_worker(&worker, &beat))
            .await
    }

    async fn exchange(
        &self,
        worker: WorkerId,
        reports: Vec<Report>,
        want: Option<Want>,
    ) -> Result<Exchanged, StoreError> {
        for report in &reports {
            check_report(report)?;
        }
        let bytes = reports.iter().map(Report::weight_bytes).sum();
        let durability = if reports.is_empty() {
            Durability::Needless
        } else {
            Durability::Promised
        };
        let ends = ReportedEnds::of(&reports);
        let reported: Vec<BatchId> = reports.iter().map(|report| report.batch).collect();
        let exchanged = self
            .write_with(durability, bytes, move |transaction| {
                transaction.exchange(worker, &reports, want.as_ref())
            })
            .await?;
        self.ended.wake(reported);
        self.gather(&ends, &exchanged.receipts).await;
        Ok(exchanged)
    }

    async fn heartbeat(&self, worker: WorkerId, hops: BatchStats) -> Result<Heartbeat, StoreError> {
        let beat = self.clock.beat();
        let work = move |transaction: &mut Transaction<'_>| transaction.heartbeat(worker, &hops, &beat);
        let heartbeat = self.write_with(Durability::Needless, 0, work).await?;
        self.flush_or_warn().await;
        Ok(heartbeat)
    }

    async fn put_progress(&self, worker: WorkerId, jobs: Vec<JobProgress>) -> Result<(), StoreError> {
        let packed = gristmill_store::rules::progress::pack(jobs)?;
        self.write_with(Durability::Needless, packed.len(), move |transaction| {
            transaction.put_progress(worker, &packed)
        })
        .await
    }

    async fn follow(&self, follower: &str, followed: Vec<Followed>) -> Result<(), StoreError> {
        let (follower, packed) = (follower.to_owned(), pack_followed(&followed)?);
        self.write_with(Durability::Needless, packed.len(), move |transaction| {
            transaction.follow(&follower, &packed)
        })
        .await
    }

    async fn unfollow(&self, follower: &str) -> Result<(), StoreError> {
        let follower = follower.to_owned();
        let work = move |transaction: &mut Transaction<'_>| transaction.unfollow(&follower);
        self.write_with(Durability::Needless, 0, work).await
    }

    async fn put_output(&self, worker: WorkerId, printed: Vec<Printed>) -> Result<Vec<JobId>, StoreError> {
        let printed = check_printed(printed)?;
        let bytes = printed.iter().map(|piece| piece.text.len()).sum();
        self.write_with(Durability::Needless, bytes, move |transaction| {
            transaction.put_output(worker, &printed)
        })
        .await
    }

    async fn live_output(&self, followed: Vec<Followed>, after: i64) -> Result<OutputPage, StoreError> {
        self.read(move |connection| worker::live_output::live_output(connection, &followed, after))
            .await
    }

    async fn leave(&self, worker: WorkerId, hops: BatchStats) -> Result<(), StoreError> {
        self.write(0, move |transaction| transaction.leave(worker, &hops))
            .await
    }

    async fn drain_worker(&self, worker: WorkerId) -> Result<bool, StoreError> {
        self.write(0, move |transaction| transaction.drain_worker(worker))
            .await
    }

    async fn record(&self, hops: BatchStats) -> Result<(), StoreError> {
        self.flush_or_warn().await;
        self.write(0, move |transaction| transaction.add_hops(&hops))
            .await
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        let times = self.clock.wall_times();
        self.read(move |connection| query::workers(connection, &times))
            .await
    }

    async fn rescue(&self, silent_before: Timestamp, dead: Vec<WorkerId>) -> Result<Rescued, StoreError> {
        let times = self.clock.wall_times();
        let work = move |transaction: &mut Transaction<'_>| transaction.rescue(silent_before, &times, &dead);
        self.write(0, work).await
    }

    async fn expire(&self) -> Result<u64, StoreError> {
        let ended = self.end_late_cleanups().await; // Jobs expire also where this fails.
        let expired = self.write(0, |transaction| transaction.expire()).await?;
        Ok(expired + ended?)
    }

    async fn next_expiry(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read(query::flow::next_expiry).await
    }

    async fn cleanups_due(&self, ran: Timestamp, rows_max: u32) -> Result<Vec<DueCleanup>, StoreError> {
        self.read(move |connection| graph::cleanup::cleanups_due(connection, ran, rows_max))
            .await
    }

    async fn begin_cleanups(
        &self,
        flows: Vec<BatchPositions>,
        cleanup: Option<CleanupBatch>,
    ) -> Result<bool, StoreError> {
        let new = Vec::from_iter(cleanup.iter().map(|cleanup| cleanup.batch.clone()));
        check_batches(&new)?;
        self.write(weight_of(&new), move |work| {
            work.begin_cleanups(&flows, cleanup.as_ref())
        })
        .await
    }

    async fn prune(&self, options: PruneOptions) -> Result<Pruned, StoreError> {
        self.prune_in_portions(options).await
    }

    async fn compact(&self, reports_max: u32) -> Result<u64, StoreError> {
        self.compact_in_portions(reports_max).await
    }

    async fn change(&self, selection: Selection, change: Change) -> Result<Changed, StoreError> {
        check_change(&selection, &change)?;
        self.write(0, move |transaction| transaction.change(&selection, &change))
            .await
    }

    async fn job(&self, id: JobId) -> Result<Option<JobDetails>, StoreError> {
        let now = self.clock.now();
        self.read(move |connection| query::job(connection, now, id)).await
    }

    async fn jobs(&self, filter: &JobFilter, page: Page) -> Result<Vec<JobRow>, StoreError> {
        check_filter(filter)?;
        let now = self.clock.now();
        let (filter, limit) = (filter.clone(), page.limit.min(PAGE_ROWS_MAX));
        self.read(move |connection| query::jobs(connection, now, &filter, page.after, limit))
            .await
    }

    async fn next_jobs(&self, want: &Want) -> Result<Vec<JobRow>, StoreError> {
        let (now, want) = (self.clock.now(), want.clone());
        self.read(move |connection| claim::next::next_jobs(connection, now, want))
            .await
    }

    async fn newest_batch(&self) -> Result<Option<BatchId>, StoreError> {
        self.read(query::newest_batch).await
    }

    async fn counts(&self, filter: &JobFilter) -> Result<JobCounts, StoreError> {
        check_filter(filter)?;
        let (now, filter) = (self.clock.now(), filter.clone());
        self.read(move |connection| query::counts(connection, now, &filter))
            .await
    }

    async fn batch_summaries(&self, batches: &[BatchId]) -> Result<Vec<BatchSummary>, StoreError> {
        let (now, batches) = (self.clock.now(), sorted_page(batches));
        self.read(move |connection| query::batch_summaries(connection, now, &batches))
            .await
    }

    async fn job_ids(
        &self,
        filter: &JobFilter,
        after: Option<BatchId>,
        batches_max: u32,
    ) -> Result<Vec<BatchPositions>, StoreError> {
        check_filter(filter)?;
        let now = self.clock.now();
        let (filter, batches_max) = (filter.clone(), batches_max.min(PAGE_ROWS_MAX));
        self.read(move |connection| query::job_ids(connection, now, &filter, after, batches_max))
            .await
    }

    async fn tag_values(
        &self,
        name: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<TagValue>, StoreError> {
        let (name, after) = (name.to_owned(), after.map(str::to_owned));
        let limit = limit.min(PAGE_ROWS_MAX);
        self.read(move |connection| query::tag::tag_values(connection, &name, after.as_deref(), limit))
            .await
    }

    async fn groups(&self, queue: Option<&str>, prefix: &str, limit: u32) -> Result<Vec<String>, StoreError> {
        let (queue, prefix) = (queue.map(str::to_owned), prefix.to_owned());
        let limit = limit.min(PAGE_ROWS_MAX);
        self.read(move |connection| query::tag::groups(connection, queue.as_deref(), &prefix, limit))
            .await
    }

    async fn run_batches(
        &self,
        run: RunId,
        after: Option<BatchId>,
        limit: u32,
    ) -> Result<Vec<BatchRow>, StoreError> {
        let limit = limit.min(PAGE_ROWS_MAX);
        self.read(move |connection| query::run_batches(connection, run, after, limit))
            .await
    }

    async fn payloads(&self, batch: BatchId) -> Result<Option<PackedArray>, StoreError> {
        self.read(move |connection| query::payloads(connection, batch))
            .await
    }

    async fn outcomes(&self, batch: BatchId) -> Result<Option<BatchOutcomes>, StoreError> {
        self.read(move |connection| query::outcomes(connection, batch))
            .await
    }

    async fn outcomes_of(&self, wanted: &OutcomesWanted) -> Result<OutcomesRead, StoreError> {
        let wanted = wanted.clone();
        self.read(move |connection| query::outcomes_of(connection, &wanted))
            .await
    }

    async fn suspension_of(&self, child: JobId) -> Result<Option<(JobId, Suspension)>, StoreError> {
        self.read(move |connection| graph::family::suspension_of(connection, child))
            .await
    }

    async fn send_events(&self, events: Vec<FlowEvent>) -> Result<Vec<FlowEventReceipt>, StoreError> {
        let weight_bytes = events.iter().map(|event| event.value().as_str().len()).sum();
        let work = move |transaction: &mut Transaction<'_>| transaction.send_events(&events);
        self.write(weight_bytes, work).await
    }

    async fn suspensions(&self, batch: BatchId, jobs: &Positions) -> Result<Suspensions, StoreError> {
        let jobs = jobs.clone();
        self.read(move |connection| graph::flow::suspensions(connection, batch, &jobs))
            .await
    }

    async fn flow_kinds(&self) -> Result<Vec<Arc<str>>, StoreError> {
        self.read(query::flow::flow_kinds).await
    }

    async fn children(&self, batch: BatchId, parents: &Positions) -> Result<Vec<Children>, StoreError> {
        let parents = parents.clone();
        self.read(move |connection| graph::family::children(connection, batch, &parents))
            .await
    }

    async fn is_finished(&self, batch: BatchId) -> Result<bool, StoreError> {
        self.read(move |connection| query::is_finished(connection, batch))
            .await
    }

    async fn history(&self, filter: &HistoryFilter) -> Result<Vec<HistoryRow>, StoreError> {
        let filter = filter.clone();
        self.read(move |connection| query::history(connection, &filter))
            .await
    }

    async fn stats(&self) -> Result<StoreStats, StoreError> {
        let now = self.clock.now();
        self.read(move |connection| query::stats(connection, now)).await
    }

    async fn metrics(&self) -> Result<StoreMetrics, StoreError> {
        self.flush_or_warn().await;
        let now = self.clock.now();
        self.read(move |connection| query::metrics(connection, now)).await
    }

    async fn open_lanes(&self) -> Result<Vec<LaneMetrics>, StoreError> {
        let now = self.clock.now();
        self.read(move |connection| query::open_lanes(connection, now))
            .await
    }

    async fn due_lanes(&self, want: &Want, due_by: Timestamp) -> Result<Vec<Lane>, StoreError> {
        let (want, now) = (want.clone(), self.clock.now());
        self.read(move |connection| query::due::due_lanes(connection, &want, due_by, now))
            .await
    }

    async fn kind_counts(&self, no_steps: bool) -> Result<Vec<KindCounts>, StoreError> {
        let now = self.clock.now();
        self.read(move |connection| query::kind_counts(connection, now, no_steps))
            .await
    }

    async fn check(&self, place: CheckPlace) -> Result<CheckPage, StoreError> {
        let now = self.clock.now();
        let missing_log = self.missing_log.clone().filter(|_| place == CheckPlace::File);
        let mut page = self
            .read(move |connection| query::integrity::check(connection, now, place))
            .await?;
        page.findings
            .extend(missing_log.map(|found| Finding::beside("file", found)));
        Ok(page)
    }

    async fn run(&self, name: &str) -> Result<Option<Run>, StoreError> {
        let name = name.to_owned();
        self.read(move |connection| submit::run::run_named(connection, &name))
            .await
    }

    async fn runs(&self) -> Result<Vec<Run>, StoreError> {
        self.read(submit::run::runs).await
    }

    async fn create_run(&self, run: NewRun) -> Result<Run, StoreError> {
        check_name("run", &run.name)?;
        self.write(run.description.len(), move |transaction| {
            transaction.create_run(&run)
        })
        .await
    }

    async fn update_run(&self, run: RunId, new: NewRun, state: RunState) -> Result<(), StoreError> {
        check_name("run", &new.name)?;
        self.write(new.description.len(), move |transaction| {
            transaction.update_run(run, &new, state)
        })
        .await
    }

    async fn finish_run(&self, run: RunId, new: NewRun, hook: NewBatch) -> Result<(), StoreError> {
        check_name("run", &new.name)?;
        check_batches(std::slice::from_ref(&hook))?;
        let bytes = new.description.len() + hook.payloads.as_str().len();
        self.write(bytes, move |transaction| transaction.finish_run(run, &new, &hook))
            .await
    }

    async fn delete_run(&self, run: RunId) -> Result<(), StoreError> {
        self.write(0, move |transaction| transaction.delete_run(run))
            .await
    }

    async fn put_schedules(&self, schedules: Vec<NewSchedule>) -> Result<(), StoreError> {
        let now = self.clock.now();
        for schedule in &schedules {
            schedule.check(now)?;
        }
        let bytes = schedules
            .iter()
            .map(|schedule| schedule.payload.as_str().len())
            .sum();
        self.write(bytes, move |transaction| transaction.put_schedules(&schedules))
            .await
    }

    async fn fire_schedules(&self, limit: u32) -> Result<Fired, StoreError> {
        let next_at = self.read(submit::schedule::next_due).await?;
        if next_at.is_none_or(|next_at| next_at > self.clock.now()) {
            return Ok(Fired {
                next_at,
                ..Fired::default()
            });
        }
        let limit = limit.min(SCHEDULES_FIRED_MAX);
        self.write(0, move |transaction| transaction.fire_schedules(limit))
            .await
    }

    async fn change_schedules(
        &self,
        names: BTreeSet<String>,
        change: ScheduleChange,
    ) -> Result<u64, StoreError> {
        self.write(0, move |transaction| transaction.change_schedules(&names, change))
            .await
    }

    async fn put_controls(&self, controls: Vec<Control>) -> Result<(), StoreError> {
        check_controls(&controls)?;
        self.write(0, move |transaction| transaction.put_controls(&controls))
            .await
    }

    async fn delete_controls(&self, filter: ControlFilter) -> Result<u64, StoreError> {
        self.write(0, move |transaction| transaction.delete_controls(&filter))
            .await
    }

    async fn controls(&self) -> Result<Vec<Control>, StoreError> {
        let now = self.clock.now();
        self.read(move |connection| claim::control::controls(connection, now))
            .await
    }

    async fn schedule(&self, name: &str) -> Result<Option<Schedule>, StoreError> {
        let name = name.to_owned();
        self.read(move |connection| submit::schedule::schedule(connection, &name))
            .await
    }

    async fn schedules(&self, after: Option<&str>, limit: u32) -> Result<Vec<Schedule>, StoreError> {
        let (after, limit) = (after.map(str::to_owned), limit.min(PAGE_ROWS_MAX));
        self.read(move |connection| submit::schedule::schedules(connection, after.as_deref(), limit))
            .await
    }

    async fn listen(&self) -> Result<EventCursor, StoreError> {
        self.write(0, |transaction| transaction.listen()).await
    }

    async fn events(&self, after: Option<EventCursor>, limit: u32) -> Result<EventPage, StoreError> {
        let (now, limit) = (self.clock.now(), limit.min(EVENTS_PAGE_MAX));
        self.read(move |connection| query::event::events(connection, after, limit, now))
            .await
    }

    fn now(&self) -> Timestamp {
        self.clock.compare()
    }

    async fn wait_for_work(&self, seen: &WorkSeen) {
        self.work.wait(seen).await;
    }

    async fn wait_for_claim(&self, worker: WorkerId, want: Want, seen: &WorkSeen) -> Option<Exchanged> {
        let (give_back, woken) = (|unclaimed| self.give_back(unclaimed), self.work.wait(seen));
        self.waiting.wait(worker, want, woken, give_back).await
    }

    fn watch_outcomes(&self, batch: BatchId) -> OutcomeWatch {
        self.ended.watch(batch, &self.readers)
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.end().await
    }
}
