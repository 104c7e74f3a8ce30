//! The deadline of all attempts together, counted from the first one.
//!
//! Before the first attempt, a slice carries the time by which it must start. From the first attempt on, it carries the
//! time by which the job must complete. A slice that is not claimed by that time ends.

use gristmill_model::{BatchOptions, JobError, JobState, Timestamp};

use crate::rules::ending::{Ending, FailedAttempt};

/// The progress of waiting or returning jobs through their attempts.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    /// The current or next attempt.
    pub attempt: u32,
    /// The number of times that the attempt was rescued from dead workers.
    pub rescues: u32,
    /// The time by which the attempt must begin.
    pub expires_at: Option<Timestamp>,
}

impl Standing {
    /// Whether an attempt has begun before.
    pub fn has_begun(&self) -> bool {
        self.attempt > 1 || self.rescues > 0
    }

    /// The time by which returning jobs must complete. `began_at` is the beginning of the attempt, if it was the first.
    pub fn deadline(&self, options: &BatchOptions, began_at: Timestamp) -> Option<Timestamp> {
        let within_ms = options.complete_within_ms?;
        match self.expires_at.filter(|_| self.has_begun()) {
            Some(deadline) => Some(deadline),
            None => Some(began_at.plus_ms(i64::try_from(within_ms).unwrap_or(i64::MAX))),
        }
    }

    /// The time limit of an attempt that begins now.
    pub fn timeout_ms(&self, options: &BatchOptions, now: Timestamp) -> Option<u64> {
        let left_ms = match (options.complete_within_ms, self.expires_at) {
            (Some(_), Some(deadline)) if self.has_begun() => {
                Some(deadline.since_ms(now).max(1).unsigned_abs())
            }
            (within_ms, _) => within_ms,
        };
        options.timeout_ms.into_iter().chain(left_ms).min()
    }

    /// The ending of jobs that were not claimed in time.
    pub fn ending(&self) -> Ending {
        assert!(self.attempt > 0, "attempts count from 1");
        if self.has_begun() {
            Ending::of(JobState::Dead, self.attempt.saturating_sub(1).max(1))
        } else {
            Ending::of(JobState::Expired, self.attempt - 1)
        }
    }

    /// The failure of such a job, if an attempt has begun.
    pub fn failure<'e>(&self, position: u32, lease: i64, error: &'e JobError) -> FailedAttempt<'e> {
        FailedAttempt::unreported(position, lease, self.ending().attempt, error)
    }
}

/// The time at which attempts with these durations began.
pub fn began_at(now: Timestamp, durations_us: impl Iterator<Item = u32>) -> Timestamp {
    // Jobs that fail together stay together, so the beginning of the last one counts for all.
    let shortest_us = durations_us.min().unwrap_or(0);
    now.plus_ms(-i64::from(shortest_us / 1_000))
}

/// Makes the error of a job that missed its deadline.
pub fn too_late(options: &BatchOptions) -> JobError {
    JobError::new(
        "deadline",
        format!(
            "it did not complete within {} ms of its first attempt",
            options.complete_within_ms.unwrap_or_default()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_attempt_sets_the_deadline() {
        let options = BatchOptions {
            complete_within_ms: Some(100),
            timeout_ms: Some(70),
            ..BatchOptions::default()
        };
        let first = Standing {
            attempt: 1,
            rescues: 0,
            expires_at: Some(Timestamp(5)),
        };
        assert_eq!(first.deadline(&options, Timestamp(10)), Some(Timestamp(110)));
        assert_eq!(first.timeout_ms(&options, Timestamp(10)), Some(70));
        assert_eq!(
            (first.ending().state, first.ending().attempt),
            (JobState::Expired, 0)
        );
        for (attempt, rescues) in [(2, 0), (1, 1)] {
            let later = Standing {
                attempt,
                rescues,
                expires_at: Some(Timestamp(110)),
            };
            assert_eq!(later.deadline(&options, Timestamp(50)), Some(Timestamp(110)));
            assert_eq!(later.timeout_ms(&options, Timestamp(80)), Some(30));
            assert_eq!(
                (later.ending().state, later.ending().attempt),
                (JobState::Dead, 1)
            );
        }
        assert_eq!(first.deadline(&BatchOptions::default(), Timestamp(10)), None);
        assert_eq!(first.timeout_ms(&BatchOptions::default(), Timestamp(10)), None);
        assert_eq!(
            began_at(Timestamp(100), [9_000, 5_999].into_iter()),
            Timestamp(95)
        );
    }
}
