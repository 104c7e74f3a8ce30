//! A store handle that fails, stalls and dies, and reports its commits to the checker.
//!
//! Each operation runs to its end without a pause, while no other task of the simulation runs. The operations therefore
//! have one order, which is the same in each simulation of a seed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_batching::BatchStats;
use gristmill_model::{
    BatchId, Clock, Control, Followed, JobId, JobProgress, KeyedBatch, NewBatch, PackedArray, Positions,
    Printed, Report, RunId, SplitMix64, Timestamp, WorkerId,
};
use gristmill_store::awaited::Awaited;
use gristmill_store::rules::lanes::Lane;
use gristmill_store::wakeups::WorkCounter;
use gristmill_store::{
    BatchOutcomes, BatchPositions, BatchRow, BatchSummary, Change, Changed, CheckPage, CheckPlace, Children,
    CleanupBatch, ControlFilter, DueCleanup, EventCursor, EventPage, Exchanged, Fired, FlowEvent,
    FlowEventReceipt, Heartbeat, HistoryFilter, HistoryRow, JobCounts, JobDetails, JobFilter, JobRow,
    KindCounts, LaneMetrics, NewRun, NewSchedule, NewWorker, OutcomeWatch, OutcomesRead, OutcomesWanted,
    OutputPage, Page, PruneOptions, Pruned, Rescued, Run, RunAdvance, RunState, Schedule, ScheduleChange,
    Selection, Store, StoreError, StoreMetrics, StoreStats, SubmittedJobs, Suspension, Suspensions, TagValue,
    Want, WorkSeen, WorkerRow,
};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore, Synchronous};

use crate::clock::MonotonicClock;
use crate::limits::{SLOW_STORE_MS_MAX, STORE_FAULTS_PERMILLE};
use crate::world::World;

/// The file of the store in the world's folder.
const FILE: &str = "gristmill.db";

/// The operation that claims and reports.
const EXCHANGE: &str = "exchange_checked";

/// The pause after which a hanging operation looks whether the trouble has ended.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The trouble of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Trouble {
    None,
    /// Some operations are refused, and some lose their answer.
    Fails,
    /// Operations are slow.
    Slow,
    /// Claims and reports do not return. Other operations do.
    Hangs,
}

/// The fate of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    AnswerLost,
}

/// A store handle.
#[derive(Debug)]
pub struct FaultyStore {
    name: String,
    world: Arc<World>,
    /// The store. `None` after the death of the handle's process.
    inner: Mutex<Option<SqliteStore>>,
    trouble: AtomicU8,
    work: WorkCounter,
    awaited: Arc<Awaited>,
}

/// Carries out an operation to its end. Other threads do the work that it waits for.
fn complete<T>(operation: impl Future<Output = T>) -> T {
    futures::executor::block_on(tokio::task::unconstrained(operation))
}

/// Carries out an operation, and applies its fate.
macro_rules! operate {
    ($self:ident.$name:ident($($argument:expr),*)) => {{
        let fate = $self.begin(stringify!($name)).await?;
        let answer = match $self.with(|store| complete(store.$name($($argument),*))) {
            Some(answer) => answer,
            None => std::future::pending().await,
        };
        $self.end(stringify!($name), fate, answer)
    }};
}

impl FaultyStore {
    /// Opens the store for a process with this name.
    pub fn open(world: &Arc<World>, name: &str) -> Result<Arc<FaultyStore>, StoreError> {
        let options = SqliteOptions {
            synchronous: Synchronous::Normal,
            clock: world.wall_clock.clone(),
            steady_clock: Some(Arc::new(MonotonicClock(world.began))),
            rng: Box::new(SplitMix64::new(world.draw(u64::MAX))),
            ..SqliteOptions::default()
        };
        let inner = SqliteStore::open(world.folder.join(FILE), options)?;
        Ok(Arc::new(FaultyStore {
            name: name.to_owned(),
            world: world.clone(),
            inner: Mutex::new(Some(inner)),
            trouble: AtomicU8::new(Trouble::None as u8),
            work: WorkCounter::default(),
            awaited: Arc::new(Awaited::default()),
        }))
    }

