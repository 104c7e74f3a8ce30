//! When a worker claims, how much, and when it lets outcomes gather first.

pub(crate) mod give_back;
pub(crate) mod held_slice;
pub(crate) mod lane;

use std::time::{Duration, Instant};

use gristmill_batching::{RampUp, RampUpSettings};
use gristmill_model::limits::{EXCHANGE_EVERY_MS, LEASE_JOBS_MAX};

use crate::settings::WorkerSettings;

/// Whether there is any use in claiming.
#[derive(Debug)]
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

/// What a worker holds, as its claims see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holding {
    /// Jobs that wait in the worker for a slot.
    pub waiting: u64,
    /// Jobs that could begin now if there were any.
    pub free_slots: u64,
    /// Whether runners have jobs.
    pub is_running: bool,
    /// Whether outcomes wait for their commit.
    pub has_reports: bool,
}

/// What a claim brought.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Claimed {
    pub asked: u32,
    pub got: u32,
    /// Whether the source may have more now.
    pub is_cut: bool,
    /// Whether the lease holds no more, perhaps less than was asked for.
    pub is_lease_full: bool,
    /// When more can be claimed, as far as the source knows.
    pub until_next: Option<Duration>,
    /// Whether jobs wait until others are over.
    pub limited: bool,
}

/// The claims of one worker.
#[derive(Debug)]
pub(crate) struct Claims {
    ramp_up: RampUp,
    supply: Supply,
    /// Jobs that may still be claimed under the worker's limit.
    left: u64,
    poll_every: Duration,
    buffer_target: Duration,
    /// Since when its rate has not been told to `ramp_up`, where jobs run.
    measured_at: Option<Instant>,
    /// Whether a slot has been free for which there is nothing: that time says nothing of its rate.
    is_starved: bool,
    exchanged_at: Option<Instant>,
    /// The last claim brought less than was asked for because a lease holds no more.
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

    /// Whether the worker's limit allows no further job.
    pub fn is_used_up(&self) -> bool {
        self.left == 0
    }

    /// Jobs that may still be claimed under the worker's limit.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Whether the source is known to have nothing now; then whether it will have something later.
    pub fn is_dry(&self) -> Option<bool> {
        match self.supply {
            Supply::Likely => None,
            Supply::Dry { more_later, .. } => Some(more_later),
        }
    }

    /// Whether jobs wait until others are over.
    pub fn is_limited(&self) -> bool {
        matches!(self.supply, Supply::Dry { limited: true, .. })
    }

    /// When the source is to be asked again, where it had nothing.
    pub fn look_again_at(&self) -> Option<Instant> {
        match self.supply {
            Supply::Likely => None,
            Supply::Dry { look_again_at, .. } => Some(look_again_at),
        }
    }

    /// There may be something to claim.
    pub fn announce(&mut self) {
        self.supply = Supply::Likely;
    }

    /// Nothing is to be claimed before a moment: the machine is busy.
    pub fn hold_off(&mut self, until: Instant) {
        self.supply = Supply::Dry {
            look_again_at: until,
            more_later: true,
            limited: true,
            hopeful: false,
        };
    }

