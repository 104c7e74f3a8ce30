//! The rate limit of requests: a token bucket for each token.

pub mod recent;
pub mod watched;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use gristmill_model::{Clock, Timestamp};

use crate::error::ApiError;
use crate::limits::TOKENS_MAX;

/// The requests that each token may still send.
#[derive(Debug)]
pub struct RateLimiter {
    clock: Arc<dyn Clock>,
    per_second: u32,
    burst: u32,
    buckets: Mutex<HashMap<Arc<str>, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Thousandths of a request.
    left_milli: i64,
    filled_at: Timestamp,
}

impl RateLimiter {
    /// Allows this many requests per second on average, and this many at once after a pause.
    pub fn new(clock: Arc<dyn Clock>, per_second: u32, burst: u32) -> Self {
        RateLimiter {
            clock,
            per_second,
            burst,
            buckets: Mutex::default(),
        }
    }

    /// Counts one request of `token`, or refuses it.
    pub fn take(&self, token: &Arc<str>) -> Result<(), ApiError> {
        let now = self.clock.now();
        let full = i64::from(self.burst) * 1_000;
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= TOKENS_MAX && !buckets.contains_key(token) {
            // A full bucket is the same as a new one.
            let rate = self.per_second;
            buckets.retain(|_, bucket| bucket.filled_to(now, rate, full) < full);
        }
        let fresh = Bucket {
            left_milli: full,
            filled_at: now,
        };
        let bucket = buckets.entry(token.clone()).or_insert(fresh);
        bucket.left_milli = bucket.filled_to(now, self.per_second, full);
        bucket.filled_at = now;
        if bucket.left_milli < 1_000 {
            return Err(ApiError::TooMany {
                what: "too many requests with this token",
                limit: format!("{} a second", self.per_second),
                retry_after_s: 1,
            });
        }
        bucket.left_milli -= 1_000;
        assert!(
            (0..full).contains(&bucket.left_milli),
            "a bucket of {full} thousandths cannot have {} left",
            bucket.left_milli
        );
        Ok(())
    }
}

impl Bucket {
    /// The tokens left at `now`. One request per second is a thousandth of a request per millisecond.
    fn filled_to(&self, now: Timestamp, per_second: u32, full: i64) -> i64 {
        let filled = now
            .since_ms(self.filled_at)
            .max(0)
            .saturating_mul(i64::from(per_second));
        self.left_milli.saturating_add(filled).min(full)
    }
}

#[cfg(test)]
mod tests {
    use gristmill_model::ManualClock;

    use super::*;

    #[test]
    fn a_token_may_send_its_burst_and_then_its_rate() {
        let clock = Arc::new(ManualClock::new(Timestamp(0)));
        let limiter = RateLimiter::new(clock.clone(), 10, 3);
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        for _ in 0..3 {
            limiter.take(&one).unwrap();
        }
        assert!(matches!(limiter.take(&one), Err(ApiError::TooMany { .. })));
        limiter.take(&other).unwrap();
        clock.advance_ms(99);
        assert!(limiter.take(&one).is_err());
        clock.advance_ms(1);
        limiter.take(&one).unwrap();
        assert!(limiter.take(&one).is_err());
        clock.advance_ms(1_000_000);
        assert_eq!((0..9).filter(|_| limiter.take(&one).is_ok()).count(), 3);
    }
}
