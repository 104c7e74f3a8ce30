//! Token buckets: the number of attempts that may begin now, and the time of the next ones.
//!
//! A bucket is one number: the time at which it was empty, in nanoseconds, so that rounding loses nothing. Its tokens
//! are those that have arrived since, up to the burst. Taking tokens moves the time forward.

use gristmill_model::Timestamp;
use gristmill_model::limits::RATE_WAKE_MS;

/// A rate and a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Tokens in a period.
    pub jobs: u32,
    /// The length of the period.
    pub period_ms: u64,
    /// The capacity of the bucket.
    pub burst: u32,
}

const NS_PER_MS: i128 = 1_000_000;

impl Rate {
    /// The time in which this number of tokens arrives, in nanoseconds, rounded up.
    fn span_ns(&self, tokens: u32) -> i128 {
        let period_ns = i128::from(self.period_ms) * NS_PER_MS;
        let jobs = i128::from(self.jobs.max(1));
        (period_ns * i128::from(tokens) + jobs - 1) / jobs
    }

    /// The time since which the bucket fills. A full bucket gains no tokens.
    fn since_ns(&self, empty_at_ns: Option<i64>, now: Timestamp) -> i128 {
        let full = i128::from(now.0) * NS_PER_MS - self.span_ns(self.burst);
        empty_at_ns.map_or(full, |empty_at_ns| i128::from(empty_at_ns).max(full))
    }

    /// The tokens of a bucket that was empty at this time. A bucket that was never used is full.
    pub fn tokens(&self, empty_at_ns: Option<i64>, now: Timestamp) -> u32 {
        let elapsed_ns = (i128::from(now.0) * NS_PER_MS - self.since_ns(empty_at_ns, now)).max(0);
        let tokens = elapsed_ns * i128::from(self.jobs) / (i128::from(self.period_ms.max(1)) * NS_PER_MS);
        u32::try_from(tokens).unwrap_or(u32::MAX).min(self.burst)
    }

    /// The time at which the bucket was empty, after tokens are taken.
    pub fn take(&self, empty_at_ns: Option<i64>, now: Timestamp, tokens: u32) -> i64 {
        let empty_at_ns = self.since_ns(empty_at_ns, now) + self.span_ns(tokens);
        debug_assert!(empty_at_ns >= i128::from(now.0) * NS_PER_MS - self.span_ns(self.burst));
        i64::try_from(empty_at_ns).unwrap_or(i64::MAX)
    }

    /// The time of the next look: when the tokens of [`RATE_WAKE_MS`] have arrived, or as many as fill half of the
    /// bucket, and at least one.
    pub fn next_at(&self, empty_at_ns: Option<i64>, now: Timestamp) -> Timestamp {
        let some = u64::from(self.jobs) * RATE_WAKE_MS / self.period_ms.max(1);
        let some = u32::try_from(some)
            .unwrap_or(u32::MAX)
            .clamp(1, (self.burst / 2).max(1));
        let at_ns = self.since_ns(empty_at_ns, now) + self.span_ns(some);
        let at_ms = (at_ns + NS_PER_MS - 1) / NS_PER_MS;
        Timestamp(i64::try_from(at_ms).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    #[test]
    fn a_new_bucket_is_full() {
        let rate = Rate {
            jobs: 3,
            period_ms: 1_000,
            burst: 7,
        };
        assert_eq!(rate.tokens(None, NOW), 7);
        let empty = rate.take(None, NOW, 7);
        assert_eq!(rate.tokens(Some(empty), NOW), 0);
        assert_eq!(rate.tokens(Some(empty), NOW.plus_ms(334)), 1);
        assert_eq!(rate.tokens(Some(empty), NOW.plus_ms(1_001)), 3);
        assert_eq!(rate.tokens(Some(empty), NOW.plus_ms(1_000_000)), 7);
    }

    /// Whenever the bucket is read, exactly the tokens of the rate have arrived.
    #[test]
    fn tokens_are_exact_over_many_takes() {
        let rate = Rate {
            jobs: 7,
            period_ms: 1_000,
            burst: 1,
        };
        let mut empty = Some(rate.take(None, NOW, 1));
        let mut taken = 0;
        for ms in 1..=100_000 {
            let now = NOW.plus_ms(ms);
            let tokens = rate.tokens(empty, now);
            if tokens > 0 {
                // With a burst of one, a late look loses tokens: at most a millisecond's worth each time.
                empty = Some(rate.take(empty, now, tokens));
                taken += tokens;
            }
        }
        assert!((694..=700).contains(&taken), "{taken}");
        let rate = Rate { burst: 2, ..rate };
        let mut empty = Some(rate.take(None, NOW, 2));
        let taken: u32 = (1..=100_000)
            .map(|ms| {
                let tokens = rate.tokens(empty, NOW.plus_ms(ms));
                empty = Some(rate.take(empty, NOW.plus_ms(ms), tokens));
                tokens
            })
            .sum();
        assert!((699..=700).contains(&taken), "{taken}");
    }

    #[test]
    fn a_wait_lasts_until_some_tokens_have_arrived() {
        let rate = |jobs, burst| Rate {
            jobs,
            period_ms: 1_000,
            burst,
        };
        for (rate, wait_ms) in [
            (rate(200, 200), 100),
            (rate(200, 10), 25),
            (rate(200, 1), 5),
            (rate(2, 10), 500),
            (rate(3, 1), 334),
        ] {
            let empty = rate.take(None, NOW, rate.burst);
            let next_at = rate.next_at(Some(empty), NOW);
            assert_eq!(next_at, NOW.plus_ms(wait_ms), "{rate:?}");
            assert!(rate.tokens(Some(empty), next_at) >= 1);
            assert_eq!(rate.tokens(Some(empty), Timestamp(NOW.0 + wait_ms - 1)) as u64, {
                u64::from(rate.jobs) * (wait_ms as u64 - 1) / 1_000
            });
        }
    }
}
