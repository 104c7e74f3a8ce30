//! The loop of a worker: it claims, runs and commits. One exchange carries the next claim and the last commit while
//! handlers run.

pub mod delivery;
mod ending;
mod exchange;
pub(crate) mod idleness;
#[cfg(all(test, shuttle))]
mod interleavings;
mod outage;
mod preemption;
pub(crate) mod pulse;
mod repeats;
pub mod report_buffer;
mod run_spans;
mod runner_changes;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use gristmill_model::{Clock, Positions};
use gristmill_store::Heartbeat;
use tokio::sync::mpsc;

use crate::claims::give_back::GiveBack;
use crate::claims::held_slice::HeldSlice;
use crate::claims::lane::Lane;
use crate::claims::{Claims, Holding};
use crate::dispatch::{DispatchSettings, Dispatcher};
use crate::handler::micro_batch::Part;
use crate::handler::runners::RunnerListener;
use crate::handler::{Handler, Outcomes};
use crate::heart::Heart;
use crate::hops::HopRecorder;
use crate::io::IoRate;
use crate::mill::delivery::{Delivery, DeliveryEvent, DeliveryId, Shared};
use crate::mill::outage::Outage;
use crate::mill::pulse::Pulse;
use crate::mill::repeats::Repeats;
use crate::mill::report_buffer::ReportBuffer;
use crate::mill::run_spans::RunSpans;
use crate::observer::Observer;
use crate::pressure::Gauge;
use crate::settings::{REPORTS_PENDING_BYTES_MAX, WorkerSettings};
use crate::source::{Source, SourceError};
use crate::stopper::Stopper;
use crate::summary::WorkerSummary;
use ending::Ending;
use exchange::{Offer, Renewal, Trip, answer, travel};

pub(crate) struct Mill {
    source: Arc<dyn Source>,
    settings: WorkerSettings,
    observer: Arc<dyn Observer>,
    clock: Arc<dyn Clock>,
    hops: HopRecorder,
    /// The lanes, by the number of their kind.
    lanes: Vec<Lane>,
    kinds: HashMap<Arc<str>, usize>,
    dispatcher: Dispatcher,
    /// The moment from which the dispatcher counts time.
    began: Instant,
    deliveries: BTreeMap<DeliveryId, Arc<Delivery>>,
    deliveries_begun: u64,
    shared: Shared,
    events: mpsc::UnboundedReceiver<DeliveryEvent>,
    repeats: Repeats,
    gauge: Gauge,
    /// The time of the next look for jobs that do not wait for a slot.
    look_for_urgent_at: Instant,
    claims: Claims,
    give_back: GiveBack,
    reports: ReportBuffer,
    spans: RunSpans,
    trip: Option<BoxFuture<'static, Trip>>,
    /// Whether a runner has come back since the trip began: its claim may leave out the kind of this runner.
    is_trip_outdated: bool,
    /// The claim that the source may fulfil while this worker waits.
    offer: Option<Offer>,
    /// The time at which the next exchange may begin, while outcomes gather for it.
    trip_at: Option<Instant>,
    outage: Option<Outage>,
    pulse: Pulse,
    /// The state of the end, after the worker was asked to stop.
    ending: Option<Ending>,
    /// The registration that the next trip does before its exchange.
    renewal: Renewal,
    fatal: Option<SourceError>,
    /// The reason a handler runs no jobs any more. The worker ends after its other jobs have ended and their outcomes
    /// are committed.
    failed: Option<SourceError>,
    summary: WorkerSummary,
}

