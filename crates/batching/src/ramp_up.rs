//! How many jobs a worker claims next.

use std::time::Duration;

/// What bounds a [`RampUp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RampUpSettings {
    /// The work that the worker wants to hold beyond its free slots, as the time it takes to run it. It should be at
    /// least twice as long as a claim takes, since the next claim is made when half of it is left. Default 100 ms.
    pub buffer_target: Duration,
    /// Jobs to hold beyond the free slots once the first jobs were quick; at least 1. Default 16.
    pub hold_start: usize,
    /// Jobs in one claim at most, and jobs held at most; at least 1. Default 10,000, the jobs of the largest
    /// batch.
    pub claim_max: usize,
    /// Jobs to claim in all (`--limit`). Default none.
    pub jobs_limit: Option<u64>,
}

impl Default for RampUpSettings {
    fn default() -> RampUpSettings {
        RampUpSettings {
            buffer_target: Duration::from_millis(100),
            hold_start: 16,
            claim_max: 10_000,
            jobs_limit: None,
        }
    }
}

/// Measurements lose weight by the factor e in so many buffer targets: long enough to even out single jobs,
/// short enough that a worker notices slow jobs within half a second.
const MEMORY_BUFFER_TARGETS: f64 = 5.0;

/// Claims that take longer count as if they took so long.
const CLAIM_SECONDS_MAX: f64 = 2.0;

/// The last so many claims count for how long one takes.
const CLAIM_MEMORY: f64 = 8.0;

/// What the buffer grows by each time it runs dry.
const GROWTH: usize = 4;

/// Decides how many jobs a worker claims next: one for each free slot, and beyond these about `buffer_target` of work. It
/// holds nothing beyond the free slots until jobs are known to be quick, grows while claims are filled and the buffer
/// runs dry, and shrinks when jobs turn out slow.
///
/// It reads no clock and claims nothing: the worker tells it what happened, and asks.
///
/// ```
/// use std::time::Duration;
/// use gristmill_batching::{RampUp, RampUpSettings};
///
/// let mut ramp_up = RampUp::new(RampUpSettings::default());
/// assert_eq!(ramp_up.want(0, 4), 4); // A job for each of four free slots.
/// ramp_up.claimed(4, 4);
/// ramp_up.ran(4, Duration::from_micros(40));
/// ramp_up.ran_dry(); // The worker waited for the next claim.
/// assert_eq!(ramp_up.want(0, 4), 4 + 16);
/// ramp_up.ran(1, Duration::from_secs(1)); // A slow job: nothing beyond the free slots.
/// assert_eq!(ramp_up.want(0, 1), 1);
/// ```
#[derive(Debug, Clone)]
pub struct RampUp {
    settings: RampUpSettings,
    /// Jobs to hold beyond the free slots.
    hold: usize,
    /// What the durations of jobs allow to hold, where they are known.
    fitting: Option<usize>,
    /// The hold before the buffered jobs stalled, until a job ends.
    stalled_hold: Option<usize>,
    /// Seconds that a claim takes, exponentially weighted.
    claim_seconds: f64,
    /// Seconds that the last claim took.
    last_claim_seconds: f64,
    /// The last claim got all that it asked for, and `hold` has not grown for it yet. Without it there is no
    /// reason to ask for more: the source has none.
    may_grow: bool,
    /// What is left of `jobs_limit`.
    left: Option<u64>,
    /// Jobs finished, and seconds in which they did, both with the past fading. Their ratio is the
    /// exponentially weighted rate, without a first value to begin from.
    jobs: f64,
    seconds: f64,
}

impl RampUp {
    /// A worker's start.
    ///
    /// # Panics
    ///
    /// If `hold_start` or `claim_max` is 0: nothing would ever be claimed.
    pub fn new(settings: RampUpSettings) -> RampUp {
        assert!(
            settings.hold_start > 0,
            "RampUpSettings::hold_start must be at least 1"
        );
        assert!(
            settings.claim_max > 0,
            "RampUpSettings::claim_max must be at least 1"
        );
        RampUp {
            hold: 0,
            fitting: None,
            stalled_hold: None,
            claim_seconds: 0.0,
            last_claim_seconds: 0.0,
            may_grow: false,
            left: settings.jobs_limit,
            jobs: 0.0,
            seconds: 0.0,
            settings,
        }
    }

    /// How many jobs to claim now, given the jobs that are claimed and not started yet, and the jobs that could start at
    /// once. 0 while more than half of what the worker wants to hold is there, so that claims are few and large.
    pub fn want(&self, buffered_jobs: usize, free_slots: usize) -> usize {
        let hold = free_slots.saturating_add(self.hold).min(self.settings.claim_max);
        if hold == 0 || buffered_jobs > hold / 2 {
            return 0;
        }
        let want = hold - buffered_jobs;
        self.left.map_or(want, |left| {
            usize::try_from(left).map_or(want, |left| want.min(left))
        })
    }

