//! The store in a PostgreSQL database, in its schema `gristmill`.
//!
//! An operation is one transaction of two round trips (`transaction`), on one of a few connections (`connection`). It
//! survives restarts of the server and lost connections (`database`). Submits are committed in groups (`submit`). Any
//! number of processes may use one database.

mod caller_transaction;
mod change;
mod claim;
mod commit;
mod database;
mod failure;
mod graph;
mod integrity;
mod limits;
mod multirange;
mod open;
mod options;
mod query;
mod submit;
mod worker;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::FutureExt;
use gristmill_batching::{BatchStats, GroupLimits, Submitter, group_commit};
use gristmill_model::batch::check_name;
use gristmill_model::limits::{
    EVENTS_PAGE_MAX, PAGE_ROWS_MAX, SCHEDULES_FIRED_MAX, TRANSACTION_BYTES_MAX, TRANSACTION_OPERATIONS_MAX,
    WRITER_BYTES_MAX, WRITER_OPERATIONS_MAX,
};
use gristmill_model::{
    BatchId, Control, Followed, JobId, JobProgress, KeyedBatch, NewBatch, PackedArray, Positions, Printed,
    Report, RunId, Timestamp, WorkerId,
};
use gristmill_store::live_output::{OutputPage, check_printed, pack_followed};
use gristmill_store::metrics::ReportedEnds;
use gristmill_store::query::sorted_page;
use gristmill_store::rules::check::{
    check_batches, check_change, check_filter, check_keyed, check_report, check_single,
};
use gristmill_store::rules::controls::check_controls;
use gristmill_store::rules::lanes::Lane;
use gristmill_store::{
    BatchOutcomes, BatchPositions, BatchRow, BatchSummary, Change, Changed, CheckPage, CheckPlace, Children,
    CleanupBatch, ControlFilter, DueCleanup, EventCursor, EventPage, Exchanged, Fired, FlowEvent,
    FlowEventReceipt, Heartbeat, HistoryFilter, HistoryRow, JobCounts, JobDetails, JobFilter, JobRow,
    KindCounts, LaneMetrics, LockWaits, NewRun, NewSchedule, NewWorker, OutcomeWatch, OutcomesRead,
    OutcomesWanted, Page, PruneOptions, Pruned, Rescued, Run, RunAdvance, RunState, Schedule, ScheduleChange,
    Selection, Store, StoreError, StoreMetrics, StoreStats, SubmittedJobs, Suspension, Suspensions, TagValue,
    Want, WorkSeen, WorkerRow,
};
use tokio::task::JoinHandle;

use crate::commit::exchange_group::{Exchanger, SmallExchange};
use crate::database::Database;
use crate::database::clock::{DatabaseClock, NOW};
use crate::database::handle_cache::HandleCache;
use crate::database::pools::Purpose;
use crate::database::transaction::Durability;
pub use crate::options::PostgresOptions;
use crate::submit::{Submit, SubmitReply, Submitted};
use gristmill_postgres_link::Address;

/// A store in a PostgreSQL database (14 or newer).
pub struct PostgresStore {
    database: Arc<Database>,
    /// The database's clock, if the store uses it.
    clock: Option<Arc<DatabaseClock>>,
    /// The latest time of the clock at which jobs may have become due. Milliseconds.
    latest_ms: AtomicI64,
    submitter: Mutex<Option<Submitter<Submit, SubmitReply>>>,
    exchanger: Exchanger,
    committing: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("PostgresStore")
            .field("address", &self.database.address)
            .finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Opens the store in the database at `url` (`postgresql://user@host/database`, or settings in the form of libpq),
    /// and makes it if there is none. Needs a Tokio runtime, on which its connections stay.
    ///
    /// # Errors
    ///
    /// [`StoreError::Open`] for a wrong URL, a database that refuses, or a schema that cannot be made;
    /// [`StoreError::Unreachable`], at once, for a database that cannot be reached; [`StoreError::NewerSchema`].
    pub async fn open(url: &str, options: PostgresOptions) -> Result<PostgresStore, StoreError> {
        let waits = options.waits();
        let address = Arc::new(Address::parse(url)?);
        let refused = |failure: failure::Failure| failure.at_open(address.as_str());
        let client = open::set_up(&address).await.map_err(refused)?;
        let (clock, database_clock) = match options.clock {
            Some(clock) => (clock, None),
            None => {
                let clock = Arc::new(DatabaseClock::default());
                let now = async { Ok(client.query_typed_one(NOW, &[]).await?.try_get(0)?) };
                clock.compare(now).await.map_err(refused)?;
                (clock.clone() as Arc<dyn gristmill_model::Clock>, Some(clock))
            }
        };
        let latest = submit::last_submit(&client).await.map_err(refused)?;
        drop(client);
        let cache = HandleCache::new(options.rng);
        let database = Arc::new(Database::new(address, clock, cache, waits)?);
        let (submitter, committer) = group_commit(GroupLimits {
            operations_max: TRANSACTION_OPERATIONS_MAX,
            weight_max: TRANSACTION_BYTES_MAX,
            queue_operations_max: WRITER_OPERATIONS_MAX,
            queue_weight_max: WRITER_BYTES_MAX,
        });
        let submitting = tokio::spawn(submit::commit_groups(database.clone(), committer));
        let (exchanger, exchanging) = Exchanger::begin(database.clone());
        Ok(PostgresStore {
            database,
            clock: database_clock,
            latest_ms: AtomicI64::new(latest.unwrap_or_default()),
            submitter: Mutex::new(Some(submitter)),
            exchanger,
            committing: Mutex::new(vec![submitting, exchanging]),
        })
    }

