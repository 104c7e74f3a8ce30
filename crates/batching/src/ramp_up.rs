//! The number of jobs that a worker claims next.

use std::time::Duration;

/// The bounds of a [`RampUp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RampUpSettings {
    /// The duration of the work that the worker holds beyond its free slots. It should be at least twice as long as a
    /// claim, because the next claim begins when half of it is left. Default 100 ms.
    pub buffer_target: Duration,
    /// Jobs to hold beyond the free slots after the first quick jobs; at least 1. Default 16.
    pub hold_start: usize,
    /// Maximum jobs of one claim, and maximum jobs held; at least 1. Default 10,000, the jobs of the largest batch.
    pub claim_max: usize,
    /// Maximum jobs to claim in all (`--limit`). Default none.
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

/// Measurements fade by the factor e in this number of buffer targets. It is long enough to even out single jobs, and
/// short enough to notice slow jobs within half a second.
const MEMORY_BUFFER_TARGETS: f64 = 5.0;

/// Longer claims count as if they took this time.
const CLAIM_SECONDS_MAX: f64 = 2.0;

/// Number of claims over which the duration of a claim is averaged.
const CLAIM_MEMORY: f64 = 8.0;

/// The factor by which the buffer grows each time it runs dry.
const GROWTH: usize = 4;

/// Decides how many jobs a worker claims next: one for each free slot, and about `buffer_target` of work beyond these.
/// It holds nothing beyond the free slots until it knows that jobs are quick. It grows while claims are filled and the
/// buffer runs dry, and shrinks when jobs are slow.
///
/// It reads no clock and claims nothing. The worker reports events, and asks.
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
    /// Jobs that the durations of jobs allow to hold; `None` while these are unknown.
    fitting: Option<usize>,
    /// The value of `hold` before the buffered jobs stalled, until a job ends.
    stalled_hold: Option<usize>,
    /// Seconds of a claim, exponentially weighted.
    claim_seconds: f64,
    /// Seconds of the last claim.
    last_claim_seconds: f64,
    /// Whether the last claim was filled and `hold` has not grown for it yet. If it was not filled, the source has no
    /// more jobs to ask for.
    may_grow: bool,
    /// The rest of `jobs_limit`.
    left: Option<u64>,
    /// Finished jobs and the seconds in which they finished, both fading. Their ratio is the exponentially weighted
    /// rate, without a first value.
    jobs: f64,
    seconds: f64,
}

impl RampUp {
    /// Makes the ramp-up of a starting worker.
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

    /// The number of jobs to claim now, for the number of claimed jobs that have not started, and of jobs that could
    /// start at once. It is 0 while the worker holds more than half of its target, so that claims are few and large.
    pub fn want(&self, buffered_jobs: usize, free_slots: usize) -> usize {
        let hold = free_slots.saturating_add(self.hold).min(self.settings.claim_max);
        if hold == 0 || buffered_jobs > hold / 2 {
            return 0;
        }
        assert!(
            hold <= self.settings.claim_max,
            "a worker holds at most one claim of jobs"
        );
        let want = hold - buffered_jobs;
        assert!(want <= self.settings.claim_max);
        self.left.map_or(want, |left| {
            usize::try_from(left).map_or(want, |left| want.min(left))
        })
    }

    /// Records a claim that asked for `asked` jobs and got `got`.
    pub fn claimed(&mut self, asked: usize, got: usize) {
        self.left = self.left.map(|left| left.saturating_sub(got as u64));
        if got == 0 && asked > 0 {
            // Jobs after a pause may be of another kind, and slow.
            self.hold = self.hold.min(self.settings.hold_start);
        }
        self.may_grow = asked > 0 && got >= asked;
    }

    /// Records that the worker's slots end this number of jobs within `buffer_target`, judged by their durations. It
    /// holds no more.
    pub fn fits(&mut self, jobs: f64) {
        // A float beyond the largest usize becomes the largest usize.
        let fitting = jobs.round() as usize;
        self.fitting = Some(fitting);
        self.hold = self.hold.min(fitting);
        assert!(self.hold <= self.settings.claim_max);
    }

    /// Records the duration of a claim. Over a slow network the worker holds more, so that it does not run dry during a
    /// claim.
    pub fn claim_took(&mut self, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64().min(CLAIM_SECONDS_MAX);
        self.claim_seconds += (seconds - self.claim_seconds) / CLAIM_MEMORY;
        assert!((0.0..=CLAIM_SECONDS_MAX).contains(&self.claim_seconds));
        self.last_claim_seconds = seconds;
    }

    /// The duration of the work that the worker holds: the buffer target, and the duration of the next two claims.
    pub fn hold_target(&self) -> Duration {
        match self.settings.buffer_target {
            Duration::ZERO => Duration::ZERO,
            target => target + Duration::from_secs_f64(2.0 * self.claim_seconds),
        }
    }

    /// Records that buffered jobs cannot begin soon. The worker claims nothing beyond the free slots until a job ends,
    /// and then holds less than before.
    pub fn stalled(&mut self) {
        self.stalled_hold = Some(self.hold.max(self.stalled_hold.unwrap_or(0)));
        self.hold = 0;
        self.may_grow = false;
    }

    /// Records that `jobs` claimed jobs were released without running. They do not count against the limit.
    pub fn given_back(&mut self, jobs: usize) {
        self.left = self.left.map(|left| left.saturating_add(jobs as u64));
    }

    /// Records that `jobs` finished (in any way) in `elapsed`: the wall time of the whole worker since the last such
    /// call, without the time in which it had no job. With several jobs at a time, the rate is the rate of all of them.
    /// A worker with long jobs may report 0 jobs, so that it learns of their slowness before they end.
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
        assert!(
            self.jobs.is_finite() && self.seconds.is_finite(),
            "the rate of jobs stays a number"
        );
        let hold_max = self.hold_max();
        if self.hold > hold_max {
            self.hold = hold_max;
        } else if self.jobs_per_second().is_some() {
            self.grow();
        }
    }

    /// Records that the worker could have run a job and had none.
    pub fn ran_dry(&mut self) {
        self.grow();
    }

    /// The rate at which the worker finishes jobs, exponentially weighted; `None` before the first measurement.
    pub fn jobs_per_second(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.jobs / self.seconds)
    }

    /// Grows once for each filled claim, up to the jobs that run within `buffer_target`, and at least to the jobs that
    /// run during a claim. With fewer, slots with quick jobs would mostly wait.
    fn grow(&mut self) {
        if std::mem::take(&mut self.may_grow) {
            let share = self.last_claim_seconds / self.hold_target().as_secs_f64().max(f64::MIN_POSITIVE);
            let during_claim = self.fitting.unwrap_or(0) as f64 * share.min(1.0);
            let grown = self.hold.saturating_mul(GROWTH);
            let grown = grown.max(during_claim as usize).max(self.settings.hold_start);
            self.hold = grown.min(self.hold_max());
            assert!(self.hold <= self.settings.claim_max);
        }
    }

    /// The jobs that run within `buffer_target`, as far as known, and at most `claim_max`; 0 while nothing is known.
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
