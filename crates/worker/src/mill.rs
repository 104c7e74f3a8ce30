//! The loop: claim → run → commit. The next claim and the last commit travel, in one exchange, while handlers run.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use gristmill_batching::{EndReason, RampUp, RampUpSettings};
use gristmill_model::limits::{LEASE_BYTES_TARGET, LEASE_JOBS_MAX, LEASE_SLICES_MAX};
use gristmill_model::{Clock, Lease, Receipt, Report, Timestamp};
use gristmill_store::{Exchanged, Heartbeat, Want};
use tokio::sync::{mpsc, watch};

use crate::handler::{Handler, Outcomes};
use crate::heart::Heart;
use crate::hops::HopRecorder;
use crate::io::IoRate;
use crate::lane::Lane;
use crate::observer::Observer;
use crate::pressure::{Admission, Gauge};
use crate::progress::ProgressBoard;
use crate::report_buffer::ReportBuffer;
use crate::settings::{REPORTS_PENDING_BYTES_MAX, RETRY_PAUSE_MAX, WorkerSettings};
use crate::slot::{Slot, SlotEvent, SlotId};
use crate::source::{Source, SourceError, SourceErrorKind};
use crate::worker::WorkerSummary;

/// An exchange under way: what was sent and how many jobs were asked for, with the answer.
struct Trip {
    reports: Vec<Report>,
    asked: u32,
    /// Whether only what is urgent was asked for, beside what runs.
    urgent: bool,
    answer: Result<Exchanged, SourceError>,
}

/// Whether there is any use in claiming.
enum Supply {
    /// The last claim brought something, or something has been announced.
    Likely,
    /// The last claim found nothing, or less than was asked for; nothing more is known before `look_again_at`.
    Dry {
        look_again_at: Instant,
        more_later: bool,
        /// Jobs wait until others are over, perhaps this worker's own.
        limited: bool,
        /// It found something, and no moment is known at which there is more: what this worker reports may bring the next
        /// (of a chain, of a limit's slots), so that reports ask for it on their way.
        hopeful: bool,
    },
}