    /// Sets the clock by the clock of the database, if the store uses that.
    async fn compare_clocks(&self) -> Result<(), StoreError> {
        self.latest_ms.fetch_max(self.database.now().0, Ordering::Relaxed);
        match &self.clock {
            Some(clock) => self.database.compare_clocks(clock).await,
            None => Ok(()),
        }
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        // Without submitters, the task commits its queue and ends.
        self.database.wake.close();
        self.database.ended.close();
    }
}

/// Runs an operation on a transaction, possibly several times.
macro_rules! operate {
    ($store:expr, $purpose:ident, $durability:ident, |$transaction:ident $(, $name:ident)*| $work:expr) => {{
        $(let $name = Arc::new($name);)*
        $store.database.write(Purpose::$purpose, Durability::$durability, move |$transaction| {
            $(let $name = $name.clone();)*
            async move { $work.await }.boxed()
        })
    }};
}

/// Runs a query on one snapshot.
macro_rules! look {
    ($store:expr, |$snapshot:ident| $query:expr) => {
        $store
            .database
            .read(|$snapshot| async move { $query.await })
            .await
    };
}

impl PostgresStore {
    /// Makes all jobs due that were due before the clock was set back.
    async fn keep_due(&self) -> Result<(), StoreError> {
        let now = self.database.now();
        let latest = Timestamp(self.latest_ms.swap(now.0, Ordering::Relaxed));
        if !now.is_set_back_from(latest) {
            return Ok(());
        }
        let kept = operate!(self, Work, Promised, |transaction| transaction.keep_due(latest)).await;
        if kept.is_err() {
            self.latest_ms.fetch_max(latest.0, Ordering::Relaxed);
        }
        kept
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn submit(
        &self,
        batches: Vec<NewBatch>,
        advance: Option<RunAdvance>,
    ) -> Result<Vec<BatchId>, StoreError> {
        check_batches(&batches)?;
        self.database.prepare_lanes(&batches).await?;
        let bytes = batches.iter().map(|batch| batch.payloads.as_str().len()).sum();
        match self.hand_over(Submit::Batches(batches, advance), bytes).await? {
            Submitted::Batches(batches) => Ok(batches),
            Submitted::Single(job) => Ok(vec![job.batch]),
        }
    }

    async fn submit_one(&self, job: NewBatch) -> Result<JobId, StoreError> {
        check_single(&job)?;
        self.database.prepare_lanes(std::slice::from_ref(&job)).await?;
        let bytes = job.payloads.as_str().len();
        match self.hand_over(Submit::Single(Box::new(job)), bytes).await? {
            Submitted::Single(job) => Ok(job),
            Submitted::Batches(_) => Err(StoreError::Database("a single submit got no job".to_owned())),
        }
    }

    async fn submit_keyed(&self, batches: Vec<KeyedBatch>) -> Result<Vec<SubmittedJobs>, StoreError> {
        let keys = check_keyed(&batches)?;
        self.database.submit_keyed(batches, keys).await
    }

    async fn register_worker(&self, worker: NewWorker) -> Result<WorkerId, StoreError> {
        check_name("worker", &worker.name)?;
        operate!(self, Signal, Promised, |transaction, worker| transaction
            .register_worker(&worker))
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
            commit::check_texts(report)?;
        }
        let ends = ReportedEnds::of(&reports);
        let outline = match SmallExchange::new(worker, reports, want) {
            Ok(exchange) => self.exchanger.exchange(&self.database, exchange).await?,
            Err((reports, want)) => self.database.exchange(worker, reports, want).await?,
        };
        let exchanged = self.database.fill_in(worker, outline).await?;
        self.database.gather(&ends, &exchanged.receipts).await;
        Ok(exchanged)
    }

