//! Exchanges with the source: one exchange commits reports and claims jobs.

use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use gristmill_batching::EndReason;
use gristmill_model::limits::{LEASE_BYTES_TARGET, LEASE_JOBS_MAX, LEASE_SLICES_MAX};
use gristmill_model::{Lease, LeasedSlice, Receipt, Report};
use gristmill_store::{Exchanged, NEWS, Want};

use super::Mill;
use crate::claims::held_slice::HeldSlice;
use crate::claims::{Claimed, Holding};
use crate::handler::Outcomes;
use crate::mill::outage::Outage;
use crate::mill::run_spans::{self, Traced};
use crate::pressure::Admission;
use crate::settings::REPORTS_GATHERED_BYTES_MAX;
use crate::source::{Source, SourceError, SourceErrorKind};

/// The registration that a trip does before its exchange. A trip that fails leaves it to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Renewal {
    None,
    /// Registers the worker again, because an earlier try failed. Without it, the source may hold jobs of a claim whose
    /// answer was lost for this worker. Nobody would ever run them.
    Register,
    /// Drops all jobs of the worker and registers it again, because the source does not know it.
    BeginAnew,
}

/// A running exchange: the reports, the number of requested jobs, and the answer.
pub(super) struct Trip {
    renewal: Renewal,
    reports: Vec<Report>,
    /// The reported jobs by trace, if spans are on.
    traced: Traced,
    asked: u32,
    /// The trip asks only for urgent jobs, while all slots are busy.
    urgent: bool,
    /// The claim leaves jobs out because of their priority.
    narrowed: bool,
    took: Duration,
    answer: Result<Exchanged, SourceError>,
}

/// A claim that waits at the source for jobs.
pub(super) struct Offer {
    asked: u32,
    /// The claim leaves jobs out because of their priority.
    narrowed: bool,
    answer: BoxFuture<'static, Option<Exchanged>>,
}

impl Mill {
    /// Leaves a claim with the source while nothing is claimable, so that the source can claim for this worker at once.
    pub(super) fn wait_at_source(&mut self, is_dry: bool) {
        if !is_dry {
            self.offer = None;
        } else if self.offer.is_none() {
            let asked = if self.is_held_off() || !self.can_run_any() {
                0
            } else {
                self.claims.would_want(self.holding())
            };
            let want = (asked > 0).then(|| self.want(asked, false));
            let narrowed = is_narrowed(want.as_ref());
            let source = self.source.clone();
            let answer = Box::pin(async move { source.wait_for_claim(want).await });
            self.offer = Some(Offer {
                asked,
                narrowed,
                answer,
            });
        }
    }

    /// Reports whether the machine is too busy for further jobs.
    fn is_held_off(&mut self) -> bool {
        self.gauge.admits(Instant::now()) == Some(Admission::Nothing)
    }

    pub(super) fn take_offered(&mut self, exchanged: Option<Exchanged>) {
        match (self.offer.take(), exchanged) {
            (Some(offer), Some(exchanged)) => self.take_claim(offer.asked, offer.narrowed, exchanged),
            _ => self.claims.announce(),
        }
    }

    /// The claim for jobs of the kinds that can run. At least one kind can run.
    pub(super) fn want(&mut self, jobs_max: u32, urgent: bool) -> Want {
        let kinds = (0..).zip(&self.lanes);
        let kinds = kinds.filter(|(number, _)| self.dispatcher.can_run(*number));
        Want {
            jobs_max,
            queues: self.settings.queues.clone(),
            kinds: kinds.map(|(_, lane)| lane.kind.clone()).collect(),
            priority_min: match self.gauge.admits(Instant::now()) {
                _ if urgent => self.settings.preempt_from,
                Some(Admission::From(priority)) => Some(priority),
                _ => None,
            },
        }
    }