    /// Jobs to ask for now.
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
        self.would_want(holding)
    }

    /// Jobs to ask for as soon as there are some.
    pub fn would_want(&self, holding: Holding) -> u32 {
        let (waiting, free) = (count(holding.waiting), count(holding.free_slots));
        let want = self.ramp_up.want(waiting, free) as u64;
        want.min(self.left).min(u64::from(LEASE_JOBS_MAX)) as u32
    }

    /// When an exchange that asks for so many jobs may begin. At once while nothing runs that it could wait for; otherwise
    /// not sooner than [`EXCHANGE_EVERY_MS`] after the last one, so that outcomes gather, unless a slot is free for what
    /// the source has, what waits would not last until then, or one lease did not hold what the worker wants: outcomes gather
    /// for a large exchange as well.
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
        match !holding.is_running || is_starving || next_at <= now {
            true => now,
            false => next_at,
        }
    }

    /// An exchange began.
    pub fn exchange_began(&mut self, now: Instant) {
        self.exchanged_at = Some(now);
    }

    /// An exchange that claimed took so long.
    pub fn exchange_took(&mut self, elapsed: Duration) {
        self.ramp_up.claim_took(elapsed);
    }

    /// A claim was answered.
    pub fn claimed(&mut self, claimed: Claimed, now: Instant) {
        let Claimed {
            asked,
            got,
            until_next,
            limited,
            ..
        } = claimed;
        self.is_short = claimed.is_lease_full && got < asked;
        // A full lease says nothing against holding more.
        let asked_of_it = if self.is_short { got } else { asked };
        self.ramp_up.claimed(asked_of_it as usize, got as usize);
        self.left = self.left.saturating_sub(u64::from(got));
        if got > 0 && std::mem::take(&mut self.is_starved) {
            self.measured_at = self.measured_at.map(|_| now);
        }
        self.supply = match got > 0 && claimed.is_cut {
            true => Supply::Likely,
            // Asked again at once, the source would say the same.
            false => Supply::Dry {
                look_again_at: now + until_next.map_or(self.poll_every, |until| self.poll_every.min(until)),
                more_later: limited || until_next.is_some(),
                limited,
                hopeful: got > 0 && until_next.is_none(),
            },
        };
    }

    /// Jobs go back to the source: they do not count against the worker's limit.
    pub fn given_back(&mut self, jobs: u64) {
        self.left = self.left.saturating_add(jobs);
    }

    /// The waiting jobs cannot begin soon, and go back to the source.
    pub fn stalled(&mut self) {
        self.ramp_up.stalled();
    }

    /// A slot is free and there is nothing for it.
    pub fn ran_dry(&mut self) {
        if matches!(self.supply, Supply::Likely) {
            self.ramp_up.ran_dry();
            self.is_starved = true;
        }
    }

    /// Jobs were answered. The time before the first ones does not count: processes start then.
    pub fn ran(&mut self, jobs: u32, now: Instant) {
        if let Some(measured_at) = self.measured_at {
            self.ramp_up
                .ran(jobs as usize, now.saturating_duration_since(measured_at));
        }
        self.measured_at = Some(now);
    }

    /// Nothing runs.
    pub fn is_idle(&mut self) {
        self.measured_at = None;
    }

    /// How much work the worker holds beyond its free slots, as the time it takes to run it.
    pub fn hold_target(&self) -> Duration {
        self.ramp_up.hold_target()
    }

    /// Jobs that end within that time, by the rate at which they end; at least 1. `None` where the rate is not known.
    pub fn soon(&self) -> Option<u64> {
        let within = |rate: f64| (rate * self.hold_target().as_secs_f64()) as u64;
        self.ramp_up.jobs_per_second().map(|rate| within(rate).max(1))
    }

    /// Jobs that run within that time, by their durations.
    pub fn fits(&mut self, jobs: f64) {
        self.ramp_up.fits(jobs);
    }
}

/// The rate is told at most so often while no job ends.
const MEASURE_EVERY_MIN: Duration = Duration::from_millis(10);

fn count(jobs: u64) -> usize {
    usize::try_from(jobs).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE_JOBS: u32 = 100;

    /// Claims from a source whose leases hold [`LEASE_JOBS`] jobs, each run in a millisecond.
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
    fn a_worker_holds_more_than_one_lease_and_claims_the_next_one_at_once() {
        let mut now = Instant::now();
        let mut claims = Claims::new(&WorkerSettings::default(), 2);
        claims.ran(0, now);
        claim_and_run(&mut claims, 20, &mut now);
        // About 100,000 jobs a second: 10,000 within the buffer target, and 1,000 until an exchange that gathers.
        let lasting = holding(3_000, 0);
        let asked = claims.wanted(lasting, now);
        assert!(asked > 10 * LEASE_JOBS, "it wants {asked} more");
        claims.exchange_began(now);
        assert_eq!(claims.exchange_at(asked, lasting, now), now);
        // Where the worker wants no more, outcomes gather.
        assert!(claims.exchange_at(0, lasting, now) > now);
    }

    #[test]
    fn a_claim_that_brought_all_there_is_is_not_repeated_at_once() {
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