    async fn heartbeat(&self, worker: WorkerId, hops: BatchStats) -> Result<Heartbeat, StoreError> {
        let heartbeat = operate!(self, Signal, Needless, |transaction, hops| transaction
            .heartbeat(worker, &hops))
        .await?;
        self.database.flush_or_warn().await;
        self.database.forget_stale_lanes().await;
        self.compare_clocks().await?;
        Ok(heartbeat)
    }

    async fn put_progress(&self, worker: WorkerId, jobs: Vec<JobProgress>) -> Result<(), StoreError> {
        let packed = gristmill_store::rules::progress::pack(jobs)?;
        operate!(self, Signal, Needless, |transaction, packed| transaction
            .put_progress(worker, &packed))
        .await
    }

    async fn follow(&self, follower: &str, followed: Vec<Followed>) -> Result<(), StoreError> {
        let (follower, packed) = (follower.to_owned(), pack_followed(&followed)?);
        operate!(self, Work, Needless, |transaction, follower, packed| transaction
            .follow(&follower, &packed))
        .await
    }

    async fn unfollow(&self, follower: &str) -> Result<(), StoreError> {
        let follower = follower.to_owned();
        operate!(self, Work, Needless, |transaction, follower| transaction
            .unfollow(&follower))
        .await
    }

    async fn put_output(&self, worker: WorkerId, printed: Vec<Printed>) -> Result<Vec<JobId>, StoreError> {
        let printed = check_printed(printed)?;
        operate!(self, Work, Needless, |transaction, printed| transaction
            .put_output(worker, &printed))
        .await
    }

    async fn live_output(&self, followed: Vec<Followed>, after: i64) -> Result<OutputPage, StoreError> {
        self.database
            .read(|snapshot| {
                let followed = followed.clone();
                async move { worker::live_output::live_output(&snapshot, &followed, after).await }
            })
            .await
    }

    async fn leave(&self, worker: WorkerId, hops: BatchStats) -> Result<(), StoreError> {
        operate!(self, Work, Promised, |transaction, hops| transaction
            .leave(worker, &hops))
        .await
    }

    async fn drain_worker(&self, worker: WorkerId) -> Result<bool, StoreError> {
        operate!(self, Work, Promised, |transaction| transaction
            .drain_worker(worker))
        .await
    }

    async fn record(&self, hops: BatchStats) -> Result<(), StoreError> {
        self.compare_clocks().await?;
        self.database.flush_or_warn().await;
        let mut all = std::mem::take(&mut *self.database.cache.hops());
        all.merge(&hops);
        operate!(self, Work, Promised, |transaction, all| async {
            transaction.add_hops(&all);
            Ok(())
        })
        .await
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        look!(self, |snapshot| query::workers(&snapshot))
    }

    async fn rescue(&self, silent_before: Timestamp, dead: Vec<WorkerId>) -> Result<Rescued, StoreError> {
        self.keep_due().await?;
        operate!(self, Work, Promised, |transaction, dead| transaction
            .rescue(silent_before, &dead))
        .await
    }

    async fn expire(&self) -> Result<u64, StoreError> {
        // Jobs expire also where no cleanup can be ended.
        let ended = self.database.end_late_cleanups().await;
        let (mut total, mut more) = (0, true);
        while more {
            let expired = operate!(self, Work, Promised, |transaction| transaction.expire()).await?;
            (total, more) = (total + expired.0, expired.1);
        }
        Ok(total + ended?)
    }

    async fn next_expiry(&self) -> Result<Option<Timestamp>, StoreError> {
        look!(self, |snapshot| query::flow::next_expiry(&snapshot))
    }

