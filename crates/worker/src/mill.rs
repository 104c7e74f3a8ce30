//! The loop: claim → run → commit. The next claim and the last commit travel, in one exchange, while handlers run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use gristmill_batching::EndReason;
use gristmill_model::limits::{LEASE_BYTES_TARGET, LEASE_JOBS_MAX, LEASE_SLICES_MAX};
use gristmill_model::{Clock, Lease, Positions, Receipt, Report};
use gristmill_store::{Exchanged, Heartbeat, Want};
use tokio::sync::{mpsc, watch};

use crate::claims::{Claimed, Claims, Holding};
use crate::delivery::{Delivery, DeliveryEvent, DeliveryId, Shared};
use crate::dispatch::{DispatchSettings, Dispatcher, STUCK_AFTER};
use crate::handler::{Handler, Outcomes};
use crate::heart::Heart;
use crate::hops::HopRecorder;
use crate::io::IoRate;
use crate::lane::{HeldSlice, Lane};
use crate::micro_batch::Part;
use crate::observer::Observer;
use crate::outage::Outage;
use crate::pressure::{Admission, Gauge};
use crate::repeats::Repeats;
use crate::report_buffer::ReportBuffer;
use crate::settings::{REPORTS_GATHERED_BYTES_MAX, REPORTS_PENDING_BYTES_MAX, WorkerSettings};
use crate::source::{Source, SourceError, SourceErrorKind};
use crate::worker::WorkerSummary;

/// An exchange under way: what was sent and how many jobs were asked for, with the answer.
struct Trip {
    reports: Vec<Report>,
    asked: u32,
    /// Whether only what is urgent was asked for, beside what runs.
    urgent: bool,
    took: Duration,
    answer: Result<Exchanged, SourceError>,
}

/// A wish that waits at the source for jobs.
struct Offer {
    asked: u32,
    answer: BoxFuture<'static, Option<Exchanged>>,
}

