//! Runs one program: workers, their deaths, lost answers, the clock, events and cancels, in a random order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use gristmill_model::{
    Completed, FailedJob, JobError, JobId, LeasedSlice, NewBatch, PackedArray, PackedBuilder, Positions,
    Receipt, Report, Rng, SplitMix64, Suspended, Timestamp, WorkerId,
};
use gristmill_store::family::{child_outcomes, seen_of};
use gristmill_store::{Change, ChildOutcome, FlowEvent, FlowEventReceipt, JobFilter, Page, Store};
use gristmill_worker::{Handler, MicroBatch, OutcomeSink, Outcomes};

use crate::Database;
use crate::fixture::*;
use crate::programs::expected::Interpreter;
use crate::programs::flow::{handler, retry};
use crate::programs::node::{EVENTS, FLOW, FlowPayload, Generator, Program, StepPayload, value_of};
use crate::programs::record::{Decisions, Id, Record};

/// The workers that claim at the same time.
const WORKERS: usize = 3;
/// The steps with faults.
const WILD_STEPS_MAX: u64 = 60;
/// The steps without faults after which a program that has not ended goes on for ever. The largest ones, of flows in flows that begin
/// anew, take more than 2,000.
const CALM_STEPS_MAX: u32 = 20_000;
/// The lines of the trace of a program that fails.
const TRACE_LINES_MAX: usize = 1_000;
/// The variable that makes programs that fail print their traces.
const TRACE_VARIABLE: &str = "FLOW_PROGRAM_TRACE";
/// The longest jump of the clock, in milliseconds.
const JUMP_MS_MAX: u64 = 15;

/// The end of a job: its value, or the message of its error.
type Ending = Result<String, String>;

/// Jobs that a worker holds.
struct Work {
    worker: WorkerId,
    slice: LeasedSlice,
    /// The report, once they have run.
    report: Option<Report>,
    /// What flows have decided in this run, by their names. A worker whose lease is lost may run them, too.
    decisions: BTreeMap<Id, Decisions>,
}

struct Driver<'d> {
    database: &'d dyn Database,
    store: Arc<dyn Store>,
    other: Arc<dyn Store>,
    rng: SplitMix64,
    record: Arc<Record>,
    handler: Arc<dyn Handler>,
    workers: Vec<WorkerId>,
    works: Vec<Work>,
    /// The name of each job, by its payload.
    names: BTreeMap<JobId, Id>,
    jobs: BTreeMap<Id, JobId>,
    flows: BTreeSet<JobId>,
    ended: BTreeMap<JobId, Ending>,
    cancelled: BTreeSet<Id>,
    events: u64,
    /// The events that the store took for open flows: the flow, the name and the value.
    sent: Vec<(JobId, usize, u64)>,
    exchanges: u64,
    trace: Trace,
}

/// What happened, which is printed where the program fails.
#[derive(Default)]
struct Trace(VecDeque<String>);

impl Trace {
    fn add(&mut self, line: String) {
        if self.0.len() == TRACE_LINES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(line);
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var(TRACE_VARIABLE).is_ok() {
            self.0.iter().for_each(|line| println!("{line}"));
        }
    }
}

/// Takes the outcomes of a micro-batch.
#[derive(Default)]
struct Sink(Mutex<Vec<Outcomes>>);

impl OutcomeSink for Sink {
    fn answer(&self, outcomes: Outcomes) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(outcomes);
    }

    fn is_draining(&self) -> bool {
        false
    }

    fn cancelled(&self) -> Positions {
        Positions::new()
    }
}

/// Runs the program of a seed. Returns the number of exchanges.
pub(super) async fn run(database: &dyn Database, seed: u64) -> u64 {
    let mut rng = SplitMix64::new(seed);
    let program = Generator::new(&mut rng).program(0);
    let roots = 1 + rng.below(4) as u32;
    let store = database.open().await;
    let record = Arc::new(Record::default());
    let mut driver = Driver {
        database,
        other: database.open().await,
        workers: Vec::new(),
        store,
        rng,
        handler: handler(record.clone()),
        record,
        works: Vec::new(),
        names: BTreeMap::new(),
        jobs: BTreeMap::new(),
        flows: BTreeSet::new(),
        ended: BTreeMap::new(),
        cancelled: BTreeSet::new(),
        events: 0,
        sent: Vec::new(),
        exchanges: 0,
        trace: Trace::default(),
    };
    driver.trace.add(format!("{program:?}"));
    for _ in 0..WORKERS {
        driver.workers.push(worker(&*driver.store).await);
    }
    let roots = driver.submit(&program, roots).await;
    for _ in 0..driver.rng.below(WILD_STEPS_MAX) {
        driver.wild_step().await;
    }
    driver.until_all_ended().await;
    driver.check(&program, &roots).await;
    driver.exchanges
}