impl Mill {
    pub(crate) fn new(
        source: Arc<dyn Source>,
        settings: WorkerSettings,
        observer: Arc<dyn Observer>,
        clock: Arc<dyn Clock>,
        handlers: HashMap<Arc<str>, Arc<dyn Handler>>,
        heart: &Heart,
    ) -> Self {
        let lanes: Vec<Lane> = handlers
            .into_iter()
            .map(|(kind, handler)| Lane::new(kind, handler, &settings))
            .collect();
        let capacities: Vec<_> = lanes.iter().map(|lane| lane.handler.capacity()).collect();
        let dispatcher = Dispatcher::new(
            DispatchSettings {
                busy_runners_max: settings.concurrency.max(1),
                window_target: settings.window_target,
                micro_batch_jobs_max: settings.micro_batch_jobs_max.max(1),
            },
            &capacities,
        );
        let (sender, events) = mpsc::unbounded_channel();
        for (number, lane) in (0..).zip(&lanes) {
            let events = sender.clone();
            let tell = move |change| drop(events.send(DeliveryEvent::RunnerChanged { kind: number, change }));
            lane.handler.listen(RunnerListener::new(tell));
        }
        let now = Instant::now();
        Mill {
            source,
            observer,
            clock,
            hops: heart.stats(),
            kinds: (0..)
                .zip(&lanes)
                .map(|(number, lane)| (lane.kind.clone(), number))
                .collect(),
            give_back: GiveBack::default(),
            lanes,
            claims: Claims::new(&settings, dispatcher.free_slots_of_all()),
            dispatcher,
            began: now,
            deliveries: BTreeMap::new(),
            deliveries_begun: 0,
            shared: Shared {
                draining: Arc::default(),
                board: heart.board(),
                output: heart.output(),
                cancel_grace: settings.cancel_grace,
                events: sender,
            },
            events,
            repeats: Repeats::default(),
            gauge: Gauge::new(settings.backpressure.clone()),
            look_for_urgent_at: now,
            reports: ReportBuffer::default(),
            spans: RunSpans::default(),
            trip: None,
            is_trip_outdated: false,
            offer: None,
            trip_at: None,
            outage: None,
            pulse: heart.pulse(),
            ending: None,
            renewal: Renewal::None,
            fatal: None,
            failed: None,
            summary: WorkerSummary::default(),
            settings,
        }
    }

