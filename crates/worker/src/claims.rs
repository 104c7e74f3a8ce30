//! Claims: when a worker claims, how many jobs it asks for, and how long it lets outcomes gather first.

pub(crate) mod give_back;
pub(crate) mod held_slice;
mod keepers;
pub(crate) mod lane;

use std::time::{Duration, Instant};

use gristmill_batching::{RampUp, RampUpSettings};
use gristmill_model::limits::{EXCHANGE_EVERY_MS, LEASE_JOBS_MAX};

use crate::settings::WorkerSettings;

/// The supply of jobs at the source, as far as the worker knows.
#[derive(Debug)]
enum Supply {
    /// The last claim got jobs, or the source announced some.
    Likely,
    /// The last claim got nothing, or less than it asked for. Nothing more is known before `look_again_at`.
    Dry {
        look_again_at: Instant,
        more_later: bool,
        /// Jobs wait for other jobs to end, perhaps for this worker's own.
        limited: bool,
        /// The claim got jobs, and the source named no time for more. A report of this worker may make the next jobs
        /// claimable, for example the next of a chain or of a concurrency limit. Each exchange with reports therefore
        /// also asks for jobs.
        hopeful: bool,
    },
}

/// The jobs that a worker holds, as its claims see them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holding {
    /// The jobs that wait in the worker for a slot.
    pub waiting: u64,
    /// The number of further jobs that could begin now.
    pub free_slots: u64,
    /// Runners have jobs.
    pub is_running: bool,
    /// Outcomes wait for their commit.
    pub has_reports: bool,
}

/// The result of a claim.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Claimed {
    pub asked: u32,
    pub got: u32,
    /// The source may have more jobs now.
    pub is_cut: bool,
    /// The lease is full, perhaps with fewer jobs than the claim asked for.
    pub is_lease_full: bool,
    /// The time until more jobs are claimable, if the source knows it.
    pub until_next: Option<Duration>,
    /// Jobs wait for other jobs to end.
    pub limited: bool,
}

/// The claims of one worker.
#[derive(Debug)]
pub(crate) struct Claims {
    ramp_up: RampUp,
    supply: Supply,
    /// The number of jobs that the worker's limit still allows to claim.
    left: u64,
    poll_every: Duration,
    buffer_target: Duration,
    /// The end of the last measurement of the rate, while jobs run.
    measured_at: Option<Instant>,
    /// A slot was free without a job for it. The rate of that time is not meaningful.
    is_starved: bool,
    exchanged_at: Option<Instant>,
    /// The last claim got less than it asked for, because its lease was full.
    is_short: bool,
}

impl Claims {
    pub fn new(settings: &WorkerSettings, slots: u64) -> Self {
        Claims {
            ramp_up: RampUp::new(RampUpSettings {
                buffer_target: settings.buffer_target,
                claim_max: LEASE_JOBS_MAX as usize,
                hold_start: usize::try_from(slots).unwrap_or(usize::MAX).max(1),
                ..RampUpSettings::default()
            }),
            supply: Supply::Likely,
            left: settings.jobs_limit.unwrap_or(u64::MAX),
            poll_every: settings.poll_every,
            buffer_target: settings.buffer_target,
            measured_at: None,
            is_starved: false,
            exchanged_at: None,
            is_short: false,
        }
    }

    /// Reports whether the worker's limit allows no further job.
    pub fn is_used_up(&self) -> bool {
        self.left == 0
    }

    /// The number of jobs that the worker's limit still allows to claim.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// `None` if the source may have jobs now. Otherwise, whether it will have jobs later.
    pub fn is_dry(&self) -> Option<bool> {
        match self.supply {
            Supply::Likely => None,
            Supply::Dry { more_later, .. } => Some(more_later),
        }
    }

    /// Reports whether jobs wait for other jobs to end.
    pub fn is_limited(&self) -> bool {
        matches!(self.supply, Supply::Dry { limited: true, .. })
    }

    /// The time to ask a source again that had nothing.
    pub fn look_again_at(&self) -> Option<Instant> {
        match self.supply {
            Supply::Likely => None,
            Supply::Dry { look_again_at, .. } => Some(look_again_at),
        }
    }

    /// Notes that the source may have jobs.
    pub fn announce(&mut self) {
        self.supply = Supply::Likely;
    }

