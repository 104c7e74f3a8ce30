//! Durations of jobs, in a fixed amount of memory and in a short text.

use std::fmt::Write;

/// Linear steps between two powers of two. The relative error of a quantile is at most 1 in 16.
const STEPS: u32 = 16;

/// Number of buckets for all `u32`.
const BUCKETS: usize = (STEPS * 29) as usize;

/// Counts durations in microseconds, in buckets whose width grows with the duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurationHistogram {
    counts: Box<[u64]>,
    count: u64,
    sum_us: u64,
}

impl Default for DurationHistogram {
    fn default() -> Self {
        DurationHistogram {
            counts: vec![0; BUCKETS].into(),
            count: 0,
            sum_us: 0,
        }
    }
}

impl DurationHistogram {
    /// Counts one duration.
    pub fn record(&mut self, duration_us: u32) {
        self.record_times(duration_us, 1);
    }

    /// Counts one duration `times` times.
    pub fn record_times(&mut self, duration_us: u32, times: u64) {
        self.counts[bucket(duration_us)] += times;
        self.count += times;
        self.sum_us += u64::from(duration_us) * times;
    }

    /// Number of counted durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the counted durations, in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &DurationHistogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.sum_us += other.sum_us;
        debug_assert_eq!(self.counts.iter().sum::<u64>(), self.count);
    }

    /// Writes the buckets that are not empty, as a store keeps them: `number:count`, separated by spaces, ascending.
    pub fn buckets(&self) -> String {
        let mut text = String::new();
        for (bucket, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let space = if text.is_empty() { "" } else { " " };
            // Writing to a string cannot fail.
            let _ = write!(text, "{space}{bucket}:{count}");
        }
        text
    }

    /// Adds buckets that [`buckets`](Self::buckets) has written, `times` times. Their sum is `sum_us` in all. `None` if
    /// the text is malformed.
    pub fn add_buckets(&mut self, buckets: &str, times: u64, sum_us: u64) -> Option<()> {
        for part in buckets.split_whitespace() {
            let (bucket, count) = part.split_once(':')?;
            let count = count.parse::<u64>().ok()?.checked_mul(times)?;
            *self.counts.get_mut(bucket.parse::<usize>().ok()?)? += count;
            self.count += count;
        }
        self.sum_us += sum_us;
        Some(())
    }

    /// The mean in microseconds; `None` if nothing was counted.
    pub fn mean_us(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_us as f64 / self.count as f64)
    }

    /// The duration that a share `quantile` (0 to 1) of all durations does not exceed, in microseconds, rounded up to
    /// the end of its bucket.
    pub fn quantile_us(&self, quantile: f64) -> Option<u64> {
        assert!(
            (0.0..=1.0).contains(&quantile),
            "a quantile is a share from 0 to 1"
        );
        let rank = ((self.count as f64 * quantile).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(bucket_end(bucket))
    }
}

/// The bucket of a duration. Each duration below [`STEPS`] has a bucket. Above, each power of two has [`STEPS`] buckets.
fn bucket(duration_us: u32) -> usize {
    if duration_us < STEPS {
        return duration_us as usize;
    }
    let exponent = duration_us.ilog2();
    let step = (duration_us >> (exponent - STEPS.ilog2())) - STEPS;
    let bucket = (STEPS * (exponent - STEPS.ilog2() + 1) + step) as usize;
    debug_assert!(
        bucket < BUCKETS && u64::from(duration_us) <= bucket_end(bucket),
        "a duration is in a bucket that does not end before it"
    );
    bucket
}

/// The longest duration of a bucket.
fn bucket_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let steps = u64::from(STEPS);
    if bucket < steps {
        return bucket;
    }
    let (octave, step) = (bucket / steps - 1, bucket % steps);
    ((steps + step + 1) << octave) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rng, SplitMix64};

    #[test]
    fn every_duration_is_in_the_bucket_that_ends_at_or_after_it() {
        let mut rng = SplitMix64::new(3);
        let drawn = (0..32).flat_map(|bits| {
            let power = 1u32 << bits;
            [power - 1, power, power + (power >> 1)]
        });
        let random = (0..10_000).map(|_| rng.next_u64() as u32 >> rng.below(32));
        for duration in drawn.chain(random).chain([u32::MAX]) {
            let index = bucket(duration);
            assert!(index < BUCKETS, "{duration}");
            assert!(bucket_end(index) >= u64::from(duration), "{duration}");
            assert!(
                index == 0 || bucket_end(index - 1) < u64::from(duration),
                "{duration}"
            );
        }
    }

    #[test]
    fn quantiles_are_within_one_sixteenth() {
        let mut histogram = DurationHistogram::default();
        assert_eq!((histogram.mean_us(), histogram.quantile_us(0.99)), (None, None));
        for duration in 1..=10_000 {
            histogram.record(duration);
        }
        assert_eq!(histogram.mean_us(), Some(5_000.5));
        let p99 = histogram.quantile_us(0.99).unwrap();
        assert!((9_900..=9_900 * 17 / 16).contains(&p99), "{p99}");
        assert_eq!(histogram.quantile_us(0.0), Some(1));
    }

    #[test]
    fn histograms_add_up() {
        let (mut whole, mut left, mut right) =
            <(DurationHistogram, DurationHistogram, DurationHistogram)>::default();
        for duration in [0, 3, 17, 17, 5_000, u32::MAX] {
            whole.record(duration);
            if duration > 3 { &mut left } else { &mut right }.record(duration);
        }
        assert_eq!(right.buckets(), "0:1 3:1");
        let mut merged = DurationHistogram::default();
        merged.merge(&left);
        merged.add_buckets(&right.buckets(), 1, right.sum_us()).unwrap();
        assert_eq!(merged, whole);
        merged.add_buckets("3:2", 5, 30).unwrap();
        assert_eq!((merged.count(), merged.sum_us()), (16, whole.sum_us() + 30));
        merged.record_times(7, 3);
        assert_eq!((merged.count(), merged.sum_us()), (19, whole.sum_us() + 51));
        for broken in ["3", "3:", ":1", "9999:1", "3:-1", "x:1"] {
            assert!(merged.add_buckets(broken, 1, 0).is_none(), "{broken}");
        }
    }
}