    /// Turns the loop until there is a reason to end. Returns the heart, which still beats.
    pub(crate) async fn turn(
        mut self,
        mut heart: Heart,
        stopper: &Stopper,
    ) -> (Heart, Result<WorkerSummary, SourceError>) {
        let source = self.source.clone();
        let mut stop = stopper.asked();
        // The loop turns at least this often, so that the heart notices it.
        let mut beat = tokio::time::interval(self.pulse.every);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.pulse.turned(Instant::now());
            self.come_to_an_end();
            let look_at = self.dispatch();
            self.preempt();
            self.begin_trip();
            self.show_idleness();
            if self.is_done() {
                break;
            }
            let draining = self.is_draining();
            let waiting = self.claims.look_again_at().filter(|_| !draining);
            self.wait_at_source(waiting.is_some());
            let ends_at = self.ends_at().filter(|_| draining);
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => {
                    self.take_event(event);
                    while let Ok(event) = self.events.try_recv() {
                        self.take_event(event);
                    }
                }
                trip = travel(&mut self.trip), if self.trip.is_some() => {
                    self.trip = None;
                    self.arrive(trip);
                }
                Some(heartbeat) = heart.answer() => {
                    self.take_heartbeat(&heartbeat);
                    if heartbeat.drain && !draining {
                        tracing::info!("the worker was asked to drain");
                        stopper.stop();
                    }
                }
                _ = stop.wait_for(|stop| *stop), if !draining => self.begin_drain(),
                _ = beat.tick() => {}
                () = sleep_until(ends_at), if ends_at.is_some() => {}
                exchanged = answer(&mut self.offer), if self.offer.is_some() => self.take_offered(exchanged),
                () = source.wait_for_work(), if waiting.is_none() && self.may_be_preempted() => {
                    self.look_for_urgent_at = Instant::now();
                }
                () = sleep_until(Some(self.look_for_urgent_at)), if self.may_be_preempted() && self.trip.is_none() => {}
                () = sleep_until(waiting), if waiting.is_some() => self.claims.announce(),
                () = sleep_until(look_at), if look_at.is_some() => {}
                () = sleep_until(self.trip_at), if self.trip_at.is_some() => {}
            }
        }
        assert!(
            self.deliveries.is_empty(),
            "a worker ends without a running delivery"
        );
        if self.fatal.is_none() {
            assert!(
                self.waiting() == 0 && self.reports.is_empty() && self.trip.is_none(),
                "a worker without an error ends after its jobs and reports"
            );
            assert!(
                self.repeats.is_empty(),
                "a worker without jobs keeps no failures of earlier attempts"
            );
        }
        let error = self.fatal.take().or(self.failed.take());
        let ended = error.map_or(Ok(self.summary), Err);
        (heart, ended)
    }

    /// Tells the heart whether the worker runs nothing although it could. Then the heart asks why from time to time.
    fn show_idleness(&mut self) {
        let is_busy = !self.deliveries.is_empty() || self.waiting() > 0;
        if is_busy || self.is_draining() || self.outage.is_some() || !self.can_run_any() {
            self.pulse.is_busy();
            return;
        }
        let (pulse, after) = (self.pulse.clone(), self.settings.asks_why_after);
        pulse.is_idle(Instant::now(), after, || self.want(1, false));
    }

    fn is_draining(&self) -> bool {
        self.shared.draining.load(Ordering::Relaxed)
    }

    fn waiting(&self) -> u64 {
        self.lanes.iter().map(Lane::waiting).sum()
    }

    fn holding(&self) -> Holding {
        Holding {
            waiting: self.waiting(),
            free_slots: self.dispatcher.free_slots_of_all(),
            is_running: !self.deliveries.is_empty(),
            has_reports: !self.reports.is_empty(),
        }
    }

    fn is_done(&self) -> bool {
        if self.fatal.is_some() {
            return self.deliveries.is_empty();
        }
        let idle = self.deliveries.is_empty()
            && self.trip.is_none()
            && self.reports.is_empty()
            && self.waiting() == 0;
        // Jobs of kinds that cannot run now are not claimed, and may wait at the source.
        let empty = self.can_run_all()
            && self.claims.is_dry().is_some_and(|more_later| {
                self.settings.until_idle || (self.settings.until_empty && !more_later)
            });
        idle && (self.is_draining() || self.claims.is_used_up() || empty)
    }

    // --- Run ---

    /// The time on the dispatcher's clock.
    fn since_began(&self) -> Duration {
        self.began.elapsed()
    }

    /// Gives jobs to runners, and recalls jobs for free slots elsewhere. Returns the time of the next check.
    fn dispatch(&mut self) -> Option<Instant> {
        self.give_up_unrunnable();
        if self.is_draining() || self.reports.weight_bytes() > REPORTS_PENDING_BYTES_MAX {
            return None;
        }
        let mut order: Vec<usize> = (0..self.lanes.len()).collect();
        let mut gave = true;
        // Each kind gets one micro-batch in turn, so that no kind waits for the backlog of another.
        while gave {
            gave = false;
            if self.settings.preempt_from.is_some() {
                order.sort_by_key(|kind| Reverse(self.lanes[*kind].urgency()));
            }
            for kind in &order {
                gave |= self.give(*kind);
            }
        }
        for kind in order {
            let waiting = self.lanes[kind].waiting();
            let now = self.since_began();
            while let Some(runner) = self.dispatcher.recall(kind, waiting, now) {
                tracing::debug!(kind = %self.lanes[kind].kind, runner, "recalled unbegun jobs");
                self.lanes[kind].handler.recall(runner);
            }
        }
        self.give_back();
        let is_held_back = |lane: &Lane| lane.waiting() > 0 && !self.has_io_for(lane);
        if self.dispatcher.free_slots_of_all() > 0 && !self.lanes.iter().any(is_held_back) {
            self.claims.ran_dry();
        }
        self.look_at()
    }

    /// The time at which a runner may be stale, or waiting jobs have waited too long.
    fn look_at(&self) -> Option<Instant> {
        let lanes = (0..).zip(&self.lanes);
        let stale = lanes.filter_map(|(kind, lane)| self.dispatcher.look_at(kind, lane.waiting()));
        let stale = stale.min().map(|at| self.began + at);
        let stalled = (self.waiting() > 0 && self.dispatcher.free_slots_of_all() == 0)
            .then(|| self.began + self.give_back.stalled_at())
            .filter(|at| *at > Instant::now());
        stale.into_iter().chain(stalled).min()
    }

    /// Gives jobs of a kind to one runner, if a runner can take some. Returns whether it did.
    fn give(&mut self, kind: usize) -> bool {
        let lane = &self.lanes[kind];
        let now = self.since_began();
        let Some(next) = self.dispatcher.next(kind, lane.waiting(), now) else {
            return false;
        };
        if !self.has_io_for(lane) {
            return false;
        }
        let Some((mut work, end_reason)) = self.lanes[kind].take_micro_batch(next.runner, next.jobs_max)
        else {
            return false;
        };
        let jobs = work.jobs_count();
        assert!(
            jobs > 0 && jobs <= next.jobs_max,
            "a runner that takes up to {} jobs gets {jobs}",
            next.jobs_max
        );
        self.hops.record("run", u64::from(jobs), end_reason);
        self.dispatcher.gave(kind, next.runner, jobs, now);
        self.give_back.gave(now);
        self.deliveries_begun += 1;
        let id = DeliveryId(self.deliveries_begun);
        self.spans.begin(id, &mut work);
        let delivery = Delivery::new(id, kind, next.runner, work, &self.shared);
        let before = self.deliveries.insert(id, delivery.clone());
        assert!(before.is_none(), "each delivery has its own id");
        tokio::spawn(delivery.run(self.lanes[kind].handler.clone(), self.source.clone()));
        true
    }

    /// Reports whether one more micro-batch of a kind stays within the budget of bytes. A kind that moves nothing
    /// always does. So does any kind while nothing else moves bytes.
    fn has_io_for(&self, lane: &Lane) -> bool {
        let Some(budget) = self.settings.io_budget.filter(|_| !lane.io_rate().is_zero()) else {
            return true;
        };
        let in_use: IoRate = self.lanes.iter().map(Lane::io_in_use).sum();
        in_use.is_zero() || (in_use + lane.io_rate()).fits(budget)
    }

    /// Gives jobs back to the source that cannot begin soon.
    fn give_back(&mut self) {
        let waiting = self.waiting();
        if waiting == 0 || self.dispatcher.free_slots_of_all() > 0 {
            self.give_back.nothing_waits();
            return;
        }
        let now = self.since_began();
        let is_pausing = |delivery: &Arc<Delivery>| delivery.is_pausing();
        if self.give_back.is_stalled(now) && !self.deliveries.values().any(is_pausing) {
            self.claims.stalled();
            (0..self.lanes.len()).for_each(|kind| self.give_back_last(kind, u64::MAX));
            // The remaining jobs wait for a slot, however long.
            self.give_back.gave(now);
            return;
        }
        let surplus = self.give_back.surplus(waiting, self.claims.soon(), now);
        if surplus == 0 {
            return;
        }
        let mut shared_out = 0;
        for kind in 0..self.lanes.len() {
            let of_kind = u128::from(self.lanes[kind].waiting());
            let share = u128::from(surplus) * of_kind / u128::from(waiting);
            shared_out += share as u64;
            self.give_back_last(kind, share as u64);
        }
        assert!(
            shared_out <= surplus,
            "the kinds give back {shared_out} jobs, more than the surplus of {surplus}"
        );
    }

    fn give_back_last(&mut self, kind: usize, jobs: u64) {
        for held in self.lanes[kind].take_last(jobs) {
            match held.repeats {
                0 => {
                    let (kind, jobs) = (&self.lanes[kind].kind, held.len());
                    tracing::debug!(%kind, jobs, "gave back what cannot begin soon");
                    self.release(&held);
                }
                // Only this worker knows the failures of these jobs.
                _ => self.lanes[kind].put_back(held),
            }
        }
    }

    fn take_event(&mut self, event: DeliveryEvent) {
        match event {
            DeliveryEvent::Answered {
                delivery,
                part,
                outcomes,
            } => {
                if let Some(delivery) = self.deliveries.get(&delivery).cloned() {
                    self.take_answer(&delivery, part, *outcomes);
                }
            }
            DeliveryEvent::Ended { delivery, elapsed } => {
                let Some(delivery) = self.deliveries.remove(&delivery) else {
                    return;
                };
                assert!(
                    delivery.is_answered(),
                    "a delivery ends after each of its jobs was answered"
                );
                self.spans.end(delivery.id, elapsed);
                self.note_movement();
                let jobs = delivery.jobs_count();
                self.lanes[delivery.kind].ended(elapsed, delivery.io());
                self.dispatcher.batch_ended(delivery.kind, jobs, elapsed);
                if self.deliveries.is_empty() {
                    self.claims.is_idle();
                }
                let hold_target = self.claims.hold_target();
                self.claims.fits(self.dispatcher.jobs_within(hold_target));
            }
            DeliveryEvent::RunnerChanged { kind, change } => self.take_change(kind, change),
        }
    }

    fn take_answer(&mut self, delivery: &Delivery, number: usize, mut outcomes: Outcomes) {
        let (part, now) = (delivery.part(number), self.since_began());
        let returned = std::mem::take(&mut outcomes.returned);
        if !returned.is_empty() {
            self.dispatcher
                .returned(delivery.kind, delivery.runner, returned.len(), now);
            self.spans.returned(delivery.id, part, returned.len());
            self.take_returned(delivery, part, returned);
        }
        let jobs = outcomes.positions().len();
        if jobs == 0 {
            return;
        }
        let completed = outcomes.completed.iter();
        let completed = completed.flat_map(|completed| completed.durations_us.iter().copied());
        let failed = outcomes.failed.iter().map(|failed| failed.duration_us);
        let durations_us = completed
            .chain(failed)
            .chain(outcomes.suspended_us.iter().copied());
        self.dispatcher
            .answered(delivery.kind, delivery.runner, jobs, durations_us, now);
        self.claims.ran(jobs, Instant::now());
        self.claims.given_back(u64::from(outcomes.released.len()));
        self.spans.answered(delivery.id, part, &outcomes);
        if !self.is_draining() && !delivery.is_pausing() {
            let is_cancelled = |position| delivery.is_cancelled(part, position);
            if let Some(again) = self.repeats.keep(part, &mut outcomes, is_cancelled) {
                self.lanes[delivery.kind].put_back(again);
            }
        }
        for suspended in &outcomes.suspended {
            self.lanes[delivery.kind].wait(delivery.runner, part.batch(), &suspended.positions);
        }
        self.repeats.add_earlier(part, &mut outcomes);
        if !outcomes.is_empty() {
            self.spans.will_commit(part, &outcomes);
            self.report(&part.held, outcomes);
        }
    }

    /// Keeps recalled jobs for a free slot. Jobs that were cancelled meanwhile go back.
    fn take_returned(&mut self, delivery: &Delivery, part: &Part, returned: Positions) {
        let kept: Positions = returned
            .iter()
            .filter(|position| !delivery.is_cancelled(part, *position))
            .collect();
        let held = part.held.select(&kept);
        if self.is_draining() {
            self.give_up(&held);
        } else {
            self.lanes[delivery.kind].put_back(held);
        }
        let cancelled = returned.difference(&kept);
        if !cancelled.is_empty() {
            let cancelled = part.held.select(&cancelled);
            self.give_up(&cancelled);
        }
    }

    fn report(&mut self, held: &HeldSlice, outcomes: Outcomes) {
        let slice = &held.slice;
        self.reports
            .add(slice.lease, slice.batch, slice.attempt, held.repeats, outcomes);
    }

    // --- Lose and give back ---

    fn take_heartbeat(&mut self, heartbeat: &Heartbeat) {
        if !heartbeat.known {
            tracing::warn!(
                "the leases were lost, because no heartbeat arrived for too long; the worker registers again"
            );
            self.lose_leases();
            self.renewal = Renewal::BeginAnew;
            return;
        }
        for revoked in &heartbeat.revoked {
            for dropped in self.lanes.iter_mut().flat_map(|lane| lane.revoke(revoked)) {
                self.repeats.forget_held(&dropped);
            }
            for delivery in self.deliveries.values() {
                delivery.revoke(revoked);
            }
        }
    }

    /// Drops all jobs, including the running ones.
    fn lose_leases(&mut self) {
        for lane in &mut self.lanes {
            for dropped in lane.take_all() {
                self.repeats.forget_held(&dropped);
            }
        }
        for delivery in self.deliveries.values() {
            delivery.revoke_all();
        }
    }

    fn begin_drain(&mut self) {
        self.shared.draining.store(true, Ordering::Relaxed);
        self.ending.get_or_insert(Ending::begun(Instant::now()));
        self.give_up_waiting();
    }

    fn give_up_waiting(&mut self) {
        let waiting: Vec<HeldSlice> = self.lanes.iter_mut().flat_map(Lane::take_all).collect();
        for held in waiting {
            self.give_up(&held);
        }
    }

    /// Reports jobs that will not run here. Jobs that failed before are reported with their last failure, and the
    /// others as released.
    fn give_up(&mut self, held: &HeldSlice) {
        match self.repeats.last_failures(held) {
            Some((failed, outcomes)) => self.report(&failed, outcomes),
            None => self.release(held),
        }
    }

    fn release(&mut self, held: &HeldSlice) {
        self.claims.given_back(u64::from(held.len()));
        let outcomes = Outcomes {
            released: held.slice.positions.clone(),
            ..Outcomes::default()
        };
        self.report(held, outcomes);
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