    /// Stops claims until a time, because the machine is busy.
    pub fn hold_off(&mut self, until: Instant) {
        self.supply = Supply::Dry {
            look_again_at: until,
            more_later: true,
            limited: true,
            hopeful: false,
        };
    }

    /// The number of jobs to ask for now.
    pub fn wanted(&mut self, holding: Holding, now: Instant) -> u32 {
        let is_dry = match self.supply {
            Supply::Likely => false,
            Supply::Dry { hopeful, .. } => !hopeful || !holding.has_reports,
        };
        if self.left == 0 || is_dry {
            return 0;
        }
        if self
            .measured_at
            .is_some_and(|at| now.saturating_duration_since(at) >= self.buffer_target.max(MEASURE_EVERY_MIN))
        {
            self.ran(0, now);
        }
        let wanted = self.would_want(holding);
        assert!(
            u64::from(wanted) <= self.left,
            "a claim of {wanted} jobs stays within the worker's limit, which allows {} more",
            self.left
        );
        wanted
    }

    /// The number of jobs to ask for as soon as the source has some.
    pub fn would_want(&self, holding: Holding) -> u32 {
        let (waiting, free) = (count(holding.waiting), count(holding.free_slots));
        let want = self.ramp_up.want(waiting, free) as u64;
        want.min(self.left).min(u64::from(LEASE_JOBS_MAX)) as u32
    }

    /// The time at which an exchange that asks for this many jobs may begin.
    ///
    /// It begins at once while no job runs. Otherwise it begins no sooner than [`EXCHANGE_EVERY_MS`] after the last
    /// one, so that outcomes gather. It does not wait if a slot is free for jobs of the source, if the waiting jobs
    /// would run out before, or if one lease did not hold as many jobs as the worker wants. Outcomes then still gather
    /// for a large exchange.
    pub fn exchange_at(&self, asked: u32, holding: Holding, now: Instant) -> Instant {
        let Some(exchanged_at) = self.exchanged_at else {
            return now;
        };
        let next_at = exchanged_at + Duration::from_millis(EXCHANGE_EVERY_MS);
        let rate = self.ramp_up.jobs_per_second().unwrap_or_default();
        let lasting = rate * EXCHANGE_EVERY_MS as f64 / 1e3;
        let has_more = asked > 0 && matches!(self.supply, Supply::Likely);
        let lasts = holding.waiting > 0 && holding.waiting as f64 >= lasting;
        let is_starving = has_more && (holding.free_slots > 0 || !lasts || self.is_short);
        if !holding.is_running || is_starving || next_at <= now {
            now
        } else {
            next_at
        }
    }

    /// Notes the start of an exchange.
    pub fn exchange_began(&mut self, now: Instant) {
        debug_assert!(
            self.exchanged_at.is_none_or(|last| last <= now),
            "exchanges begin in the order of time"
        );
        self.exchanged_at = Some(now);
    }

    /// Notes the duration of an exchange that claimed.
    pub fn exchange_took(&mut self, elapsed: Duration) {
        self.ramp_up.claim_took(elapsed);
    }

    /// Learns from the answer to a claim.
    pub fn claimed(&mut self, claimed: Claimed, now: Instant) {
        let Claimed {
            asked,
            got,
            until_next,
            limited,
            ..
        } = claimed;
        self.is_short = claimed.is_lease_full && got < asked;
        // A full lease is no reason to hold fewer jobs.
        let asked_of_it = if self.is_short { got } else { asked };
        self.ramp_up.claimed(asked_of_it as usize, got as usize);
        self.left = self.left.saturating_sub(u64::from(got));
        if got > 0 && std::mem::take(&mut self.is_starved) {
            self.measured_at = self.measured_at.map(|_| now);
        }
        self.supply = if got > 0 && claimed.is_cut {
            Supply::Likely
        } else {
            // The source would give the same answer again at once.
            Supply::Dry {
                look_again_at: now + until_next.map_or(self.poll_every, |until| self.poll_every.min(until)),
                more_later: limited || until_next.is_some(),
                limited,
                hopeful: got > 0 && until_next.is_none(),
            }
        };
    }

    /// Notes that jobs went back to the source. They no longer count against the worker's limit.
    pub fn given_back(&mut self, jobs: u64) {
        self.left = self.left.saturating_add(jobs);
    }