    /// Ends the process of the handle: no operation starts or returns any more.
    pub fn kill(&self) {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(inner);
    }

    /// Starts or ends trouble. Returns the earlier trouble.
    pub fn set_trouble(&self, trouble: Trouble) -> Trouble {
        let before = self.trouble.swap(trouble as u8, Ordering::Relaxed);
        let all = [Trouble::Fails, Trouble::Slow, Trouble::Hangs];
        let known = all.into_iter().find(|trouble| *trouble as u8 == before);
        known.unwrap_or(Trouble::None)
    }

    fn has(&self, trouble: Trouble) -> bool {
        self.trouble.load(Ordering::Relaxed) == trouble as u8
    }

    fn with<T>(&self, operation: impl FnOnce(&SqliteStore) -> T) -> Option<T> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.as_ref().map(operation)
    }

    async fn begin(&self, operation: &str) -> Result<Fate, StoreError> {
        if self.has(Trouble::Slow) {
            tokio::time::sleep(self.world.draw_time(SLOW_STORE_MS_MAX)).await;
        }
        while self.has(Trouble::Hangs) && operation == EXCHANGE {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        if !self.has(Trouble::Fails) || !self.world.happens(STORE_FAULTS_PERMILLE) {
            return Ok(Fate::Done);
        }
        if self.world.happens(500) {
            return Ok(Fate::AnswerLost);
        }
        self.world
            .note(format_args!("{}: {operation} refused", self.name));
        Err(StoreError::Locked {
            path: PathBuf::from(FILE),
            waited_ms: 0,
        })
    }

    fn end<T>(&self, operation: &str, fate: Fate, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        let said = answer.as_ref().err().map(ToString::to_string).unwrap_or_default();
        self.world
            .note(format_args!("{}: {operation} {fate:?} {said}", self.name));
        match fate {
            Fate::Done => answer,
            Fate::AnswerLost => Err(StoreError::Unknown {
                database: FILE.to_owned(),
                waited_ms: 0,
                reason: "the simulation lost the answer".to_owned(),
            }),
        }
    }

    /// Wakes waiters, because work may have arrived or jobs may have ended. Only some operations call this; otherwise
    /// waiting claims would wake each other forever.
    fn wake(&self) {
        self.work.add();
        self.awaited.wake_all();
    }

    fn stored(&self, ids: &[BatchId], counts: &[u32]) {
        assert_eq!(ids.len(), counts.len(), "each submitted batch has an id");
        self.world.check(|checker| {
            let batches = ids.iter().zip(counts);
            batches.for_each(|(id, count)| checker.stored(*id, *count));
        });
        self.wake();
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn submit(
        &self,
        batches: Vec<NewBatch>,
        advance: Option<RunAdvance>,
    ) -> Result<Vec<BatchId>, StoreError> {
        let counts: Vec<u32> = batches.iter().map(|batch| batch.payloads.count()).collect();
        operate!(self.submit_checked(batches, advance, &counts, self))
    }

    async fn submit_one(&self, job: NewBatch) -> Result<JobId, StoreError> {
        operate!(self.submit_one_checked(job, self))
    }

    async fn submit_keyed(&self, batches: Vec<KeyedBatch>) -> Result<Vec<SubmittedJobs>, StoreError> {
        let submitted = operate!(self.submit_keyed(batches))?;
        self.wake();
        Ok(submitted)
    }

    async fn register_worker(&self, worker: NewWorker) -> Result<WorkerId, StoreError> {
        operate!(self.register_worker(worker))
    }

    async fn exchange(
        &self,
        worker: WorkerId,
        reports: Vec<Report>,
        want: Option<Want>,
    ) -> Result<Exchanged, StoreError> {
        operate!(self.exchange_checked(worker, reports, want, self))
    }

    async fn heartbeat(&self, worker: WorkerId, hops: BatchStats) -> Result<Heartbeat, StoreError> {
        operate!(self.heartbeat(worker, hops))
    }

    async fn put_progress(&self, worker: WorkerId, jobs: Vec<JobProgress>) -> Result<(), StoreError> {
        operate!(self.put_progress(worker, jobs))
    }

    async fn follow(&self, follower: &str, followed: Vec<Followed>) -> Result<(), StoreError> {
        operate!(self.follow(follower, followed))
    }

    async fn unfollow(&self, follower: &str) -> Result<(), StoreError> {
        operate!(self.unfollow(follower))
    }

    async fn put_output(&self, worker: WorkerId, printed: Vec<Printed>) -> Result<Vec<JobId>, StoreError> {
        operate!(self.put_output(worker, printed))
    }

    async fn live_output(&self, followed: Vec<Followed>, after: i64) -> Result<OutputPage, StoreError> {
        operate!(self.live_output(followed, after))
    }

    async fn leave(&self, worker: WorkerId, hops: BatchStats) -> Result<(), StoreError> {
        operate!(self.leave_checked(worker, hops, self))
    }

    async fn record(&self, hops: BatchStats) -> Result<(), StoreError> {
        operate!(self.record(hops))
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        operate!(self.workers())
    }

    async fn rescue(&self, silent_before: Timestamp, dead: Vec<WorkerId>) -> Result<Rescued, StoreError> {
        operate!(self.rescue_checked(silent_before, dead, self))
    }

    async fn expire(&self) -> Result<u64, StoreError> {
        operate!(self.expire())
    }

    async fn next_expiry(&self) -> Result<Option<Timestamp>, StoreError> {
        operate!(self.next_expiry())
    }

    async fn cleanups_due(
        &self,
        ran_before: Timestamp,
        rows_max: u32,
    ) -> Result<Vec<DueCleanup>, StoreError> {
        operate!(self.cleanups_due(ran_before, rows_max))
    }

    async fn begin_cleanups(
        &self,
        flows: Vec<BatchPositions>,
        cleanup: Option<CleanupBatch>,
    ) -> Result<bool, StoreError> {
        operate!(self.begin_cleanups(flows, cleanup))
    }

    async fn prune(&self, options: PruneOptions) -> Result<Pruned, StoreError> {
        operate!(self.prune(options))
    }

    async fn compact(&self, reports_max: u32) -> Result<u64, StoreError> {
        operate!(self.compact(reports_max))
    }

    async fn drain_worker(&self, worker: WorkerId) -> Result<bool, StoreError> {
        operate!(self.drain_worker(worker))
    }

    async fn change(&self, selection: Selection, change: Change) -> Result<Changed, StoreError> {
        operate!(self.change(selection, change))
    }

    async fn job(&self, id: JobId) -> Result<Option<JobDetails>, StoreError> {
        operate!(self.job(id))
    }

    async fn jobs(&self, filter: &JobFilter, page: Page) -> Result<Vec<JobRow>, StoreError> {
        operate!(self.jobs(filter, page))
    }

    async fn counts(&self, filter: &JobFilter) -> Result<JobCounts, StoreError> {
        operate!(self.counts(filter))
    }

    async fn batch_summaries(&self, batches: &[BatchId]) -> Result<Vec<BatchSummary>, StoreError> {
        operate!(self.batch_summaries(batches))
    }

    async fn job_ids(
        &self,
        filter: &JobFilter,
        after: Option<BatchId>,
        batches_max: u32,
    ) -> Result<Vec<BatchPositions>, StoreError> {
        operate!(self.job_ids(filter, after, batches_max))
    }

    async fn tag_values(
        &self,
        name: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<TagValue>, StoreError> {
        operate!(self.tag_values(name, after, limit))
    }

    async fn groups(&self, queue: Option<&str>, prefix: &str, limit: u32) -> Result<Vec<String>, StoreError> {
        operate!(self.groups(queue, prefix, limit))
    }

    async fn run_batches(
        &self,
        run: RunId,
        after: Option<BatchId>,
        limit: u32,
    ) -> Result<Vec<BatchRow>, StoreError> {
        operate!(self.run_batches(run, after, limit))
    }

    async fn payloads(&self, batch: BatchId) -> Result<Option<PackedArray>, StoreError> {
        operate!(self.payloads(batch))
    }

    async fn outcomes(&self, batch: BatchId) -> Result<Option<BatchOutcomes>, StoreError> {
        operate!(self.outcomes(batch))
    }

    async fn outcomes_of(&self, wanted: &OutcomesWanted) -> Result<OutcomesRead, StoreError> {
        operate!(self.outcomes_of(wanted))
    }

    async fn suspension_of(&self, child: JobId) -> Result<Option<(JobId, Suspension)>, StoreError> {
        operate!(self.suspension_of(child))
    }

    async fn send_events(&self, events: Vec<FlowEvent>) -> Result<Vec<FlowEventReceipt>, StoreError> {
        operate!(self.send_events(events))
    }

    async fn suspensions(&self, batch: BatchId, jobs: &Positions) -> Result<Suspensions, StoreError> {
        operate!(self.suspensions(batch, jobs))
    }

    async fn flow_kinds(&self) -> Result<Vec<Arc<str>>, StoreError> {
        operate!(self.flow_kinds())
    }

    async fn children(&self, batch: BatchId, parents: &Positions) -> Result<Vec<Children>, StoreError> {
        operate!(self.children(batch, parents))
    }

    async fn is_finished(&self, batch: BatchId) -> Result<bool, StoreError> {
        operate!(self.is_finished(batch))
    }

    async fn history(&self, filter: &HistoryFilter) -> Result<Vec<HistoryRow>, StoreError> {
        operate!(self.history(filter))
    }

    async fn metrics(&self) -> Result<StoreMetrics, StoreError> {
        operate!(self.metrics())
    }

    async fn open_lanes(&self) -> Result<Vec<LaneMetrics>, StoreError> {
        operate!(self.open_lanes())
    }

    async fn due_lanes(&self, want: &Want, due_by: Timestamp) -> Result<Vec<Lane>, StoreError> {
        operate!(self.due_lanes(want, due_by))
    }

    async fn next_jobs(&self, want: &Want) -> Result<Vec<JobRow>, StoreError> {
        operate!(self.next_jobs(want))
    }

    async fn newest_batch(&self) -> Result<Option<BatchId>, StoreError> {
        operate!(self.newest_batch())
    }

    async fn kind_counts(&self, no_steps: bool) -> Result<Vec<KindCounts>, StoreError> {
        operate!(self.kind_counts(no_steps))
    }

    async fn stats(&self) -> Result<StoreStats, StoreError> {
        operate!(self.stats())
    }

    async fn check(&self, place: CheckPlace) -> Result<CheckPage, StoreError> {
        operate!(self.check(place))
    }

    async fn run(&self, name: &str) -> Result<Option<Run>, StoreError> {
        operate!(self.run(name))
    }

    async fn runs(&self) -> Result<Vec<Run>, StoreError> {
        operate!(self.runs())
    }

    async fn create_run(&self, new: NewRun) -> Result<Run, StoreError> {
        operate!(self.create_run(new))
    }

    async fn update_run(&self, run: RunId, new: NewRun, state: RunState) -> Result<(), StoreError> {
        operate!(self.update_run(run, new, state))
    }

    async fn finish_run(&self, run: RunId, new: NewRun, hook: NewBatch) -> Result<(), StoreError> {
        operate!(self.finish_run(run, new, hook))
    }

    async fn delete_run(&self, run: RunId) -> Result<(), StoreError> {
        operate!(self.delete_run(run))
    }

    async fn put_schedules(&self, schedules: Vec<NewSchedule>) -> Result<(), StoreError> {
        operate!(self.put_schedules(schedules))
    }

    async fn fire_schedules(&self, limit: u32) -> Result<Fired, StoreError> {
        operate!(self.fire_schedules(limit))
    }

    async fn change_schedules(
        &self,
        names: BTreeSet<String>,
        change: ScheduleChange,
    ) -> Result<u64, StoreError> {
        operate!(self.change_schedules(names, change))
    }

    async fn schedule(&self, name: &str) -> Result<Option<Schedule>, StoreError> {
        operate!(self.schedule(name))
    }

    async fn schedules(&self, after: Option<&str>, limit: u32) -> Result<Vec<Schedule>, StoreError> {
        operate!(self.schedules(after, limit))
    }

    async fn put_controls(&self, controls: Vec<Control>) -> Result<(), StoreError> {
        operate!(self.put_controls(controls))
    }

    async fn delete_controls(&self, filter: ControlFilter) -> Result<u64, StoreError> {
        operate!(self.delete_controls(filter))
    }

    async fn controls(&self) -> Result<Vec<Control>, StoreError> {
        operate!(self.controls())
    }

    async fn listen(&self) -> Result<EventCursor, StoreError> {
        operate!(self.listen())
    }

    async fn events(&self, after: Option<EventCursor>, limit: u32) -> Result<EventPage, StoreError> {
        operate!(self.events(after, limit))
    }

    fn now(&self) -> Timestamp {
        // The store compares its two clocks on each call.
        self.with(|store| store.now())
            .unwrap_or_else(|| self.world.wall_clock.now())
    }

    async fn wait_for_work(&self, seen: &WorkSeen) {
        self.work.wait(seen).await;
    }

    fn watch_outcomes(&self, batch: BatchId) -> OutcomeWatch {
        self.awaited.watch(batch)
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.kill();
        Ok(())
    }
}

/// The operations that report to the checker before the fate of their answer is applied.
trait Checked {
    async fn submit_checked(
        &self,
        batches: Vec<NewBatch>,
        advance: Option<RunAdvance>,
        counts: &[u32],
        handle: &FaultyStore,
    ) -> Result<Vec<BatchId>, StoreError>;
    async fn submit_one_checked(&self, job: NewBatch, handle: &FaultyStore) -> Result<JobId, StoreError>;
    async fn exchange_checked(
        &self,
        worker: WorkerId,
        reports: Vec<Report>,
        want: Option<Want>,
        handle: &FaultyStore,
    ) -> Result<Exchanged, StoreError>;
    async fn leave_checked(
        &self,
        worker: WorkerId,
        hops: BatchStats,
        handle: &FaultyStore,
    ) -> Result<(), StoreError>;
    async fn rescue_checked(
        &self,
        silent_before: Timestamp,
        dead: Vec<WorkerId>,
        handle: &FaultyStore,
    ) -> Result<Rescued, StoreError>;
}

impl Checked for SqliteStore {
    async fn submit_checked(
        &self,
        batches: Vec<NewBatch>,
        advance: Option<RunAdvance>,
        counts: &[u32],
        handle: &FaultyStore,
    ) -> Result<Vec<BatchId>, StoreError> {
        let ids = self.submit(batches, advance).await?;
        handle.stored(&ids, counts);
        Ok(ids)
    }

    async fn submit_one_checked(&self, job: NewBatch, handle: &FaultyStore) -> Result<JobId, StoreError> {
        let id = self.submit_one(job).await?;
        handle.stored(&[id.batch], &[id.position + 1]);
        Ok(id)
    }

    async fn exchange_checked(
        &self,
        worker: WorkerId,
        reports: Vec<Report>,
        want: Option<Want>,
        handle: &FaultyStore,
    ) -> Result<Exchanged, StoreError> {
        let exchanged = self.exchange(worker, reports.clone(), want).await?;
        let world = &handle.world;
        let jobs = exchanged.lease.as_ref().map_or(0, |lease| lease.jobs());
        world.note(format_args!(
            "{}: worker {worker} exchanges {} reports for {jobs} jobs",
            handle.name,
            reports.len()
        ));
        world.require(world.check(|checker| checker.exchanged(worker, &reports, &exchanged)));
        if !reports.is_empty() {
            handle.wake();
        }
        Ok(exchanged)
    }

    async fn leave_checked(
        &self,
        worker: WorkerId,
        hops: BatchStats,
        handle: &FaultyStore,
    ) -> Result<(), StoreError> {
        self.leave(worker, hops).await?;
        handle.world.check(|checker| checker.left(worker));
        handle.wake();
        Ok(())
    }

    async fn rescue_checked(
        &self,
        silent_before: Timestamp,
        dead: Vec<WorkerId>,
        handle: &FaultyStore,
    ) -> Result<Rescued, StoreError> {
        let rescued = self.rescue(silent_before, dead).await?;
        let world = &handle.world;
        if !rescued.workers.is_empty() {
            handle.wake();
            world.note(format_args!("{}: rescued {rescued:?}", handle.name));
        }
        world.check(|checker| checker.rescued(&rescued.workers, rescued.dead));
        Ok(rescued)
    }
}