    /// A claim asked for `asked` jobs and got `got`.
    pub fn claimed(&mut self, asked: usize, got: usize) {
        self.left = self.left.map(|left| left.saturating_sub(got as u64));
        if got == 0 && asked > 0 {
            // What comes after a pause may be of another kind and slow.
            self.hold = self.hold.min(self.settings.hold_start);
        }
        self.may_grow = asked > 0 && got >= asked;
    }

    /// The worker's slots end so many jobs within `buffer_target`, by the durations of jobs: it holds no more.
    pub fn fits(&mut self, jobs: f64) {
        // A float beyond the largest usize becomes the largest usize.
        let fitting = jobs.round() as usize;
        self.fitting = Some(fitting);
        self.hold = self.hold.min(fitting);
    }

    /// A claim took so long. Behind a slow network the worker holds more, so that it does not run dry meanwhile.
    pub fn claim_took(&mut self, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64().min(CLAIM_SECONDS_MAX);
        self.claim_seconds += (seconds - self.claim_seconds) / CLAIM_MEMORY;
        self.last_claim_seconds = seconds;
    }

    /// The work that the worker wants to hold, as the time it takes to run it: the buffer target, and what runs while the
    /// next two claims travel.
    pub fn hold_target(&self) -> Duration {
        match self.settings.buffer_target {
            Duration::ZERO => Duration::ZERO,
            target => target + Duration::from_secs_f64(2.0 * self.claim_seconds),
        }
    }

    /// The buffered jobs cannot begin soon. The worker claims nothing beyond the free slots until a job ends; from then on
    /// it holds less than before.
    pub fn stalled(&mut self) {
        self.stalled_hold = Some(self.hold.max(self.stalled_hold.unwrap_or(0)));
        self.hold = 0;
        self.may_grow = false;
    }

    /// `jobs` claimed jobs were given back to the source without being run, and so do not count against the
    /// limit.
    pub fn given_back(&mut self, jobs: usize) {
        self.left = self.left.map(|left| left.saturating_add(jobs as u64));
    }

    /// `jobs` were finished (in whatever way) in `elapsed`: time of the worker as a whole by the wall, since
    /// the last such call, without the time during which it had no job at all. With several jobs at once, the
    /// rate is that of all of them. A worker whose jobs are long may report 0 jobs, so that it learns of
    /// their slowness before they end.
    pub fn ran(&mut self, jobs: usize, elapsed: Duration) {
        let elapsed = elapsed.as_secs_f64();
        let memory = self.settings.buffer_target.as_secs_f64() * MEMORY_BUFFER_TARGETS;
        let fading = if elapsed == 0.0 {
            1.0
        } else {
            (-elapsed / memory).exp()
        };
        self.jobs = self.jobs * fading + jobs as f64;
        self.seconds = self.seconds * fading + elapsed;
        if jobs > 0 {
            self.hold += self.stalled_hold.take().unwrap_or(0) / GROWTH;
        }
        let hold_max = self.hold_max();
        if self.hold > hold_max {
            self.hold = hold_max;
        } else if self.jobs_per_second().is_some() {
            self.grow();
        }
    }

    /// The worker could have run a job and had none.
    pub fn ran_dry(&mut self) {
        self.grow();
    }

    /// The rate at which the worker finishes jobs, exponentially weighted; `None` before the first
    /// measurement.
    pub fn jobs_per_second(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.jobs / self.seconds)
    }

    /// Grows, once for each claim that was filled, up to the jobs that run within `buffer_target`. It grows at least to the
    /// jobs that run while a claim travels: with fewer, slots that run quick jobs mostly wait.
    fn grow(&mut self) {
        if std::mem::take(&mut self.may_grow) {
            let share = self.last_claim_seconds / self.hold_target().as_secs_f64().max(f64::MIN_POSITIVE);
            let during_claim = self.fitting.unwrap_or(0) as f64 * share.min(1.0);
            let grown = self.hold.saturating_mul(GROWTH);
            let grown = grown.max(during_claim as usize).max(self.settings.hold_start);
            self.hold = grown.min(self.hold_max());
        }
    }

    /// The jobs that run within `buffer_target`, as far as known; at most `claim_max`. Nothing while nothing is known.
    fn hold_max(&self) -> usize {
        let within = |jobs_per_second: f64| {
            // A float beyond the largest usize becomes the largest usize.
            (jobs_per_second * self.hold_target().as_secs_f64()).round() as usize
        };
        let measured = self.jobs_per_second().map(within);
        let known = measured.into_iter().chain(self.fitting).min();
        known.unwrap_or(0).min(self.settings.claim_max)
    }
}

#[cfg(all(test, not(loom)))]
#[path = "ramp_up/tests.rs"]
mod tests;