    /// Notes that waiting jobs could not begin soon and went back to the source.
    pub fn stalled(&mut self) {
        self.ramp_up.stalled();
    }

    /// Notes that a slot is free without a job for it.
    pub fn ran_dry(&mut self) {
        if matches!(self.supply, Supply::Likely) {
            self.ramp_up.ran_dry();
            self.is_starved = true;
        }
    }

    /// Notes answers of jobs. The time before the first answer does not count, because processes start then.
    pub fn ran(&mut self, jobs: u32, now: Instant) {
        if let Some(measured_at) = self.measured_at {
            self.ramp_up
                .ran(jobs as usize, now.saturating_duration_since(measured_at));
        }
        self.measured_at = Some(now);
    }

    /// Notes that no job runs.
    pub fn is_idle(&mut self) {
        self.measured_at = None;
    }

    /// The amount of work that the worker holds beyond its free slots, as the time to run it.
    pub fn hold_target(&self) -> Duration {
        self.ramp_up.hold_target()
    }

    /// The number of jobs that end within the hold target at the current rate, at least 1. `None` if the rate is unknown.
    pub fn soon(&self) -> Option<u64> {
        let within = |rate: f64| (rate * self.hold_target().as_secs_f64()) as u64;
        debug_assert!(self.ramp_up.jobs_per_second().is_none_or(|rate| rate >= 0.0));
        self.ramp_up.jobs_per_second().map(|rate| within(rate).max(1))
    }

    /// Notes the number of jobs that run within the hold target, by their durations.
    pub fn fits(&mut self, jobs: f64) {
        self.ramp_up.fits(jobs);
    }
}

/// The shortest time between two measurements of the rate while no job ends.
const MEASURE_EVERY_MIN: Duration = Duration::from_millis(10);

fn count(jobs: u64) -> usize {
    usize::try_from(jobs).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE_JOBS: u32 = 100;

    /// Claims from a source whose leases hold [`LEASE_JOBS`] jobs. Each job runs for a millisecond.
    fn claim_and_run(claims: &mut Claims, times: u32, now: &mut Instant) {
        for _ in 0..times {
            let holding = holding(0, 2);
            let asked = claims.wanted(holding, *now);
            let got = asked.min(LEASE_JOBS);
            claims.exchange_began(*now);
            let claimed = Claimed {
                asked,
                got,
                is_cut: true,
                is_lease_full: got == LEASE_JOBS,
                ..Claimed::default()
            };
            claims.claimed(claimed, *now);
            *now += Duration::from_millis(1);
            claims.ran(got, *now);
        }
    }

    fn holding(waiting: u64, free_slots: u64) -> Holding {
        Holding {
            waiting,
            free_slots,
            is_running: true,
            has_reports: true,
        }
    }

    #[test]
    fn a_worker_that_wants_more_than_one_lease_claims_the_next_one_at_once() {
        let mut now = Instant::now();
        let mut claims = Claims::new(&WorkerSettings::default(), 2);
        claims.ran(0, now);
        claim_and_run(&mut claims, 20, &mut now);
        // The worker runs about 100,000 jobs a second: 10,000 within the buffer target, and 1,000 until a gathering exchange.
        let lasting = holding(3_000, 0);
        let asked = claims.wanted(lasting, now);
        assert!(asked > 10 * LEASE_JOBS, "it wants {asked} more");
        claims.exchange_began(now);
        assert_eq!(claims.exchange_at(asked, lasting, now), now);
        // Outcomes gather when the worker wants no more jobs.
        assert!(claims.exchange_at(0, lasting, now) > now);
    }

    #[test]
    fn a_claim_that_got_all_jobs_is_not_repeated_at_once() {
        let mut now = Instant::now();
        let mut claims = Claims::new(&WorkerSettings::default(), 2);
        claims.ran(0, now);
        claim_and_run(&mut claims, 20, &mut now);
        let claimed = Claimed {
            asked: 5_000,
            got: LEASE_JOBS - 1,
            is_cut: true,
            ..Claimed::default()
        };
        claims.exchange_began(now);
        claims.claimed(claimed, now);
        assert!(claims.exchange_at(4_000, holding(3_000, 0), now) > now);
    }
}