    async fn cleanups_due(
        &self,
        ran_before: Timestamp,
        rows_max: u32,
    ) -> Result<Vec<DueCleanup>, StoreError> {
        look!(self, |snapshot| graph::cleanup::cleanups_due(
            &snapshot, ran_before, rows_max
        ))
    }

    async fn begin_cleanups(
        &self,
        flows: Vec<BatchPositions>,
        cleanup: Option<CleanupBatch>,
    ) -> Result<bool, StoreError> {
        let new = Vec::from_iter(cleanup.iter().map(|cleanup| cleanup.batch.clone()));
        check_batches(&new)?;
        self.database.prepare_lanes(&new).await?;
        operate!(self, Work, Promised, |transaction, flows, cleanup| {
            transaction.begin_cleanups(&flows, (*cleanup).as_ref())
        })
        .await
    }

    async fn prune(&self, options: PruneOptions) -> Result<Pruned, StoreError> {
        self.database.prune_in_portions(options).await
    }

    async fn compact(&self, reports_max: u32) -> Result<u64, StoreError> {
        self.database.add_sums().await?;
        let (mut total, mut after) = (0, BatchId(0));
        loop {
            let batches = look!(self, |snapshot| commit::compaction::candidates(
                &snapshot,
                after,
                reports_max
            ))?;
            let Some(last) = batches.last() else {
                return Ok(total);
            };
            after = *last;
            total += operate!(self, Work, Promised, |transaction, batches| transaction
                .compact(&batches, reports_max))
            .await?;
        }
    }

    async fn change(&self, selection: Selection, change: Change) -> Result<Changed, StoreError> {
        check_change(&selection, &change)?;
        operate!(self, Change, Promised, |transaction, selection, change| {
            transaction.change(&selection, &change)
        })
        .await
    }

    async fn send_events(&self, events: Vec<FlowEvent>) -> Result<Vec<FlowEventReceipt>, StoreError> {
        operate!(self, Change, Promised, |transaction, events| transaction
            .send_events(&events))
        .await
    }

    async fn job(&self, id: JobId) -> Result<Option<JobDetails>, StoreError> {
        let now = self.database.now();
        look!(self, |snapshot| query::job(&snapshot, now, id))
    }

    async fn jobs(&self, filter: &JobFilter, page: Page) -> Result<Vec<JobRow>, StoreError> {
        check_filter(filter)?;
        let (now, limit) = (self.database.now(), page.limit.min(PAGE_ROWS_MAX));
        look!(self, |snapshot| query::jobs(
            &snapshot, now, filter, page.after, limit
        ))
    }

    async fn next_jobs(&self, want: &Want) -> Result<Vec<JobRow>, StoreError> {
        let now = self.database.now();
        look!(self, |snapshot| claim::next::next_jobs(&snapshot, now, want))
    }

    async fn newest_batch(&self) -> Result<Option<BatchId>, StoreError> {
        look!(self, |snapshot| query::newest_batch(&snapshot))
    }

    async fn counts(&self, filter: &JobFilter) -> Result<JobCounts, StoreError> {
        check_filter(filter)?;
        let now = self.database.now();
        look!(self, |snapshot| query::counts(&snapshot, now, filter))
    }

    async fn batch_summaries(&self, batches: &[BatchId]) -> Result<Vec<BatchSummary>, StoreError> {
        let (now, batches) = (self.database.now(), &sorted_page(batches));
        look!(self, |snapshot| query::batch_summaries(&snapshot, now, batches))
    }

    async fn job_ids(
        &self,
        filter: &JobFilter,
        after: Option<BatchId>,
        batches_max: u32,
    ) -> Result<Vec<BatchPositions>, StoreError> {
        check_filter(filter)?;
        let (now, batches_max) = (self.database.now(), batches_max.min(PAGE_ROWS_MAX));
        look!(self, |snapshot| query::job_ids(
            &snapshot,
            now,
            filter,
            after,
            batches_max
        ))
    }