pub(crate) struct Mill {
    source: Arc<dyn Source>,
    settings: WorkerSettings,
    observer: Arc<dyn Observer>,
    clock: Arc<dyn Clock>,
    hops: HopRecorder,
    board: ProgressBoard,
    lanes: HashMap<Arc<str>, Lane>,
    slots: HashMap<SlotId, (Arc<Slot>, Arc<str>)>,
    slots_begun: u64,
    events: (
        mpsc::UnboundedSender<SlotEvent>,
        mpsc::UnboundedReceiver<SlotEvent>,
    ),
    draining: Arc<AtomicBool>,
    ramp_up: RampUp,
    gauge: Gauge,
    /// When it is looked again for jobs that do not wait for a slot.
    look_for_urgent_at: Instant,
    /// Jobs that may still be claimed under the worker's limit.
    claims_left: u64,
    reports: ReportBuffer,
    trip: Option<BoxFuture<'static, Trip>>,
    supply: Supply,
    /// Since when the worker has been running jobs, and since when its rate has not been told to `ramp_up`.
    measured_at: Option<Instant>,
    /// Since when the source has not answered, and when it is tried again.
    unreachable: Option<(Instant, Instant, Duration)>,
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
        hops: HopRecorder,
        board: ProgressBoard,
    ) -> Self {
        let ramp_up = RampUp::new(RampUpSettings {
            buffer_target: settings.buffer_target,
            claim_max: LEASE_JOBS_MAX as usize,
            ..RampUpSettings::default()
        });
        let lanes = handlers
            .into_iter()
            .map(|(kind, handler)| {
                let lane = Lane::new(&kind, handler, &settings);
                (kind, lane)
            })
            .collect();
        Mill {
            claims_left: settings.jobs_limit.unwrap_or(u64::MAX),
            source,
            observer,
            clock,
            hops,
            board,
            lanes,
            slots: HashMap::new(),
            slots_begun: 0,
            events: mpsc::unbounded_channel(),
            draining: Arc::default(),
            ramp_up,
            gauge: Gauge::new(settings.backpressure.clone()),
            look_for_urgent_at: Instant::now(),
            reports: ReportBuffer::default(),
            trip: None,
            supply: Supply::Likely,
            measured_at: None,
            unreachable: None,
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
            self.begin_micro_batches();
            self.preempt();
            self.begin_trip();
            if self.is_done() {
                break;
            }
            let draining = self.is_draining();
            let waiting = match self.supply {
                Supply::Dry { look_again_at, .. } if !draining => Some(look_again_at),
                _ => None,
            };
            tokio::select! {
                biased;
                Some(event) = self.events.1.recv() => {
                    self.take_event(event);
                    while let Ok(event) = self.events.1.try_recv() {
                        self.take_event(event);
                    }
                }
                trip = travel(&mut self.trip), if self.trip.is_some() => {
                    self.trip = None;
                    self.arrive(trip);
                }
                Some(heartbeat) = heart.answer() => self.take_heartbeat(&heartbeat),
                _ = stop.wait_for(|stop| *stop), if !draining => self.begin_drain(),
                () = source.wait_for_work(), if waiting.is_some() => self.supply = Supply::Likely,
                () = source.wait_for_work(), if waiting.is_none() && self.may_be_preempted() => {
                    self.look_for_urgent_at = Instant::now();
                }
                () = sleep_until(Some(self.look_for_urgent_at)), if self.may_be_preempted() && self.trip.is_none() => {}
                () = sleep_until(waiting), if waiting.is_some() => self.supply = Supply::Likely,
                () = sleep_until(self.unreachable.map(|(_, again_at, _)| again_at)), if self.is_pausing() => {
                    if let Some((since, _, pause)) = self.unreachable {
                        self.unreachable = Some((since, Instant::now() - Duration::from_nanos(1), pause));
                    }
                }
            }
        }
        let ended = self.fatal.take().map_or(Ok(self.summary), Err);
        (heart, ended)
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    fn is_pausing(&self) -> bool {
        self.unreachable
            .is_some_and(|(_, again_at, _)| again_at > Instant::now())
    }

    fn buffered(&self) -> u64 {
        self.lanes.values().map(Lane::buffered).sum()
    }

    fn is_done(&self) -> bool {
        if self.fatal.is_some() {
            return self.slots.is_empty();
        }
        let idle =
            self.slots.is_empty() && self.trip.is_none() && self.reports.is_empty() && self.buffered() == 0;
        let empty = match self.supply {
            Supply::Likely => false,
            Supply::Dry { more_later, .. } => {
                self.settings.until_idle || (self.settings.until_empty && !more_later)
            }
        };
        idle && (self.is_draining() || self.claims_left == 0 || empty)
    }

    // --- run ---

    fn begin_micro_batches(&mut self) {
        if self.is_draining() || self.reports.weight_bytes() > REPORTS_PENDING_BYTES_MAX {
            return;
        }
        let mut free = self.settings.concurrency.saturating_sub(self.slots.len());
        let mut begun = true;
        // One micro-batch of each kind in turn, so that none waits for another's backlog.
        while free > 0 && begun {
            begun = false;
            let mut kinds: Vec<Arc<str>> = self.lanes.keys().cloned().collect();
            if self.settings.preempt_from.is_some() {
                kinds.sort_by_key(|kind| Reverse(self.lanes[kind].urgency()));
            }
            for kind in kinds {
                if free > 0 && self.begin_micro_batch(&kind, free) {
                    (begun, free) = (true, free - 1);
                }
            }
        }
        let held_back = self
            .lanes
            .values()
            .any(|lane| lane.buffered() > 0 && !self.has_io_for(lane));
        if free > 0 && matches!(self.supply, Supply::Likely) && !held_back {
            self.ramp_up.ran_dry();
        }
    }

    // --- making room for what is urgent ---

    /// Whether something urgent could take the slot of something that runs.
    fn may_be_preempted(&self) -> bool {
        let Some(level) = self.settings.preempt_from else {
            return false;
        };
        self.slots.len() >= self.settings.concurrency
            && !self.is_draining()
            && self.claims_left > 0
            && self.urgent_lanes(level) == 0
            && self.pausable(level).next().is_some()
    }

    /// How many kinds have something waiting that does not wait for a slot.
    fn urgent_lanes(&self, level: i16) -> usize {
        let urgencies = self.lanes.values().filter_map(Lane::urgency);
        urgencies.filter(|priority| *priority >= level).count()
    }

    /// What runs, is less urgent, can be paused, and was not asked to make room yet.
    fn pausable(&self, level: i16) -> impl Iterator<Item = &Arc<Slot>> {
        let of_pausable = self.slots.values().filter(|(_, kind)| {
            let lane = self.lanes.get(kind);
            lane.is_some_and(Lane::is_pausable)
        });
        let slots = of_pausable.map(|(slot, _)| slot);
        slots.filter(move |slot| slot.priority < level && !slot.is_pausing())
    }

    /// Asks what runs to make room, as much as urgent jobs need: the least urgent first, and of these what began last.
    fn preempt(&mut self) {
        let Some(level) = self.settings.preempt_from else {
            return;
        };
        if self.slots.len() < self.settings.concurrency || self.is_draining() {
            return;
        }
        let on_the_way = self.slots.values().filter(|(slot, _)| slot.is_pausing()).count();
        let needed = self.urgent_lanes(level).saturating_sub(on_the_way);
        let mut candidates: Vec<&Arc<Slot>> = self.pausable(level).collect();
        candidates.sort_by_key(|slot| (slot.priority, Reverse(slot.id)));
        for slot in candidates.into_iter().take(needed) {
            tracing::debug!(slot = slot.id.0, "asked to make room for something urgent");
            slot.pause();
        }
    }

    /// Whether one more micro-batch of a kind stays within the budget of bytes. What moves nothing always does, and so
    /// does what is alone.
    fn has_io_for(&self, lane: &Lane) -> bool {
        let Some(budget) = self.settings.io_budget.filter(|_| !lane.io_rate().is_zero()) else {
            return true;
        };
        let in_use: IoRate = self.lanes.values().map(Lane::io_in_use).sum();
        in_use.is_zero() || (in_use + lane.io_rate()).fits(budget)
    }

    fn begin_micro_batch(&mut self, kind: &Arc<str>, free: usize) -> bool {
        if !self.lanes.get(kind).is_some_and(|lane| self.has_io_for(lane)) {
            return false;
        }
        let Some(lane) = self.lanes.get_mut(kind) else {
            return false;
        };
        let Some((work, end_reason)) = lane.take_micro_batch(free) else {
            return false;
        };
        self.hops.record("run", u64::from(work.jobs_count()), end_reason);
        self.slots_begun += 1;
        let slot = Slot::new(
            SlotId(self.slots_begun),
            &work,
            self.draining.clone(),
            self.board.clone(),
            self.settings.cancel_grace,
            self.events.0.clone(),
        );
        self.slots.insert(slot.id, (slot.clone(), kind.clone()));
        self.measured_at.get_or_insert_with(Instant::now);
        tokio::spawn(slot.run(lane.handler.clone(), work, self.source.clone()));
        true
    }

    fn take_event(&mut self, event: SlotEvent) {
        match event {
            SlotEvent::Answered {
                lease,
                batch,
                attempt,
                repeats,
                outcomes,
            } => {
                let jobs = outcomes.positions().len();
                self.claims_left = self
                    .claims_left
                    .saturating_add(u64::from(outcomes.released.len()));
                self.reports.add(lease, batch, attempt, repeats, *outcomes);
                self.measure(jobs);
            }
            SlotEvent::Ended { slot, elapsed } => {
                let Some((slot, kind)) = self.slots.remove(&slot) else {
                    return;
                };
                if let Some(lane) = self.lanes.get_mut(&kind) {
                    lane.ended(slot.jobs, elapsed, slot.io());
                }
                if self.slots.is_empty() {
                    self.measured_at = None;
                }
            }
        }
    }

    /// Tells the ramp-up what was finished since the last time.
    fn measure(&mut self, jobs: u32) {
        if let Some(measured_at) = &mut self.measured_at {
            let now = Instant::now();
            self.ramp_up.ran(jobs as usize, now - *measured_at);
            *measured_at = now;
        }
    }

    // --- commit and claim ---

    fn begin_trip(&mut self) {
        if self.trip.is_some() || self.is_pausing() || self.fatal.is_some() {
            return;
        }
        let mut asked = self.wanted_jobs();
        let urgent = asked == 0 && self.may_be_preempted() && self.look_for_urgent_at <= Instant::now();
        if urgent {
            self.look_for_urgent_at = Instant::now() + self.settings.poll_every;
            let slots = u32::try_from(self.settings.concurrency).unwrap_or(u32::MAX);
            asked = slots
                .min(LEASE_JOBS_MAX)
                .min(u32::try_from(self.claims_left).unwrap_or(u32::MAX));
        }
        if asked == 0 && self.reports.is_empty() {
            return;
        }
        let reports = self.reports.take();
        if !reports.is_empty() {
            let jobs = reports
                .iter()
                .map(|report| u64::from(report.positions().len()))
                .sum();
            self.hops.record("commit", jobs, EndReason::Drained);
        }
        let want = (asked > 0).then(|| Want {
            jobs_max: asked,
            queues: self.settings.queues.clone(),
            kinds: self.lanes.keys().cloned().collect(),
            priority_min: match self.gauge.admits(Instant::now()) {
                _ if urgent => self.settings.preempt_from,
                Some(Admission::From(priority)) => Some(priority),
                _ => None,
            },
        });
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
                answer,
            }
        }));
    }

    fn wanted_jobs(&mut self) -> u32 {
        let is_dry = match self.supply {
            Supply::Likely => false,
            Supply::Dry { hopeful, .. } => !hopeful || self.reports.is_empty(),
        };
        if self.is_draining() || self.claims_left == 0 || is_dry {
            return 0;
        }
        if self.gauge.admits(Instant::now()) == Some(Admission::Nothing) {
            self.supply = Supply::Dry {
                look_again_at: Instant::now() + self.gauge.again_after(),
                more_later: true,
                limited: true,
                hopeful: false,
            };
            return 0;
        }
        if self
            .measured_at
            .is_some_and(|at| at.elapsed() >= self.settings.buffer_target)
        {
            self.measure(0);
        }
        let want = self.ramp_up.want(self.buffered() as usize) as u64;
        want.min(self.claims_left).min(u64::from(LEASE_JOBS_MAX)) as u32
    }

    fn arrive(&mut self, trip: Trip) {
        match trip.answer {
            Ok(exchanged) => {
                self.unreachable = None;
                for (report, receipt) in trip.reports.iter().zip(&exchanged.receipts) {
                    self.count(report, receipt);
                    self.observer.committed(report, receipt);
                }
                let in_vain = trip.urgent && exchanged.lease.is_none();
                if trip.asked > 0 && !in_vain {
                    let Exchanged {
                        lease,
                        next_run_at,
                        limited,
                        ..
                    } = exchanged;
                    self.take_claim(trip.asked, lease, next_run_at, limited);
                } else if self.is_limited() || trip.reports.iter().any(|report| self.may_bring_work(report)) {
                    self.supply = Supply::Likely;
                }
            }
            Err(error) => self.take_failed_trip(trip.reports, error),
        }
    }

    /// Whether something may be claimable after a report that was not before: what failed is tried again, at once or
    /// later, what was spawned is there, and what waited for a job may run. The latter matters to those only who end when there is nothing.
    fn may_bring_work(&self, report: &Report) -> bool {
        !report.failed.is_empty()
            || !report.writes.is_empty()
            || !report.suspended.is_empty()
            || !report.siblings.is_empty()
            || self.settings.until_empty
            || self.settings.until_idle
    }

    fn is_limited(&self) -> bool {
        matches!(self.supply, Supply::Dry { limited: true, .. })
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

    fn take_claim(
        &mut self,
        asked: u32,
        lease: Option<Lease>,
        next_run_at: Option<Timestamp>,
        limited: bool,
    ) {
        let got = lease.as_ref().map_or(0, Lease::jobs);
        self.ramp_up.claimed(asked as usize, got as usize);
        self.claims_left = self.claims_left.saturating_sub(u64::from(got));
        let bytes: usize = lease
            .iter()
            .flat_map(|lease| &lease.slices)
            .map(|slice| slice.payloads.as_str().len())
            .sum();
        let slices = lease.as_ref().map_or(0, |lease| lease.slices.len());
        let is_cut = got >= asked || bytes >= LEASE_BYTES_TARGET || slices >= LEASE_SLICES_MAX as usize;
        self.supply = match got > 0 && (is_cut || !self.source.gives_all()) {
            true => Supply::Likely,
            // Asked again at once, the source would say the same.
            false => {
                let until_next = next_run_at.map(|at| at.since_ms(self.clock.now()).max(1) as u64);
                let pause = until_next.map_or(self.settings.poll_every, |ms| {
                    self.settings.poll_every.min(Duration::from_millis(ms))
                });
                Supply::Dry {
                    look_again_at: Instant::now() + pause,
                    more_later: limited || next_run_at.is_some(),
                    limited,
                    hopeful: got > 0 && next_run_at.is_none(),
                }
            }
        };
        let Some(lease) = lease.filter(|_| got > 0) else {
            return;
        };
        let end_reason = match () {
            () if got >= asked && self.claims_left == 0 => EndReason::Limit,
            () if got >= asked => EndReason::Full,
            () if bytes >= LEASE_BYTES_TARGET => EndReason::Bytes,
            () => EndReason::Drained,
        };
        self.hops.record("claim", u64::from(got), end_reason);
        self.observer.claimed(got);
        for slice in lease.slices {
            match self.lanes.get_mut(&slice.kind) {
                Some(lane) => lane.push(slice),
                // The source gave what was not asked for; it goes back.
                None => self.release(&slice),
            }
        }
        if self.is_draining() {
            self.release_buffers();
        }
    }

    fn take_failed_trip(&mut self, reports: Vec<Report>, error: SourceError) {
        let now = Instant::now();
        let (since, _, pause) = self.unreachable.unwrap_or((now, now, Duration::from_millis(10)));
        if error.kind == SourceErrorKind::Fatal || now - since > self.settings.give_up_after {
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
        self.unreachable = Some((since, now + pause, (pause * 2).min(RETRY_PAUSE_MAX)));
    }

    // --- losing and giving back ---

    fn take_heartbeat(&mut self, heartbeat: &Heartbeat) {
        if !heartbeat.known {
            tracing::warn!("the leases were lost: no heartbeat arrived for too long; beginning anew");
            self.lanes.values_mut().for_each(Lane::clear);
            for (slot, _) in self.slots.values() {
                slot.revoke_all();
            }
            return;
        }
        for revoked in &heartbeat.revoked {
            self.lanes.values_mut().for_each(|lane| lane.revoke(revoked));
            for (slot, _) in self.slots.values() {
                slot.revoke(revoked);
            }
        }
    }

    fn begin_drain(&mut self) {
        self.draining.store(true, Ordering::Relaxed);
        self.release_buffers();
    }

    fn release_buffers(&mut self) {
        let slices: Vec<_> = self.lanes.values_mut().flat_map(Lane::take_all).collect();
        for slice in slices {
            self.release(&slice);
        }
    }

    fn release(&mut self, slice: &gristmill_model::LeasedSlice) {
        self.claims_left = self.claims_left.saturating_add(u64::from(slice.len()));
        let outcomes = Outcomes {
            released: slice.positions.clone(),
            ..Outcomes::default()
        };
        self.reports
            .add(slice.lease, slice.batch, slice.attempt, 0, outcomes);
    }
}

async fn travel(trip: &mut Option<BoxFuture<'static, Trip>>) -> Trip {
    match trip {
        Some(trip) => trip.await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
