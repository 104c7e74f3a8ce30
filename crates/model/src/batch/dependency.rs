//! Prerequisites of batches.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::{BatchId, JobId};
use crate::limits::BATCH_JOBS_MAX;
use crate::positions::Positions;

/// The action on a batch when a prerequisite ends without completing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// Its jobs are cancelled.
    #[default]
    Cancel,
    /// Its jobs end as dead, with an error that names the prerequisite.
    Fail,
    /// It does not matter how the others end: once they have ended, the jobs can be claimed.
    Ignore,
}

impl OnFailure {
    /// The policy's name.
    pub const fn name(self) -> &'static str {
        match self {
            OnFailure::Cancel => "cancel",
            OnFailure::Fail => "fail",
            OnFailure::Ignore => "ignore",
        }
    }
}

impl fmt::Display for OnFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The text is not a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an action on a failure: give cancel, fail or ignore")]
pub struct ParseOnFailureError(String);

impl FromStr for OnFailure {
    type Err = ParseOnFailureError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [OnFailure::Cancel, OnFailure::Fail, OnFailure::Ignore]
            .into_iter()
            .find(|policy| policy.name() == text)
            .ok_or_else(|| ParseOnFailureError(text.to_owned()))
    }
}

/// A batch that another one waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Prerequisite {
    /// One that is stored.
    Batch(BatchId),
    /// One of the same submit, by its place in it, from 0. It comes before the batch that waits.
    Earlier(usize),
}

/// One thing that a batch waits for: jobs of one other batch. They may be of any kind and on any queue. It counts as
/// met once all of them have ended; of things that name the same batch and policy, once all of those have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct After {
    /// Their batch.
    pub prerequisite: Prerequisite,
    /// Which of its jobs; all of them, where `None`.
    pub positions: Option<Positions>,
    /// The action on the batch if one of them does not complete.
    pub on_failure: OnFailure,
}

impl After {
    /// All jobs of a batch.
    pub fn batch(batch: BatchId) -> Self {
        After {
            prerequisite: Prerequisite::Batch(batch),
            positions: None,
            on_failure: OnFailure::default(),
        }
    }

    /// One job.
    pub fn job(job: JobId) -> Self {
        After {
            positions: Some(Positions::from(job.position..job.position + 1)),
            ..After::batch(job.batch)
        }
    }

    /// All jobs of the batch in this place of the same submit.
    pub fn earlier(place: usize) -> Self {
        After {
            prerequisite: Prerequisite::Earlier(place),
            ..After::batch(BatchId(0))
        }
    }

    /// The same, with the action on a failure.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }
}

/// The text is not a prerequisite.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a prerequisite: give a batch (`42`), a job (`42:7`) or some jobs of a batch (`42:0-499,731`)"
)]
pub struct ParseAfterError(String);

impl FromStr for After {
    type Err = ParseAfterError;

    /// Reads `42`, `42:7` or `42:0-499,731`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseAfterError(text.chars().take(80).collect());
        let (batch, positions) = match text.split_once(':') {
            Some((batch, positions)) => (batch, Some(positions)),
            None => (text, None),
        };
        let number: i64 = batch.parse().map_err(|_| wrong())?;
        let positions: Option<Positions> = match positions {
            Some(positions) => Some(positions.parse().map_err(|_| wrong())?),
            None => None,
        };
        let has_positions = positions
            .as_ref()
            .is_none_or(|positions| positions.last().is_some_and(|last| last < BATCH_JOBS_MAX));
        if number < 1 || !has_positions {
            return Err(wrong());
        }
        Ok(After {
            positions,
            ..After::batch(BatchId(number))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_read() {
        assert_eq!("42".parse(), Ok(After::batch(BatchId(42))));
        let job = JobId {
            batch: BatchId(42),
            position: 7,
        };
        assert_eq!("42:7".parse(), Ok(After::job(job)));
        let some: After = "42:0-4,9".parse().unwrap();
        assert_eq!(some.positions.unwrap().len(), 6);
        for wrong in ["", "x", "0", "-1", "42:", "42:x", "42:10000", "42:9-1", ":1"] {
            let error = wrong.parse::<After>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{wrong}`")));
        }
    }

    #[test]
    fn policies_are_read_as_they_are_written() {
        for policy in [OnFailure::Cancel, OnFailure::Fail, OnFailure::Ignore] {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        assert!("perhaps".parse::<OnFailure>().is_err());
    }
}
