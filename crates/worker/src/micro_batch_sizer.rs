//! How many jobs go to a handler at once.

use std::time::Duration;

/// Measurements lose half of their weight with so many later ones.
const HALF_LIFE_MICRO_BATCHES: f64 = 4.0;

/// Sizes micro-batches of one kind so that each takes about as long as it should: large enough to
/// spread the cost of a hand-over, small enough that slots share the work and a drain is quick.
#[derive(Debug, Clone)]
pub struct MicroBatchSizer {
    target: Duration,
    jobs_max: u32,
    /// Seconds a job takes, exponentially weighted; `None` before the first measurement.
    seconds_per_job: Option<f64>,
    /// The next size until jobs are known to be slow: doubles from batch to batch.
    size: u32,
}

impl MicroBatchSizer {
    /// A sizer that knows nothing of its jobs yet and begins with `start` jobs.
    pub fn new(target: Duration, jobs_max: u32) -> Self {
        MicroBatchSizer {
            target,
            jobs_max: jobs_max.max(1),
            seconds_per_job: None,
            size: jobs_max.clamp(1, 16),
        }
    }

    /// How many jobs the next micro-batch takes, where `buffered` wait for `free_slots` (at least 1).
    /// Slow jobs are shared out between the slots; for fast ones it does not pay to split them further.
    pub fn next(&self, buffered: u64, free_slots: usize) -> u32 {
        let share = buffered
            .div_ceil(free_slots.max(1) as u64)
            .clamp(1, u64::from(self.jobs_max)) as u32;
        self.size.min(share.max(self.size / 4)).max(1)
    }

    /// A micro-batch of `jobs` took `elapsed`.
    pub fn ran(&mut self, jobs: u32, elapsed: Duration) {
        if jobs == 0 {
            return;
        }
        let seconds = elapsed.as_secs_f64() / f64::from(jobs);
        let keep = 0.5f64.powf(1.0 / HALF_LIFE_MICRO_BATCHES);
        let mean = self
            .seconds_per_job
            .map_or(seconds, |mean| mean * keep + seconds * (1.0 - keep));
        self.seconds_per_job = Some(mean);
        let fitting = self.target.as_secs_f64() / mean.max(1e-9);
        self.size = (fitting as u32)
            .min(self.size.saturating_mul(2))
            .clamp(1, self.jobs_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_while_jobs_are_fast_and_shrinks_to_one_for_slow_ones() {
        let mut sizer = MicroBatchSizer::new(Duration::from_millis(10), 1_000);
        assert_eq!(sizer.next(10_000, 1), 16);
        for expected in [32, 64, 128, 256, 512, 1_000, 1_000] {
            sizer.ran(16, Duration::from_micros(16));
            assert_eq!(sizer.next(10_000, 1), expected);
        }
        for _ in 0..40 {
            sizer.ran(1, Duration::from_secs(1));
        }
        assert_eq!(sizer.next(10_000, 1), 1);
    }

    #[test]
    fn shares_what_is_there_between_free_slots() {
        let sizer = MicroBatchSizer::new(Duration::from_millis(10), 1_000);
        assert_eq!(sizer.next(20, 4), 5);
        assert_eq!(sizer.next(2, 8), 4, "a quarter of the size is not split further");
        assert_eq!(sizer.next(0, 0), 4);
    }
}