impl Driver<'_> {
    fn draw(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    fn happens(&mut self, percent: u64) -> bool {
        self.rng.below(100) < percent
    }

    async fn submit(&mut self, program: &Program, count: u32) -> Vec<JobId> {
        let mut payloads = PackedBuilder::new();
        for number in 0..count {
            let payload = FlowPayload {
                id: format!("flow{number}"),
                number,
                program: program.clone(),
                round: 0,
            };
            payloads.push_value(&payload).unwrap();
        }
        let mut new = NewBatch::new(FLOW, payloads.finish());
        new.options.retry = retry(FLOW);
        let batch = submit(&*self.store, new).await;
        let roots: Vec<JobId> = (0..count).map(|number| job(batch, number)).collect();
        self.flows.extend(&roots);
        roots
    }

    async fn wild_step(&mut self) {
        if self.happens(20) {
            std::mem::swap(&mut self.store, &mut self.other);
        }
        match self.rng.below(30) {
            0..=8 => self.claim().await,
            9..=16 => self.run_one(true).await,
            17..=22 => self.report_one(true).await,
            23..=24 => self.advance().await,
            25..=26 => self.send_event().await,
            27 => self.kill().await,
            28 => self.cancel_one().await,
            _ => drop(self.store.compact(4).await.unwrap()),
        }
    }

    /// Runs without faults until nothing is open.
    async fn until_all_ended(&mut self) {
        let mut silent = 0;
        for _ in 0..CALM_STEPS_MAX {
            if !self.works.is_empty() {
                self.run_one(false).await;
                self.report_one(false).await;
                continue;
            }
            let claimed_before = self.exchanges;
            self.claim().await;
            if !self.works.is_empty() {
                silent = 0;
                continue;
            }
            assert!(self.exchanges > claimed_before, "a claim is an exchange");
            let counts = self.store.counts(&JobFilter::default()).await.unwrap();
            if counts.total() == counts.ended() {
                return;
            }
            silent += 1;
            match silent {
                // Jobs of a lost lease come back.
                1 => self.kill_all().await,
                2..10 => self.advance().await,
                10..20 => self.send_events_to_all().await,
                _ => break,
            }
        }
        let page = Page {
            after: None,
            limit: 100,
        };
        let rows = self.store.jobs(&JobFilter::default(), page).await.unwrap();
        let open = rows.iter().filter(|row| !row.state.is_final());
        let open: Vec<String> = open
            .map(|row| {
                format!(
                    "{} {} {:?} {}",
                    row.job,
                    row.kind,
                    self.names.get(&row.job),
                    row.state
                )
            })
            .collect();
        panic!("jobs wait for ever: {open:?}");
    }

    async fn claim(&mut self) {
        let number = self.draw(WORKERS);
        let worker = self.workers[number];
        let jobs_max = 1 + self.rng.below(6) as u32;
        self.exchange(worker, Vec::new(), Some(jobs_max)).await;
    }

    /// Reports and claims. Returns the receipts.
    async fn exchange(
        &mut self,
        worker: WorkerId,
        reports: Vec<Report>,
        jobs_max: Option<u32>,
    ) -> Vec<Receipt> {
        self.exchanges += 1;
        let answer = exchange(&*self.store, worker, reports.clone(), jobs_max.map(want)).await;
        for (report, receipt) in reports.iter().zip(&answer.receipts) {
            self.trace
                .add(format!("worker {worker} reports {report:?}: {receipt:?}"));
            self.accepted(report, receipt);
            self.check_contradiction();
        }
        for slice in answer.lease.into_iter().flat_map(|lease| lease.slices) {
            let memos = slice.memos.as_ref().map(|memos| memos.as_str());
            self.trace.add(format!(
                "worker {worker} claims {}:{} {} {memos:?}",
                slice.batch,
                slice.positions,
                slice.payloads.as_str()
            ));
            self.know(&slice);
            self.works.push(Work {
                worker,
                slice,
                report: None,
                decisions: BTreeMap::new(),
            });
        }
        answer.receipts
    }

    /// Learns the names of claimed jobs: no step begins twice.
    fn know(&mut self, slice: &LeasedSlice) {
        #[derive(serde::Deserialize)]
        struct Named {
            id: Id,
        }
        for (position, payload) in slice.positions.iter().zip(slice.payloads.items()) {
            let Named { id } = serde_json::from_str(payload).unwrap();
            let claimed = job(slice.batch, position);
            let known = *self.jobs.entry(id.clone()).or_insert(claimed);
            assert_eq!(known, claimed, "{id} began twice");
            assert!(
                !self.ended.contains_key(&claimed),
                "{id} has ended, and runs again"
            );
            self.names.insert(claimed, id);
            if &*slice.kind == FLOW {
                self.flows.insert(claimed);
            }
        }
    }

    /// Runs jobs that a worker holds. With faults, only some of them.
    async fn run_one(&mut self, is_wild: bool) {
        let waiting: Vec<usize> = (0..self.works.len())
            .filter(|number| self.works[*number].report.is_none())
            .collect();
        if waiting.is_empty() {
            return;
        }
        let number = waiting[self.draw(waiting.len())];
        if is_wild && self.works[number].slice.len() > 1 && self.happens(40) {
            let first = self.works[number].slice.positions.first().unwrap_or(0);
            let own = Positions::from(first..first + 1);
            let work = &mut self.works[number];
            let rest = part(&work.slice, &work.slice.positions.difference(&own));
            let (worker, slice) = (work.worker, part(&work.slice, &own));
            work.slice = rest;
            self.works.push(Work {
                worker,
                slice,
                report: None,
                decisions: BTreeMap::new(),
            });
        }
        let slice = self.works[number].slice.clone();
        let report = match &*slice.kind == FLOW {
            true => self.run_flows(&slice).await,
            false => run_steps(&slice),
        };
        let names = slice
            .positions
            .iter()
            .map(|position| &self.names[&job(slice.batch, position)]);
        let decisions = self.record.lock().take(names);
        let work = &mut self.works[number];
        (work.report, work.decisions) = (Some(report), decisions);
    }

    async fn run_flows(&mut self, slice: &LeasedSlice) -> Report {
        let children = match slice.memos {
            None => Vec::new(),
            Some(_) => child_outcomes(&*self.store, slice.batch, &slice.positions)
                .await
                .unwrap(),
        };
        for position in slice.positions.iter() {
            let name = &self.names[&job(slice.batch, position)];
            self.record.lock().begin(name);
        }
        self.trace.add(format!(
            "{}:{} runs with {children:?}",
            slice.batch, slice.positions
        ));
        let sink = Sink::default();
        let work = MicroBatch::new(vec![slice.clone()]).with_children(children.clone());
        self.handler.run(0, work, &sink).await;
        self.check_contradiction();
        let outcomes = sink.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut all = report(slice);
        let mut suspended = Vec::new();
        for outcomes in outcomes {
            if let Some(completed) = outcomes.completed {
                let completed = Completed {
                    positions: slice.positions.select(&completed.positions),
                    ..completed
                };
                all.completed = Some(match all.completed.take() {
                    None => completed,
                    Some(before) => joined(before, completed),
                });
            }
            for failed in outcomes.failed {
                let position = at(slice, failed.position);
                all.failed.push(FailedJob { position, ..failed });
            }
            for one in outcomes.suspended {
                let place = one.positions.first().unwrap_or(0);
                suspended.push(Suspended {
                    positions: slice.positions.select(&one.positions),
                    seen: seen(children.get(place as usize), !one.given_up.is_empty()),
                    ..one
                });
            }
        }
        all.suspended = Suspended::pack(suspended);
        assert_eq!(all.positions(), slice.positions, "each flow is answered");
        all
    }

    fn check_contradiction(&self) {
        if let Some(contradiction) = &self.record.lock().contradiction {
            panic!("{contradiction}");
        }
    }

    /// Reports jobs that have run. With faults, the answer is lost, the report is repeated, or the jobs are released.
    async fn report_one(&mut self, is_wild: bool) {
        let ready: Vec<usize> = (0..self.works.len())
            .filter(|number| self.works[*number].report.is_some())
            .collect();
        if ready.is_empty() {
            return;
        }
        let number = ready[self.draw(ready.len())];
        let Work {
            worker,
            slice,
            report,
            decisions,
        } = self.works.swap_remove(number);
        let report = match report {
            Some(_) if is_wild && self.happens(5) => released_at(&slice, &slice.positions),
            report => report.unwrap_or_else(|| released_at(&slice, &slice.positions)),
        };
        if !self.workers.contains(&worker) {
            self.report_late(worker, report).await;
            return;
        }
        self.record.lock().pending = decisions;
        let jobs_max = self.happens(50).then(|| 1 + self.rng.below(4) as u32);
        self.exchange(worker, vec![report.clone()], jobs_max).await;
        if is_wild && self.happens(10) {
            let receipts = self.exchange(worker, vec![report], None).await;
            assert_eq!(
                receipts[0].accepted,
                Positions::new(),
                "a repeated report is refused"
            );
        }
    }

    /// Reports of dead workers are refused.
    async fn report_late(&mut self, worker: WorkerId, report: Report) {
        self.exchanges += 1;
        if let Ok(answer) = self.store.exchange(worker, vec![report], None).await {
            for receipt in answer.receipts {
                assert_eq!(receipt.accepted, Positions::new(), "the lease is lost");
            }
        }
    }

    /// Notes what the store has accepted.
    fn accepted(&mut self, report: &Report, receipt: &Receipt) {
        let mut endings = Vec::new();
        if let Some(completed) = &report.completed {
            for (position, value) in completed.positions.iter().zip(completed.values.items()) {
                if receipt.accepted.contains(position) {
                    endings.push((position, Ok(value.to_owned())));
                }
            }
        }
        for failed in &report.failed {
            if receipt.dead.contains(failed.position) {
                endings.push((failed.position, Err(failed.error.message.clone())));
            }
        }
        for (position, ending) in endings {
            let ended = job(report.batch, position);
            if let Some(before) = self.ended.insert(ended, ending.clone()) {
                panic!("{ended} has two outcomes: {before:?} and {ending:?}");
            }
        }
        // A run that failed has decided nothing.
        let failed: Positions = report.failed.iter().map(|failed| failed.position).collect();
        let failed = failed.difference(&receipt.dead).union(&report.released);
        for position in receipt.accepted.difference(&failed).iter() {
            if let Some(name) = self.names.get(&job(report.batch, position)) {
                self.record.lock().store(name);
            }
        }
    }

    async fn advance(&mut self) {
        let jump_ms = 1 + self.rng.below(JUMP_MS_MAX);
        self.database.clock().advance_ms(jump_ms.cast_signed());
        self.store.expire().await.unwrap();
    }

    async fn send_event(&mut self) {
        let flows: Vec<JobId> = self.flows.iter().copied().collect();
        let flow = flows[self.draw(flows.len())];
        let name = self.draw(EVENTS.len());
        self.send(flow, name).await;
    }

    async fn send(&mut self, flow: JobId, name: usize) -> FlowEventReceipt {
        self.events += 1;
        let event = FlowEvent::new(flow, EVENTS[name], &self.events.to_string()).unwrap();
        let receipts = self.store.send_events(vec![event]).await.unwrap();
        assert_ne!(receipts[0], FlowEventReceipt::Unknown);
        if self.ended.contains_key(&flow) {
            assert_eq!(receipts[0], FlowEventReceipt::Ended);
        }
        self.trace.add(format!(
            "{} {} to {flow}: {:?}",
            EVENTS[name], self.events, receipts[0]
        ));
        if receipts[0] != FlowEventReceipt::Ended {
            self.sent.push((flow, name, self.events));
        }
        receipts[0]
    }

    /// Sends events to all flows. All flows wait. So where one awaits an event, it has read all events of this name that were
    /// sent before.
    async fn send_events_to_all(&mut self) {
        for flow in self.flows.clone() {
            if self.ended.contains_key(&flow) {
                continue;
            }
            for (name, event) in EVENTS.iter().enumerate() {
                if self.send(flow, name).await != FlowEventReceipt::Delivered {
                    continue;
                }
                let records = self.record.lock();
                let before = self
                    .sent
                    .iter()
                    .filter(|(to, which, value)| (*to, *which) == (flow, name) && *value < self.events);
                let lost = before.filter(|(_, _, value)| !records.has_read(*value));
                let lost: Vec<u64> = lost.map(|(_, _, value)| *value).collect();
                assert!(lost.is_empty(), "{flow} awaits {event}, and has lost {lost:?}");
            }
        }
    }

    async fn kill(&mut self) {
        let number = self.draw(WORKERS);
        let dead = self.workers[number];
        self.workers[number] = worker(&*self.store).await;
        self.store.rescue(Timestamp(0), vec![dead]).await.unwrap();
    }

    /// All workers die, so that no lost lease holds jobs.
    async fn kill_all(&mut self) {
        for number in 0..WORKERS {
            let dead = self.workers[number];
            self.workers[number] = worker(&*self.store).await;
            self.store.rescue(Timestamp(0), vec![dead]).await.unwrap();
        }
    }

    /// Cancels a job by hand, usually a step.
    async fn cancel_one(&mut self) {
        let all: Vec<JobId> = self.names.keys().copied().collect();
        if all.is_empty() {
            return;
        }
        let chosen = all[self.draw(all.len())];
        if self.flows.contains(&chosen) && !self.happens(25) {
            return;
        }
        let changed = change(&*self.store, chosen, Change::Cancel).await;
        if changed.changed == 1 {
            let before = self.ended.insert(chosen, Err("cancelled".to_owned()));
            assert_eq!(before, None, "{chosen} had ended");
            self.cancelled.insert(self.names[&chosen].clone());
        }
    }

    fn check_results(&self, program: &Program, roots: &[JobId]) {
        let records = self.record.lock();
        for (number, root) in (0..).zip(roots) {
            let id = format!("flow{number}");
            if self.cancelled.contains(&id) {
                continue;
            }
            let interpreter = Interpreter {
                records: &records,
                cancelled: &self.cancelled,
                number,
            };
            let expected = interpreter.flow(program, &id).map(|value| value.to_string());
            assert_eq!(self.ended.get(root), Some(&expected), "{id} of {program:?}");
        }
    }

    async fn check(&self, program: &Program, roots: &[JobId]) {
        self.check_results(program, roots);
        let batch = roots[0].batch;
        let outcomes = self.store.outcomes(batch).await.unwrap().unwrap();
        assert_eq!(outcomes.ended(), outcomes.count, "each flow has ended once");
        for report in &outcomes.reports {
            let values = report.values.iter().flat_map(|values| values.items());
            for (position, value) in report.positions.iter().zip(values) {
                let accepted = self.ended.get(&job(batch, position));
                assert_eq!(
                    accepted,
                    Some(&Ok(value.to_owned())),
                    "the stored value of {batch}:{position}"
                );
            }
        }
        no_damage(&*self.store).await;
    }
}

