//! A limit of a service for each minute, as a bucket that fills every second.

use std::time::Duration;

use tokio::time::Instant;

/// The size of a bucket, in seconds of its limit. Services allow larger bursts. The rest is room for answers that are
/// longer than expected.
const BURST_SECONDS: f64 = 1.5;

/// One limit in the headers of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RateHeaders {
    /// The limit for each minute.
    pub limit_per_minute: Option<f64>,
    /// The amount that is left now.
    pub remaining: Option<f64>,
}

/// A bucket that fills evenly. Calls take from it.
#[derive(Debug)]
pub(super) struct Bucket {
    per_second: f64,
    level: f64,
    at: Instant,
}

impl Bucket {
    /// Makes a full bucket with a limit for each minute.
    pub(super) fn new(per_minute: f64, now: Instant) -> Bucket {
        let per_second = (per_minute / 60.0).max(1e-3);
        Bucket {
            per_second,
            level: per_second * BURST_SECONDS,
            at: now,
        }
    }

    /// Takes an amount, even if the bucket has less. A negative amount is given back.
    pub(super) fn take(&mut self, amount: f64) {
        self.level -= amount;
    }

    /// The time at which the bucket has `amount`, or is full if that is less; `None` if it has as much now.
    pub(super) fn full_at(&mut self, amount: f64, now: Instant) -> Option<Instant> {
        self.fill(now);
        let missing = amount.min(self.per_second * BURST_SECONDS) - self.level;
        (missing > 1e-9).then(|| now + Duration::from_secs_f64((missing / self.per_second).min(3_600.0)))
    }

    /// Applies the limits in headers, except for known limits.
    pub(super) fn heed(bucket: &mut Option<Bucket>, headers: RateHeaders, now: Instant) {
        if bucket.is_none() {
            *bucket = headers
                .limit_per_minute
                .filter(|limit| *limit > 0.0)
                .map(|limit| Bucket::new(limit, now));
        }
        if let (Some(bucket), Some(remaining)) = (bucket, headers.remaining) {
            bucket.fill(now);
            bucket.level = bucket.level.min(remaining);
        }
    }

    fn fill(&mut self, now: Instant) {
        let filled = self.level + (now - self.at).as_secs_f64() * self.per_second;
        self.level = filled.min(self.per_second * BURST_SECONDS);
        self.at = now;
    }
}