    pub(super) fn begin_trip(&mut self) {
        self.trip_at = None;
        if self.trip.is_some() || self.fatal.is_some() {
            return;
        }
        let now = Instant::now();
        if let Some(outage) = self.outage.filter(|outage| outage.again_at > now) {
            self.trip_at = Some(outage.again_at);
            return;
        }
        // A draining worker leaves soon, which gives all of its jobs back.
        let mut renewal = match self.is_draining() {
            true => Renewal::None,
            false => self.renewal,
        };
        if renewal == Renewal::BeginAnew {
            // The last trip may have registered and claimed before the worker learned of this. These jobs go back with
            // the others.
            self.lose_leases();
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
        if asked == 0 && self.reports.is_empty() && renewal == Renewal::None {
            self.pulse.answered();
            return;
        }
        let exchange_at = self.claims.exchange_at(asked, holding, now);
        let may_wait = !urgent
            && renewal == Renewal::None
            && !self.is_draining()
            && self.reports.weight_bytes() < REPORTS_GATHERED_BYTES_MAX;
        if exchange_at > now && may_wait {
            self.trip_at = Some(exchange_at);
            return;
        }
        assert!(
            asked <= LEASE_JOBS_MAX && u64::from(asked) <= self.claims.left(),
            "a trip asks for {asked} jobs, more than a lease or the worker's limit allows"
        );
        self.claims.exchange_began(now);
        self.pulse.asked(now);
        self.renewal = Renewal::None;
        let reports = self.reports.take();
        let traced = self.spans.take_uncommitted();
        if !reports.is_empty() {
            let jobs = reports
                .iter()
                .map(|report| u64::from(report.positions().len()))
                .sum();
            self.hops.record("commit", jobs, EndReason::Drained);
        }
        let want = (asked > 0).then(|| self.want(asked, urgent));
        if want.is_some() {
            // The trip replaces the waiting claim.
            self.offer = None;
        }
        let narrowed = is_narrowed(want.as_ref());
        let source = self.source.clone();
        self.is_trip_outdated = false;
        self.trip = Some(Box::pin(async move {
            let exchanged = match renewal {
                Renewal::None => Some(source.exchange(reports.clone(), want.clone()).await),
                Renewal::Register | Renewal::BeginAnew => None,
            };
            let answer = match exchanged {
                Some(answer) if !is_unregistered(&answer) => answer,
                _ => {
                    renewal = renewal.max(Renewal::Register);
                    register_and_exchange(&*source, &reports, want).await
                }
            };
            Trip {
                renewal,
                reports,
                traced,
                asked,
                urgent,
                narrowed,
                took: now.elapsed(),
                answer,
            }
        }));
    }

    fn wanted_jobs(&mut self, holding: Holding, now: Instant) -> u32 {
        if self.is_draining() || !self.can_run_any() {
            return 0;
        }
        let wanted = self.claims.wanted(holding, now);
        if wanted > 0 && self.is_held_off() {
            self.claims.hold_off(now + self.gauge.again_after());
            return 0;
        }
        wanted
    }

    pub(super) fn arrive(&mut self, trip: Trip) {
        match trip.answer {
            Ok(exchanged) => {
                self.pulse.answered();
                self.note_movement();
                if let Some(lasted) = self
                    .outage
                    .take()
                    .and_then(|outage| outage.told_after(Instant::now()))
                {
                    tracing::warn!(target: NEWS, "the source answers claims and reports again, after {} s", lasted.as_secs());
                }
                run_spans::committed(&trip.traced, trip.took);
                for (report, receipt) in trip.reports.iter().zip(&exchanged.receipts) {
                    self.count(report, receipt);
                    self.observer.committed(report, receipt);
                }
                let in_vain = trip.urgent && exchanged.lease.is_none();
                if trip.asked > 0 && !in_vain {
                    if exchanged.lease.is_some() {
                        self.claims.exchange_took(trip.took);
                    }
                    self.take_claim(trip.asked, trip.narrowed, exchanged);
                } else if self.claims.is_limited()
                    || trip.reports.iter().any(|report| self.may_bring_work(report))
                {
                    self.claims.announce();
                }
            }
            Err(error) => {
                self.renewal = self.renewal.max(trip.renewal);
                self.spans.put_back(trip.traced);
                self.take_failed_trip(trip.reports, error);
            }
        }
        if std::mem::take(&mut self.is_trip_outdated) {
            self.claims.announce();
        }
    }

    /// Reports whether a report may make further jobs claimable: retries, spawned jobs or dependents. Dependents matter
    /// only with `until_empty` or `until_idle`.
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
            tracing::info!(
                batch = %report.batch,
                positions = %receipt.refused,
                "the source refused outcomes, because the lease no longer holds these jobs"
            );
        }
    }

    /// Takes the answer to a claim. A narrowed claim leaves jobs out; they may still wait at the source.
    fn take_claim(&mut self, asked: u32, narrowed: bool, exchanged: Exchanged) {
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
            .map(LeasedSlice::weight_bytes)
            .sum();
        let slices = lease.as_ref().map_or(0, |lease| lease.slices.len());
        let jobs_max = self.source.claim_jobs_max();
        let is_lease_full =
            got >= jobs_max || bytes >= LEASE_BYTES_TARGET || slices >= LEASE_SLICES_MAX as usize;
        let until_next = next_run_at.map(|at| at.since_ms(self.clock.now()).max(1) as u64);
        let claimed = Claimed {
            asked,
            got,
            is_cut: got >= asked || is_lease_full || !self.source.gives_all(),
            is_lease_full,
            until_next: until_next.map(Duration::from_millis),
            limited: limited || narrowed,
        };
        self.claims.claimed(claimed, Instant::now());
        let Some(lease) = lease.filter(|_| got > 0) else {
            return;
        };
        let end_reason = match () {
            () if got >= asked && self.claims.is_used_up() => EndReason::Limit,
            () if got >= asked || got >= jobs_max => EndReason::Full,
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
                // The source returned jobs that the worker did not ask for.
                None => self.release(&held),
            }
        }
        if self.is_draining() {
            self.give_up_waiting();
        }
    }

    fn take_failed_trip(&mut self, reports: Vec<Report>, error: SourceError) {
        let now = Instant::now();
        if error.kind == SourceErrorKind::Fatal {
            self.begin_drain();
            self.fatal = Some(error);
            return;
        }
        let mut outage = Outage::after(self.outage, now);
        if outage.is_news(now) {
            tracing::warn!(
            target: NEWS,
            "claims and reports have failed for {} s: {error}; the worker keeps trying",
            outage.lasted(now).as_secs()
            );
        } else {
            tracing::debug!(%error, "the source did not answer; the worker tries again");
        }
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
}

async fn register_and_exchange(
    source: &dyn Source,
    reports: &[Report],
    want: Option<Want>,
) -> Result<Exchanged, SourceError> {
    source.register().await?;
    source.exchange(reports.to_vec(), want).await
}

fn is_unregistered(answer: &Result<Exchanged, SourceError>) -> bool {
    matches!(answer, Err(error) if error.kind == SourceErrorKind::Unregistered)
}

/// Reports whether a claim leaves jobs out because of their priority.
fn is_narrowed(want: Option<&Want>) -> bool {
    want.is_some_and(|want| want.priority_min.is_some())
}

pub(super) async fn travel(trip: &mut Option<BoxFuture<'static, Trip>>) -> Trip {
    match trip {
        Some(trip) => trip.await,
        None => std::future::pending().await,
    }
}

pub(super) async fn answer(offer: &mut Option<Offer>) -> Option<Exchanged> {
    match offer {
        Some(offer) => (&mut offer.answer).await,
        None => std::future::pending().await,
    }
}
