//! Prerequisites of batches.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::{BatchId, JobId};
use crate::limits::BATCH_JOBS_MAX;
use crate::positions::Positions;

/// The action on dependents when a prerequisite ends without completing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = AfterFailureName))]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// They are cancelled.
    #[default]
    Cancel,
    /// They end as dead, with an error that names the prerequisite.
    Fail,
    /// They can be claimed all the same.
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

/// A batch for which another batch waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Prerequisite {
    /// A stored batch.
    Batch(BatchId),
    /// A batch of the same submit, by its index in it, from 0. It precedes the batch that waits.
    Earlier(usize),
}

/// A prerequisite: jobs of one other batch, of any kind and on any queue. It is met once all these jobs have ended.
/// Prerequisites with the same batch and policy are met together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct After {
    /// The other batch.
    pub prerequisite: Prerequisite,
    /// The positions of its jobs; all jobs if `None`.
    pub positions: Option<Positions>,
    /// The action on the waiting batch if one of these jobs does not complete.
    pub on_failure: OnFailure,
}

/// Stored jobs of one batch for which other jobs wait or waited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// The batch.
    pub batch: BatchId,
    /// The positions of the jobs; all jobs if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positions: Option<Positions>,
}

impl Awaited {
    /// The stored jobs that these prerequisites name, one entry for each batch, in the order in which the batches are named.
    /// `earlier` are the ids of the earlier batches of the submit.
    ///
    /// # Panics
    ///
    /// A prerequisite is no earlier batch of the submit.
    pub fn of(after: &[After], earlier: &[BatchId]) -> Vec<Awaited> {
        let mut all: Vec<Awaited> = Vec::with_capacity(after.len());
        let mut places = HashMap::with_capacity(after.len());
        for one in after {
            let batch = match one.prerequisite {
                Prerequisite::Batch(batch) => batch,
                Prerequisite::Earlier(place) => {
                    assert!(
                        place < earlier.len(),
                        "a prerequisite is stored before its dependents"
                    );
                    earlier[place]
                }
            };
            match places.get(&batch) {
                Some(place) => {
                    let known: &mut Awaited = &mut all[*place];
                    known.positions = match (known.positions.take(), &one.positions) {
                        (Some(known), Some(more)) => Some(known.union(more)),
                        _ => None,
                    };
                }
                None => {
                    places.insert(batch, all.len());
                    all.push(Awaited {
                        batch,
                        positions: one.positions.clone(),
                    });
                }
            }
        }
        all
    }
}

impl After {
    /// Makes a prerequisite of all jobs of a batch.
    pub fn batch(batch: BatchId) -> Self {
        After {
            prerequisite: Prerequisite::Batch(batch),
            positions: None,
            on_failure: OnFailure::default(),
        }
    }

    /// Makes a prerequisite of one job.
    pub fn job(job: JobId) -> Self {
        After {
            positions: Some(Positions::from(job.position..job.position + 1)),
            ..After::batch(job.batch)
        }
    }

    /// Makes a prerequisite of all jobs of a batch in the same submit, by its index.
    pub fn earlier(place: usize) -> Self {
        After {
            prerequisite: Prerequisite::Earlier(place),
            ..After::batch(BatchId(0))
        }
    }

    /// Sets the action on a failure.
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
    fn prerequisites_read_back_as_written() {
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
    fn policies_read_back_as_written() {
        for policy in [OnFailure::Cancel, OnFailure::Fail, OnFailure::Ignore] {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        assert!("perhaps".parse::<OnFailure>().is_err());
    }
}