    async fn tag_values(
        &self,
        name: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<TagValue>, StoreError> {
        let limit = limit.min(PAGE_ROWS_MAX);
        look!(self, |snapshot| query::tag::tag_values(
            &snapshot, name, after, limit
        ))
    }

    async fn groups(&self, queue: Option<&str>, prefix: &str, limit: u32) -> Result<Vec<String>, StoreError> {
        let limit = limit.min(PAGE_ROWS_MAX);
        look!(self, |snapshot| query::tag::groups(
            &snapshot, queue, prefix, limit
        ))
    }

    async fn run_batches(
        &self,
        run: RunId,
        after: Option<BatchId>,
        limit: u32,
    ) -> Result<Vec<BatchRow>, StoreError> {
        let limit = limit.min(PAGE_ROWS_MAX);
        look!(self, |snapshot| query::run_batches(&snapshot, run, after, limit))
    }

    async fn payloads(&self, batch: BatchId) -> Result<Option<PackedArray>, StoreError> {
        look!(self, |snapshot| query::payloads(&snapshot, batch))
    }

    async fn outcomes(&self, batch: BatchId) -> Result<Option<BatchOutcomes>, StoreError> {
        look!(self, |snapshot| query::outcomes(&snapshot, batch))
    }

    async fn outcomes_of(&self, wanted: &OutcomesWanted) -> Result<OutcomesRead, StoreError> {
        look!(self, |snapshot| query::outcomes_of(&snapshot, wanted))
    }

    async fn suspension_of(&self, child: JobId) -> Result<Option<(JobId, Suspension)>, StoreError> {
        look!(self, |snapshot| graph::family::suspension_of(&snapshot, child))
    }

    async fn flow_kinds(&self) -> Result<Vec<Arc<str>>, StoreError> {
        look!(self, |snapshot| query::flow::flow_kinds(&snapshot))
    }

    async fn children(&self, batch: BatchId, parents: &Positions) -> Result<Vec<Children>, StoreError> {
        look!(self, |snapshot| graph::family::children(
            &snapshot, batch, parents
        ))
    }

    async fn suspensions(&self, batch: BatchId, jobs: &Positions) -> Result<Suspensions, StoreError> {
        look!(self, |snapshot| graph::flow::suspensions(&snapshot, batch, jobs))
    }

    async fn is_finished(&self, batch: BatchId) -> Result<bool, StoreError> {
        look!(self, |snapshot| query::is_finished(&snapshot, batch))
    }

    async fn history(&self, filter: &HistoryFilter) -> Result<Vec<HistoryRow>, StoreError> {
        look!(self, |snapshot| query::history(&snapshot, filter))
    }

    async fn stats(&self) -> Result<StoreStats, StoreError> {
        let now = self.database.now();
        look!(self, |snapshot| query::stats(&snapshot, now))
    }

    async fn metrics(&self) -> Result<StoreMetrics, StoreError> {
        self.database.flush_or_warn().await;
        let now = self.database.now();
        look!(self, |snapshot| query::metrics(&snapshot, now))
    }

    async fn open_lanes(&self) -> Result<Vec<LaneMetrics>, StoreError> {
        let now = self.database.now();
        look!(self, |snapshot| query::open_lanes(&snapshot, now))
    }

    async fn due_lanes(&self, want: &Want, due_by: Timestamp) -> Result<Vec<Lane>, StoreError> {
        let now = self.database.now();
        look!(self, |snapshot| query::due::due_lanes(
            &snapshot, want, due_by, now
        ))
    }

    async fn kind_counts(&self, no_steps: bool) -> Result<Vec<KindCounts>, StoreError> {
        let now = self.database.now();
        look!(self, |snapshot| query::kind_counts(&snapshot, now, no_steps))
    }

    async fn check(&self, place: CheckPlace) -> Result<CheckPage, StoreError> {
        self.database.check(place).await
    }

    async fn run(&self, name: &str) -> Result<Option<Run>, StoreError> {
        look!(self, |snapshot| submit::run::run_named(&snapshot, name))
    }

    async fn runs(&self) -> Result<Vec<Run>, StoreError> {
        look!(self, |snapshot| submit::run::runs(&snapshot))
    }

    async fn create_run(&self, run: NewRun) -> Result<Run, StoreError> {
        check_name("run", &run.name)?;
        operate!(self, Work, Promised, |transaction, run| transaction
            .create_run(&run))
        .await
    }

    async fn update_run(&self, run: RunId, new: NewRun, state: RunState) -> Result<(), StoreError> {
        check_name("run", &new.name)?;
        operate!(self, Work, Promised, |transaction, new| transaction
            .update_run(run, &new, state))
        .await
    }

    async fn finish_run(&self, run: RunId, new: NewRun, hook: NewBatch) -> Result<(), StoreError> {
        check_name("run", &new.name)?;
        check_batches(std::slice::from_ref(&hook))?;
        self.database.prepare(std::slice::from_ref(&hook)).await?;
        let work = (new, hook);
        operate!(self, Work, Promised, |transaction, work| transaction
            .finish_run(run, &work.0, &work.1))
        .await
    }

    async fn delete_run(&self, run: RunId) -> Result<(), StoreError> {
        operate!(self, Change, Promised, |transaction| transaction.delete_run(run)).await
    }

    async fn put_schedules(&self, schedules: Vec<NewSchedule>) -> Result<(), StoreError> {
        let now = self.database.now();
        for schedule in &schedules {
            schedule.check(now)?;
        }
        operate!(self, Work, Promised, |transaction, schedules| transaction
            .put_schedules(&schedules))
        .await
    }

    async fn fire_schedules(&self, limit: u32) -> Result<Fired, StoreError> {
        let next_at = look!(self, |snapshot| submit::schedule::next_due(&snapshot))?;
        if next_at.is_none_or(|next_at| next_at > self.database.now()) {
            return Ok(Fired {
                next_at,
                ..Fired::default()
            });
        }
        let limit = limit.min(SCHEDULES_FIRED_MAX);
        operate!(self, Work, Promised, |transaction| transaction
            .fire_schedules(limit))
        .await
    }

    async fn change_schedules(
        &self,
        names: BTreeSet<String>,
        change: ScheduleChange,
    ) -> Result<u64, StoreError> {
        operate!(self, Work, Promised, |transaction, names| transaction
            .change_schedules(&names, change))
        .await
    }

    async fn put_controls(&self, controls: Vec<Control>) -> Result<(), StoreError> {
        check_controls(&controls)?;
        operate!(self, Work, Promised, |transaction, controls| transaction
            .put_controls(&controls))
        .await
    }

    async fn delete_controls(&self, filter: ControlFilter) -> Result<u64, StoreError> {
        operate!(self, Work, Promised, |transaction, filter| transaction
            .delete_controls(&filter))
        .await
    }

    async fn controls(&self) -> Result<Vec<Control>, StoreError> {
        let now = self.database.now();
        look!(self, |snapshot| claim::control::controls(&snapshot, now))
    }

    async fn lock_waits(&self) -> Result<LockWaits, StoreError> {
        look!(self, |snapshot| query::lock_waits(&snapshot))
    }

    async fn schedule(&self, name: &str) -> Result<Option<Schedule>, StoreError> {
        look!(self, |snapshot| submit::schedule::schedule(&snapshot, name))
    }

    async fn schedules(&self, after: Option<&str>, limit: u32) -> Result<Vec<Schedule>, StoreError> {
        let limit = limit.min(PAGE_ROWS_MAX);
        look!(self, |snapshot| submit::schedule::schedules(
            &snapshot, after, limit
        ))
    }

    async fn listen(&self) -> Result<EventCursor, StoreError> {
        operate!(self, Work, Promised, |transaction| transaction.listen()).await
    }

    async fn events(&self, after: Option<EventCursor>, limit: u32) -> Result<EventPage, StoreError> {
        let (now, limit) = (self.database.now(), limit.min(EVENTS_PAGE_MAX));
        look!(self, |snapshot| query::event::events(
            &snapshot, after, limit, now
        ))
    }

    fn now(&self) -> Timestamp {
        self.database.now()
    }

    async fn wait_for_work(&self, seen: &WorkSeen) {
        self.database.listen();
        self.database.wake.wait(seen).await;
    }

    async fn wait_for_claim(&self, worker: WorkerId, want: Want, seen: &WorkSeen) -> Option<Exchanged> {
        self.database.listen();
        let give_back = |unclaimed| self.database.give_back(unclaimed);
        let work = self.database.wake.wait(seen);
        self.database.waiting.wait(worker, want, work, give_back).await
    }

    fn watch_outcomes(&self, batch: BatchId) -> OutcomeWatch {
        self.database.watch_outcomes(batch)
    }

    async fn close(&self) -> Result<(), StoreError> {
        // The counts that only this handle has would be lost with it.
        let recorded = if self.database.cache.has_counts() {
            self.record(BatchStats::default()).await
        } else {
            Ok(())
        };
        self.end_commits().await?;
        match recorded {
            Ok(()) | Err(StoreError::Closed) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
