//! The window: the number of jobs that a runner holds beyond its slots.

use std::time::Duration;

use super::DispatchSettings;
use crate::handler::Capacity;

/// The weight of a measurement halves with this many later ones.
const HALF_LIFE_MEASUREMENTS: f64 = 4.0;

/// Jobs that take longer than this many times the target get no window, because the way to the runner and back is
/// negligible for them. Quicker jobs get a window of at least one job, which hides that way.
const PREFETCH_TARGETS: f64 = 10.0;

/// The largest number of micro-batches in a window: one is in the pipe while the next one is packed.
const MICRO_BATCHES: u32 = 2;

/// The number of jobs in the first batch of a handler of whole batches.
const BATCH_START_JOBS: u32 = 16;

/// The window of the runners of one kind. It grows by doubling, up to the number of jobs that take about the target time.
#[derive(Debug, Clone)]
pub(super) struct Window {
    target_us: f64,
    concurrency: f64,
    jobs_max: u32,
    /// The exponentially weighted duration of a job in microseconds. `None` before the first measurement.
    us_per_job: Option<f64>,
    /// The logarithm of the geometric mean of the durations in microseconds. One slow job changes it little.
    ln_us_per_job: Option<f64>,
    jobs: u32,
    batch_jobs: u32,
    batch_jobs_max: u32,
}

impl Window {
    pub fn new(settings: &DispatchSettings, capacity: &Capacity) -> Self {
        let batch_jobs_max = settings.micro_batch_jobs_max.max(1);
        Window {
            target_us: settings.window_target.as_secs_f64() * 1e6,
            concurrency: f64::from(capacity.concurrency.max(1)),
            jobs_max: match batch_jobs_max {
                1 => 0,
                jobs => jobs.saturating_mul(MICRO_BATCHES),
            },
            us_per_job: None,
            ln_us_per_job: None,
            jobs: 0,
            batch_jobs: BATCH_START_JOBS.min(batch_jobs_max),
            batch_jobs_max,
        }
    }

    /// The number of jobs beyond the slots of a runner.
    pub fn jobs(&self) -> u32 {
        self.jobs
    }

    /// The number of jobs in the next whole batch.
    pub fn batch_jobs(&self) -> u32 {
        self.batch_jobs
    }

    /// The number of typical jobs that one slot ends within `time`. `None` if no duration is known.
    pub fn jobs_per_slot_within(&self, time: Duration) -> Option<f64> {
        self.ln_us_per_job
            .map(|ln_us| time.as_secs_f64() * 1e6 / ln_us.exp().max(1e-3))
    }

    /// The known duration of a job, at most an hour.
    pub fn duration(&self) -> Duration {
        const HOUR_US: f64 = 3.6e9;
        Duration::from_secs_f64(self.us_per_job.unwrap_or(0.0).min(HOUR_US) / 1e6)
    }

    /// Learns from the durations of answered jobs. The last one weighs as much as all others together, so that a window
    /// shrinks at once when jobs become slow.
    pub fn learn(&mut self, durations_us: impl IntoIterator<Item = u32>) {
        let (mut sum, mut count, mut last) = (0.0, 0u32, 0.0);
        for duration_us in durations_us {
            last = f64::from(duration_us.max(1));
            sum += last;
            count += 1;
        }
        if count == 0 {
            return;
        }
        let mean = sum / f64::from(count);
        self.mix_typical((mean.ln() + last.ln()) / 2.0);
        let mean = self.mix((mean + last) / 2.0);
        let fitting = self.target_us / mean * self.concurrency;
        let prefetched = u32::from(mean <= self.target_us * PREFETCH_TARGETS);
        self.jobs = (fitting.round() as u32)
            .max(prefetched)
            .min(self.jobs.saturating_mul(2).max(1))
            .min(self.jobs_max);
        assert!(
            self.jobs <= self.jobs_max,
            "a window of {} jobs is larger than its limit of {}",
            self.jobs,
            self.jobs_max
        );
    }

    /// Learns from the duration of a whole batch.
    pub fn learn_batch(&mut self, jobs: u32, elapsed: Duration) {
        let us_per_job = elapsed.as_secs_f64() * 1e6 / f64::from(jobs.max(1));
        self.mix_typical(us_per_job.max(1e-3).ln());
        let fitting = self.target_us / self.mix(us_per_job).max(1e-3);
        self.batch_jobs = (fitting.round() as u32)
            .min(self.batch_jobs.saturating_mul(2))
            .clamp(1, self.batch_jobs_max);
    }

    fn mix(&mut self, us_per_job: f64) -> f64 {
        let mean = mixed(self.us_per_job, us_per_job);
        assert!(mean.is_finite() && mean >= 0.0, "a duration stays a number");
        self.us_per_job = Some(mean);
        mean
    }

    fn mix_typical(&mut self, ln_us_per_job: f64) {
        self.ln_us_per_job = Some(mixed(self.ln_us_per_job, ln_us_per_job));
    }
}

fn mixed(mean: Option<f64>, measured: f64) -> f64 {
    let keep = 0.5f64.powf(1.0 / HALF_LIFE_MEASUREMENTS);
    mean.map_or(measured, |mean| mean * keep + measured * (1.0 - keep))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(concurrency: u32) -> Window {
        let settings = DispatchSettings {
            busy_runners_max: 2,
            window_target: Duration::from_millis(10),
            micro_batch_jobs_max: 1_000,
        };
        let capacity = Capacity {
            concurrency,
            ..Capacity::default()
        };
        Window::new(&settings, &capacity)
    }

    #[test]
    fn a_window_doubles_for_quick_jobs_and_vanishes_for_slow_ones() {
        let mut window = window(1);
        let mut sizes = vec![window.jobs()];
        for _ in 0..13 {
            window.learn([1; 10]);
            sizes.push(window.jobs());
        }
        assert_eq!(
            sizes,
            [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_000, 2_000]
        );
        window.learn([1_000_000]);
        assert_eq!(window.jobs(), 0, "one slow job is known at once");
    }

    #[test]
    fn a_window_holds_the_target_for_each_slot_and_one_job_of_a_few_targets() {
        for (concurrency, duration_us, expected) in [
            (1, 100, 100),
            (1, 1_000, 10),
            (32, 1_000, 320),
            (1, 20_000, 1),
            (1, 99_000, 1),
            (1, 110_000, 0),
            (32, 250_000, 1),
        ] {
            let mut window = window(concurrency);
            (0..20).for_each(|_| window.learn([duration_us]));
            assert_eq!(
                window.jobs(),
                expected,
                "{concurrency} at once of {duration_us} us"
            );
        }
    }

    #[test]
    fn the_size_of_whole_batches_follows_their_duration() {
        let mut window = window(1);
        assert_eq!(window.batch_jobs(), 16);
        window.learn_batch(16, Duration::from_micros(16));
        assert_eq!(window.batch_jobs(), 32);
        (0..40).for_each(|_| window.learn_batch(32, Duration::from_millis(32)));
        assert_eq!(window.batch_jobs(), 10);
    }
}
