//! Retry policies.

use serde::{Deserialize, Serialize};

use crate::error::JobError;
use crate::limits::ATTEMPTS_MAX;
use crate::rng::Rng;

/// The growth of the delay from retry to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = BackoffName))]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Backoff {
    /// The same delay each time.
    Constant,
    /// The delay times the number of failed attempts.
    Linear,
    /// Doubles each time.
    Exponential,
    // Full jitter: <https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/>
    /// Random, up to the exponential delay.
    #[default]
    Jitter,
}

/// The number and the times of retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Maximum number of attempts, including the first one: at least 1.
    pub attempts_max: u32,
    /// The growth of the delay.
    pub backoff: Backoff,
    /// The base delay, in milliseconds.
    pub delay_ms: u64,
    /// The longest delay, in milliseconds.
    pub delay_ms_max: u64,
}

impl Default for RetryPolicy {
    /// Three attempts, full jitter from one second up to five minutes.
    fn default() -> Self {
        RetryPolicy {
            attempts_max: 3,
            backoff: Backoff::Jitter,
            delay_ms: 1_000,
            delay_ms_max: 300_000,
        }
    }
}

/// The action after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// Another attempt.
    Retry {
        /// Milliseconds until the attempt.
        delay_ms: u64,
    },
    /// No more attempts. The job is dead until someone retries or discards it.
    Dead,
}

impl RetryPolicy {
    /// One attempt, without retries.
    pub const NEVER: RetryPolicy = RetryPolicy {
        attempts_max: 1,
        backoff: Backoff::Constant,
        delay_ms: 0,
        delay_ms_max: 0,
    };

    /// The action after attempt number `attempt` (from 1) failed with `error`.
    pub fn after_failure(&self, attempt: u32, error: &JobError, rng: &mut dyn Rng) -> AfterFailure {
        if self.is_last(attempt, error) {
            return AfterFailure::Dead;
        }
        let delay_ms = error
            .retry_after_ms
            .unwrap_or_else(|| self.delay_ms(attempt, rng));
        AfterFailure::Retry { delay_ms }
    }

    /// Whether a job is dead after attempt number `attempt` (from 1) failed with `error`.
    pub fn is_last(&self, attempt: u32, error: &JobError) -> bool {
        error.permanent || attempt >= self.attempts_max.min(ATTEMPTS_MAX)
    }

    /// Whether a job whose attempt number `attempt` failed with `error` can be retried at once, without a random delay.
    pub fn repeats_at_once(&self, attempt: u32, error: &JobError) -> bool {
        let no_delay = match error.retry_after_ms {
            Some(retry_after_ms) => retry_after_ms == 0,
            None => self.delay_ms.min(self.delay_ms_max) == 0,
        };
        no_delay && !self.is_last(attempt, error)
    }

    fn delay_ms(&self, attempt: u32, rng: &mut dyn Rng) -> u64 {
        let doubled = || {
            self.delay_ms
                .saturating_mul(1 << (attempt.saturating_sub(1)).min(40))
        };
        let delay_ms = match self.backoff {
            Backoff::Constant => self.delay_ms.min(self.delay_ms_max),
            Backoff::Linear => self
                .delay_ms
                .saturating_mul(u64::from(attempt))
                .min(self.delay_ms_max),
            Backoff::Exponential => doubled().min(self.delay_ms_max),
            Backoff::Jitter => rng.below(doubled().min(self.delay_ms_max).saturating_add(1)),
        };
        assert!(delay_ms <= self.delay_ms_max, "a policy bounds its delays");
        delay_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    fn delays(backoff: Backoff) -> Vec<AfterFailure> {
        let policy = RetryPolicy {
            attempts_max: 5,
            backoff,
            delay_ms: 100,
            delay_ms_max: 350,
        };
        let mut rng = SplitMix64::new(1);
        let error = JobError::new("ValueError", "no");
        (1..=5)
            .map(|attempt| policy.after_failure(attempt, &error, &mut rng))
            .collect()
    }

    fn retries<const N: usize>(delays_ms: [u64; N]) -> Vec<AfterFailure> {
        let retries = delays_ms
            .into_iter()
            .map(|delay_ms| AfterFailure::Retry { delay_ms });
        retries.chain([AfterFailure::Dead]).collect()
    }

    #[test]
    fn delays_grow_by_the_policy_and_stay_below_its_maximum() {
        assert_eq!(delays(Backoff::Constant), retries([100, 100, 100, 100]));
        assert_eq!(delays(Backoff::Linear), retries([100, 200, 300, 350]));
        assert_eq!(delays(Backoff::Exponential), retries([100, 200, 350, 350]));
    }

    #[test]
    fn full_jitter_covers_the_whole_range() {
        let policy = RetryPolicy {
            attempts_max: 9,
            backoff: Backoff::Jitter,
            delay_ms: 3,
            delay_ms_max: 1_000,
        };
        let mut rng = SplitMix64::new(1);
        let drawn: std::collections::BTreeSet<u64> = (0..300).map(|_| policy.delay_ms(2, &mut rng)).collect();
        assert_eq!(drawn, (0..=6).collect());
    }

    #[test]
    fn only_retries_without_a_delay_are_immediate() {
        let error = JobError::new("Http", "503");
        let at_once = RetryPolicy {
            delay_ms: 0,
            ..RetryPolicy::default()
        };
        assert!(at_once.repeats_at_once(1, &error) && at_once.repeats_at_once(2, &error));
        assert!(!at_once.repeats_at_once(3, &error), "that was the last attempt");
        assert!(!at_once.repeats_at_once(1, &error.clone().permanent()));
        assert!(!at_once.repeats_at_once(1, &error.clone().retry_after_ms(1)));
        let delayed = RetryPolicy::default();
        assert!(!delayed.repeats_at_once(1, &error));
        assert!(delayed.repeats_at_once(1, &error.retry_after_ms(0)));
    }

    #[test]
    fn the_error_overrides_the_policy() {
        let (policy, mut rng) = (RetryPolicy::default(), SplitMix64::new(1));
        let error = JobError::new("Http", "429");
        let asked = error.clone().retry_after_ms(7_000);
        assert_eq!(
            policy.after_failure(1, &asked, &mut rng),
            AfterFailure::Retry { delay_ms: 7_000 }
        );
        assert_eq!(
            policy.after_failure(1, &error.permanent(), &mut rng),
            AfterFailure::Dead
        );
        assert_eq!(policy.after_failure(3, &asked, &mut rng), AfterFailure::Dead);
    }
}