/// The number of ended children that a flow sees, if others are open or some are given up: as workers count them.
fn seen(children: Option<&Vec<ChildOutcome>>, gives_up: bool) -> Vec<u32> {
    match seen_of(children.map_or(&[][..], Vec::as_slice)) {
        Some(seen) => vec![seen],
        None if gives_up => vec![u32::MAX],
        None => Vec::new(),
    }
}

/// The completed jobs of two answers. Answers come in the order of the jobs.
fn joined(mut before: Completed, next: Completed) -> Completed {
    before.positions = before.positions.union(&next.positions);
    before.values = PackedArray::concat([&before.values, &next.values]);
    before.durations_us.extend(next.durations_us);
    before
}

fn at(slice: &LeasedSlice, place: u32) -> u32 {
    let place = Positions::from(place..place + 1);
    slice.positions.select(&place).first().unwrap_or_default()
}

/// Some jobs of a slice.
fn part(slice: &LeasedSlice, positions: &Positions) -> LeasedSlice {
    let places = slice.positions.indexes_of(positions);
    LeasedSlice {
        payloads: slice.payloads.select(&places),
        memos: slice.memos.as_ref().map(|memos| memos.select(&places)),
        positions: positions.clone(),
        ..slice.clone()
    }
}

/// Runs steps that are no flows.
fn run_steps(slice: &LeasedSlice) -> Report {
    let mut all = report(slice);
    let (mut positions, mut values) = (Positions::new(), PackedBuilder::new());
    for (position, payload) in slice.positions.iter().zip(slice.payloads.items()) {
        let StepPayload { id, failing } = serde_json::from_str(payload).unwrap();
        if slice.attempt <= failing {
            all.failed.push(FailedJob {
                position,
                error: JobError::new("Told", id),
                duration_us: 1,
            });
        } else {
            positions.insert(position);
            values.push_value(&value_of(&id)).unwrap();
        }
    }
    if !positions.is_empty() {
        all.completed = Some(Completed {
            durations_us: positions.iter().collect(),
            values: values.finish(),
            positions,
        });
    }
    all
}