pub(crate) struct Mill {
    source: Arc<dyn Source>,
    settings: WorkerSettings,
    observer: Arc<dyn Observer>,
    clock: Arc<dyn Clock>,
    hops: HopRecorder,
    /// By the number of their kind.
    lanes: Vec<Lane>,
    kinds: HashMap<Arc<str>, usize>,
    dispatcher: Dispatcher,
    /// The moment from which the dispatcher counts.
    began: Instant,
    deliveries: BTreeMap<DeliveryId, Arc<Delivery>>,
    deliveries_begun: u64,
    shared: Shared,
    events: mpsc::UnboundedReceiver<DeliveryEvent>,
    repeats: Repeats,
    gauge: Gauge,
    /// When it is looked again for jobs that do not wait for a slot.
    look_for_urgent_at: Instant,
    claims: Claims,
    /// When something was last given to a runner.
    gave_at: Instant,
    reports: ReportBuffer,
    trip: Option<BoxFuture<'static, Trip>>,
    /// What the source may claim for this worker while it waits.
    offer: Option<Offer>,
    /// When the next exchange may begin, where outcomes gather for it.
    trip_at: Option<Instant>,
    outage: Option<Outage>,
    fatal: Option<SourceError>,
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
            gave_at: now,
            reports: ReportBuffer::default(),
            trip: None,
            offer: None,
            trip_at: None,
            outage: None,
            fatal: None,
            summary: WorkerSummary::default(),
            settings,
        }
    }

    /// Turns until there is a reason to end. Gives the heart back, still beating.
    pub(crate) async fn turn(
        mut self,
        mut heart: Heart,
        mut stop: watch::Receiver<bool>,
    ) -> (Heart, Result<WorkerSummary, SourceError>) {
        let source = self.source.clone();
        loop {
            let look_at = self.dispatch();
            self.preempt();
            self.begin_trip();
            if self.is_done() {
                break;
            }
            let draining = self.is_draining();
            let waiting = self.claims.look_again_at().filter(|_| !draining);
            self.wait_at_source(waiting.is_some());
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
                Some(heartbeat) = heart.answer() => self.take_heartbeat(&heartbeat),
                _ = stop.wait_for(|stop| *stop), if !draining => self.begin_drain(),
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
        let ended = self.fatal.take().map_or(Ok(self.summary), Err);
        (heart, ended)
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
        let empty = self
            .claims
            .is_dry()
            .is_some_and(|more_later| self.settings.until_idle || (self.settings.until_empty && !more_later));
        idle && (self.is_draining() || self.claims.is_used_up() || empty)
    }

    // --- run ---

    /// The time as the dispatcher counts it.
    fn since_began(&self) -> Duration {
        self.began.elapsed()
    }

    /// Gives to runners what can begin, and recalls what is of more use elsewhere. Returns when to look again.
    fn dispatch(&mut self) -> Option<Instant> {
        if self.is_draining() || self.reports.weight_bytes() > REPORTS_PENDING_BYTES_MAX {
            return None;
        }
        let mut order: Vec<usize> = (0..self.lanes.len()).collect();
        let mut gave = true;
        // One micro-batch of each kind in turn, so that none waits for another's backlog.
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
                tracing::debug!(kind = %self.lanes[kind].kind, runner, "recalled what has not begun");
                self.lanes[kind].handler.recall(runner);
            }
        }
        self.give_back_stalled();
        let is_held_back = |lane: &Lane| lane.waiting() > 0 && !self.has_io_for(lane);
        if self.dispatcher.free_slots_of_all() > 0 && !self.lanes.iter().any(is_held_back) {
            self.claims.ran_dry();
        }
        self.look_at()
    }

    /// When a runner may be stale, or what waits here has waited too long.
    fn look_at(&self) -> Option<Instant> {
        let lanes = (0..).zip(&self.lanes);
        let stale = lanes.filter_map(|(kind, lane)| self.dispatcher.look_at(kind, lane.waiting()));
        let stale = stale.min().map(|at| self.began + at);
        let stalled = (self.waiting() > 0 && self.dispatcher.free_slots_of_all() == 0)
            .then(|| self.gave_at + STUCK_AFTER)
            .filter(|at| *at > Instant::now());
        stale.into_iter().chain(stalled).min()
    }

    /// Gives jobs of a kind to one runner, if any can take some.
    fn give(&mut self, kind: usize) -> bool {
        let lane = &self.lanes[kind];
        let now = self.since_began();
        let Some(next) = self.dispatcher.next(kind, lane.waiting(), now) else {
            return false;
        };
        if !self.has_io_for(lane) {
            return false;
        }
        let Some((work, end_reason)) = self.lanes[kind].take_micro_batch(next.jobs_max) else {
            return false;
        };
        let jobs = work.jobs_count();
        self.hops.record("run", u64::from(jobs), end_reason);
        self.dispatcher.gave(kind, next.runner, jobs, now);
        self.gave_at = Instant::now();
        self.deliveries_begun += 1;
        let id = DeliveryId(self.deliveries_begun);
        let delivery = Delivery::new(id, kind, next.runner, work, &self.shared);
        self.deliveries.insert(id, delivery.clone());
        tokio::spawn(delivery.run(self.lanes[kind].handler.clone(), self.source.clone()));
        true
    }

    /// Whether one more micro-batch of a kind stays within the budget of bytes. What moves nothing always does, and so
    /// does what is alone.
    fn has_io_for(&self, lane: &Lane) -> bool {
        let Some(budget) = self.settings.io_budget.filter(|_| !lane.io_rate().is_zero()) else {
            return true;
        };
        let in_use: IoRate = self.lanes.iter().map(Lane::io_in_use).sum();
        in_use.is_zero() || (in_use + lane.io_rate()).fits(budget)
    }

    /// Gives back to the source what waits here while every slot has been busy with the same jobs for a while: another
    /// worker may be idle.
    fn give_back_stalled(&mut self) {
        let is_stalled = self.waiting() > 0
            && self.gave_at.elapsed() >= STUCK_AFTER
            && self.dispatcher.free_slots_of_all() == 0
            && !self.deliveries.values().any(|delivery| delivery.is_pausing());
        if !is_stalled {
            return;
        }
        let jobs = self.waiting();
        tracing::debug!(jobs, "gave back what cannot begin soon");
        self.claims.stalled();
        for kind in 0..self.lanes.len() {
            for held in self.lanes[kind].take_all() {
                match held.repeats {
                    0 => self.release(&held),
                    // Its failures are known here alone.
                    _ => self.lanes[kind].push(held),
                }
            }
        }
        // What is left waits for a slot, however long.
        self.gave_at = Instant::now();
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
                let jobs = delivery.jobs_count();
                self.lanes[delivery.kind].ended(elapsed, delivery.io());
                self.dispatcher.batch_ended(delivery.kind, jobs, elapsed);
                if self.deliveries.is_empty() {
                    self.claims.is_idle();
                }
                let hold_target = self.claims.hold_target();
                self.claims.fits(self.dispatcher.jobs_within(hold_target));
            }
        }
    }

    fn take_answer(&mut self, delivery: &Delivery, number: usize, mut outcomes: Outcomes) {
        let (part, now) = (delivery.part(number), self.since_began());
        let returned = std::mem::take(&mut outcomes.returned);
        if !returned.is_empty() {
            self.dispatcher
                .returned(delivery.kind, delivery.runner, returned.len(), now);
            self.take_returned(delivery, part, returned);
        }
        let jobs = outcomes.positions().len();
        if jobs == 0 {
            return;
        }
        let completed = outcomes.completed.iter();
        let completed = completed.flat_map(|completed| completed.durations_us.iter().copied());
        let failed = outcomes.failed.iter().map(|failed| failed.duration_us);
        let durations_us = completed.chain(failed);
        self.dispatcher
            .answered(delivery.kind, delivery.runner, jobs, durations_us, now);
        self.claims.ran(jobs, Instant::now());
        self.claims.given_back(u64::from(outcomes.released.len()));
        if !self.is_draining() && !delivery.is_pausing() {
            let is_cancelled = |position| delivery.is_cancelled(part, position);
            if let Some(again) = self.repeats.keep(part, &mut outcomes, is_cancelled) {
                self.lanes[delivery.kind].push_front(again);
            }
        }
        self.repeats.add_earlier(part, &mut outcomes);
        if !outcomes.is_empty() {
            self.report(&part.held, outcomes);
        }
    }

    /// Keeps recalled jobs for a slot that is free, but for those that were cancelled meanwhile.
    fn take_returned(&mut self, delivery: &Delivery, part: &Part, returned: Positions) {
        let kept: Positions = returned
            .iter()
            .filter(|position| !delivery.is_cancelled(part, *position))
            .collect();
        let held = part.held.select(&kept);
        match self.is_draining() {
            true => self.give_up(&held),
            false => self.lanes[delivery.kind].push_front(held),
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

    // --- making room for what is urgent ---

    /// Whether something urgent could take the slot of something that runs.
    fn may_be_preempted(&self) -> bool {
        let Some(level) = self.settings.preempt_from else {
            return false;
        };
        self.dispatcher.free_slots_of_all() == 0
            && !self.is_draining()
            && !self.claims.is_used_up()
            && self.urgent_lanes(level) == 0
            && !self.pausable(level).is_empty()
    }

    /// How many kinds have something waiting that does not wait for a slot.
    fn urgent_lanes(&self, level: i16) -> usize {
        let urgencies = self.lanes.iter().filter_map(Lane::urgency);
        urgencies.filter(|priority| *priority >= level).count()
    }

    /// The runners whose jobs are all less urgent and can be paused, and were not asked to make room yet: the least urgent
    /// first, and of these the one that began last.
    fn pausable(&self, level: i16) -> Vec<(usize, usize)> {
        let mut runners: BTreeMap<(usize, usize), (i16, DeliveryId, bool)> = BTreeMap::new();
        for delivery in self.deliveries.values() {
            let runner =
                runners
                    .entry((delivery.kind, delivery.runner))
                    .or_insert((i16::MIN, delivery.id, false));
            runner.0 = runner.0.max(delivery.priority);
            runner.2 |= delivery.is_pausing();
        }
        runners.retain(|(kind, _), (priority, _, is_pausing)| {
            self.lanes[*kind].is_pausable() && *priority < level && !*is_pausing
        });
        let mut ordered: Vec<_> = runners.into_iter().collect();
        ordered.sort_by_key(|(_, (priority, first, _))| (*priority, Reverse(*first)));
        ordered.into_iter().map(|(runner, _)| runner).collect()
    }

    /// Asks runners to make room, as many as urgent jobs need.
    fn preempt(&mut self) {
        let Some(level) = self.settings.preempt_from else {
            return;
        };
        let urgent = self.urgent_lanes(level);
        if urgent == 0 || self.dispatcher.free_slots_of_all() > 0 || self.is_draining() {
            return;
        }
        let pausing = self.deliveries.values().filter(|delivery| delivery.is_pausing());
        let on_the_way: std::collections::BTreeSet<_> =
            pausing.map(|delivery| (delivery.kind, delivery.runner)).collect();
        let needed = urgent.saturating_sub(on_the_way.len());
        for (kind, runner) in self.pausable(level).into_iter().take(needed) {
            tracing::debug!(kind = %self.lanes[kind].kind, runner, "asked to make room for something urgent");
            let of_runner = |delivery: &&Arc<Delivery>| (delivery.kind, delivery.runner) == (kind, runner);
            self.deliveries
                .values()
                .filter(of_runner)
                .for_each(|delivery| delivery.pause());
        }
    }

    // --- commit and claim ---

    /// Leaves a wish with the source while there is nothing to claim, so that it can claim for this worker at once.
    fn wait_at_source(&mut self, is_dry: bool) {
        if !is_dry {
            self.offer = None;
        } else if self.offer.is_none() {
            let asked = match self.is_held_off() {
                true => 0,
                false => self.claims.would_want(self.holding()),
            };
            let want = (asked > 0).then(|| self.want(asked, false));
            let source = self.source.clone();
            let answer = Box::pin(async move { source.wait_for_claim(want).await });
            self.offer = Some(Offer { asked, answer });
        }
    }

    /// Whether the machine is too busy for further jobs.
    fn is_held_off(&mut self) -> bool {
        self.gauge.admits(Instant::now()) == Some(Admission::Nothing)
    }

    fn take_offered(&mut self, exchanged: Option<Exchanged>) {
        let asked = self.offer.take().map_or(0, |offer| offer.asked);
        match exchanged {
            Some(exchanged) => self.take_claim(asked, exchanged),
            None => self.claims.announce(),
        }
    }

    /// What the worker asks a source for.
    fn want(&mut self, jobs_max: u32, urgent: bool) -> Want {
        Want {
            jobs_max,
            queues: self.settings.queues.clone(),
            kinds: self.lanes.iter().map(|lane| lane.kind.clone()).collect(),
            priority_min: match self.gauge.admits(Instant::now()) {
                _ if urgent => self.settings.preempt_from,
                Some(Admission::From(priority)) => Some(priority),
                _ => None,
            },
        }
    }

    fn begin_trip(&mut self) {
        self.trip_at = None;
        if self.trip.is_some() || self.fatal.is_some() {
            return;
        }
        let now = Instant::now();
        if let Some(outage) = self.outage.filter(|outage| outage.again_at > now) {
            self.trip_at = Some(outage.again_at);
            return;
        }
        let holding = self.holding();
        let mut asked = self.wanted_jobs(holding, now);
        let urgent = asked == 0 && self.may_be_preempted() && self.look_for_urgent_at <= now;
        if urgent {
            self.look_for_urgent_at = now + self.settings.poll_every;
            let slots = u32::try_from(self.settings.concurrency).unwrap_or(u32::MAX);
            let left = u32::try_from(self.claims.left()).unwrap_or(u32::MAX);
            asked = slots.min(LEASE_JOBS_MAX).min(left);
        }
        if asked == 0 && self.reports.is_empty() {
            return;
        }
        let exchange_at = self.claims.exchange_at(asked, holding, now);
        let may_wait =
            !urgent && !self.is_draining() && self.reports.weight_bytes() < REPORTS_GATHERED_BYTES_MAX;
        if exchange_at > now && may_wait {
            self.trip_at = Some(exchange_at);
            return;
        }
        self.claims.exchange_began(now);
        let reports = self.reports.take();
        if !reports.is_empty() {
            let jobs = reports
                .iter()
                .map(|report| u64::from(report.positions().len()))
                .sum();
            self.hops.record("commit", jobs, EndReason::Drained);
        }
        let want = (asked > 0).then(|| self.want(asked, urgent));
        if want.is_some() {
            // It is asked once, not twice.
            self.offer = None;
        }
        let source = self.source.clone();
        self.trip = Some(Box::pin(async move {
            let answer = match source.exchange(reports.clone(), want.clone()).await {
                Err(error) if error.kind == SourceErrorKind::Unregistered => match source.register().await {
                    Ok(()) => source.exchange(reports.clone(), want).await,
                    Err(error) => Err(error),
                },
                answer => answer,
            };
            Trip {
                reports,
                asked,
                urgent,
                took: now.elapsed(),
                answer,
            }
        }));
    }

    fn wanted_jobs(&mut self, holding: Holding, now: Instant) -> u32 {
        if self.is_draining() {
            return 0;
        }
        let wanted = self.claims.wanted(holding, now);
        if wanted > 0 && self.is_held_off() {
            self.claims.hold_off(now + self.gauge.again_after());
            return 0;
        }
        wanted
    }

    fn arrive(&mut self, trip: Trip) {
        match trip.answer {
            Ok(exchanged) => {
                self.outage = None;
                for (report, receipt) in trip.reports.iter().zip(&exchanged.receipts) {
                    self.count(report, receipt);
                    self.observer.committed(report, receipt);
                }
                let in_vain = trip.urgent && exchanged.lease.is_none();
                if trip.asked > 0 && !in_vain {
                    if exchanged.lease.is_some() {
                        self.claims.exchange_took(trip.took);
                    }
                    self.take_claim(trip.asked, exchanged);
                } else if self.claims.is_limited()
                    || trip.reports.iter().any(|report| self.may_bring_work(report))
                {
                    self.claims.announce();
                }
            }
            Err(error) => self.take_failed_trip(trip.reports, error),
        }
    }

    /// Whether something may be claimable after a report that was not before: what failed is tried again, at once or
    /// later, what was spawned is there, and what waited for a job may run. The last of these matters only with
    /// `until_empty` or `until_idle`.
    fn may_bring_work(&self, report: &Report) -> bool {
        !report.failed.is_empty()
            || !report.writes.is_empty()
            || !report.suspended.is_empty()
            || !report.siblings.is_empty()
            || self.settings.until_empty
            || self.settings.until_idle
    }

    fn count(&mut self, report: &Report, receipt: &Receipt) {
        let refused = |position: u32| receipt.refused.contains(position);
        if let Some(completed) = &report.completed {
            let lost = completed.positions.intersection(&receipt.refused).len();
            let failed = receipt.failed.len();
            self.summary.completed += u64::from((completed.positions.len() - lost).saturating_sub(failed));
            self.summary.failed += u64::from(failed);
        }
        let failed = report.failed.iter().map(|failed| failed.position);
        let earlier = report.earlier.iter().map(|earlier| earlier.position);
        self.summary.failed += failed
            .chain(earlier)
            .filter(|position| !refused(*position))
            .count() as u64;
        if !receipt.refused.is_empty() {
            self.summary.refused += u64::from(receipt.refused.len());
            tracing::info!(batch = %report.batch, positions = %receipt.refused, "outcomes refused: the lease no longer holds these jobs");
        }
    }

    fn take_claim(&mut self, asked: u32, exchanged: Exchanged) {
        let Exchanged {
            lease,
            next_run_at,
            limited,
            ..
        } = exchanged;
        let got = lease.as_ref().map_or(0, Lease::jobs);
        let bytes: usize = lease
            .iter()
            .flat_map(|lease| &lease.slices)
            .map(|slice| slice.payloads.as_str().len())
            .sum();
        let slices = lease.as_ref().map_or(0, |lease| lease.slices.len());
        let is_full = got >= asked || bytes >= LEASE_BYTES_TARGET || slices >= LEASE_SLICES_MAX as usize;
        let until_next = next_run_at.map(|at| at.since_ms(self.clock.now()).max(1) as u64);
        let claimed = Claimed {
            asked,
            got,
            is_cut: is_full || !self.source.gives_all(),
            until_next: until_next.map(Duration::from_millis),
            limited,
        };
        self.claims.claimed(claimed, Instant::now());
        let Some(lease) = lease.filter(|_| got > 0) else {
            return;
        };
        let end_reason = match () {
            () if got >= asked && self.claims.is_used_up() => EndReason::Limit,
            () if got >= asked => EndReason::Full,
            () if bytes >= LEASE_BYTES_TARGET => EndReason::Bytes,
            () => EndReason::Drained,
        };
        self.hops.record("claim", u64::from(got), end_reason);
        self.observer.claimed(got);
        for slice in lease.slices {
            let kind = self.kinds.get(&slice.kind).copied();
            let held = HeldSlice::from(slice);
            match kind {
                Some(kind) => self.lanes[kind].push(held),
                // The source gave what was not asked for; it goes back.
                None => self.release(&held),
            }
        }
        if self.is_draining() {
            self.give_up_waiting();
        }
    }

    fn take_failed_trip(&mut self, reports: Vec<Report>, error: SourceError) {
        let now = Instant::now();
        let outage = Outage::after(self.outage, now);
        if error.kind == SourceErrorKind::Fatal || outage.lasted(now) > self.settings.give_up_after {
            self.begin_drain();
            self.fatal = Some(error);
            return;
        }
        tracing::warn!(%error, "the source did not answer; trying again");
        for report in reports {
            self.reports.add(
                report.lease,
                report.batch,
                report.attempt,
                report.repeats,
                Outcomes::from(report),
            );
        }
        self.outage = Some(outage);
    }

    // --- losing and giving back ---

    fn take_heartbeat(&mut self, heartbeat: &Heartbeat) {
        if !heartbeat.known {
            tracing::warn!("the leases were lost: no heartbeat arrived for too long; beginning anew");
            for lane in &mut self.lanes {
                lane.take_all();
            }
            for delivery in self.deliveries.values() {
                delivery.revoke_all();
            }
            return;
        }
        for revoked in &heartbeat.revoked {
            self.lanes.iter_mut().for_each(|lane| lane.revoke(revoked));
            for delivery in self.deliveries.values() {
                delivery.revoke(revoked);
            }
        }
    }

    fn begin_drain(&mut self) {
        self.shared.draining.store(true, Ordering::Relaxed);
        self.give_up_waiting();
    }

    fn give_up_waiting(&mut self) {
        let waiting: Vec<HeldSlice> = self.lanes.iter_mut().flat_map(Lane::take_all).collect();
        for held in waiting {
            self.give_up(&held);
        }
    }

    /// Reports jobs that do not run here any more: those that failed before with their last failure, the others as released.
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

async fn travel(trip: &mut Option<BoxFuture<'static, Trip>>) -> Trip {
    match trip {
        Some(trip) => trip.await,
        None => std::future::pending().await,
    }
}

async fn answer(offer: &mut Option<Offer>) -> Option<Exchanged> {
    match offer {
        Some(offer) => (&mut offer.answer).await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
