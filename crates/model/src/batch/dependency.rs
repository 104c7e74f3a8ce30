//! Prerequisites of batches.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::batch::{InvalidBatch, NewBatch};
use crate::id::{BatchId, JobId};
use crate::limits::{BATCH_JOBS_MAX, PREREQUISITES_MAX};
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

/// Checks the prerequisites of the batches of one submit, without a store.
pub fn check_after<B: AsRef<NewBatch>>(batches: &[B]) -> Result<(), InvalidBatch> {
    for (place, batch) in batches.iter().map(AsRef::as_ref).enumerate() {
        if batch.after.len() > PREREQUISITES_MAX {
            return Err(InvalidBatch::TooManyPrerequisites(batch.after.len()));
        }
        for after in &batch.after {
            if after.positions.as_ref().is_some_and(Positions::is_empty) {
                return Err(InvalidBatch::NothingToWaitFor { place });
            }
            let Prerequisite::Earlier(earlier) = after.prerequisite else {
                continue;
            };
            let Some(prerequisite) = batches.get(earlier).map(AsRef::as_ref) else {
                return Err(InvalidBatch::UnknownPlace { place, earlier });
            };
            if earlier >= place {
                return Err(match cycle(batches, place, earlier) {
                    Some(cycle) => InvalidBatch::Cycle { cycle },
                    None => InvalidBatch::NotEarlier { place, earlier },
                });
            }
            let count = prerequisite.payloads.count();
            let last = after.positions.as_ref().and_then(Positions::last);
            if let Some(position) = last.filter(|last| *last >= count) {
                return Err(InvalidBatch::UnknownPosition {
                    prerequisite: format!("batch {earlier} of the submit"),
                    count,
                    position,
                });
            }
        }
    }
    Ok(())
}

/// The way from `place` over `next` back to `place`, in words, if there is one. Without recursion, since a chain may
/// be long.
fn cycle<B: AsRef<NewBatch>>(batches: &[B], place: usize, next: usize) -> Option<String> {
    let mut came_from: Vec<Option<usize>> = vec![None; batches.len()];
    let mut open = vec![next];
    came_from[next] = Some(place);
    while let Some(current) = open.pop() {
        if current == place {
            let mut way = vec![place];
            let mut back = place;
            while let Some(previous) = came_from[back] {
                way.push(previous);
                back = previous;
                if back == place {
                    break;
                }
            }
            way.reverse();
            return Some(in_words(&way));
        }
        for after in &batches[current].as_ref().after {
            if let Prerequisite::Earlier(earlier) = after.prerequisite
                && earlier < batches.len()
                && came_from[earlier].is_none()
            {
                came_from[earlier] = Some(current);
                open.push(earlier);
            }
        }
    }
    None
}

/// Places of a cycle that are named at most: the rest goes without saying.
const CYCLE_PLACES_MAX: usize = 20;

fn in_words(way: &[usize]) -> String {
    let mut places: Vec<String> = way
        .iter()
        .take(CYCLE_PLACES_MAX)
        .map(|place| format!("batch {place}"))
        .collect();
    if way.len() > CYCLE_PLACES_MAX {
        places.push("…".to_owned());
        places.push(format!("batch {}", way[way.len() - 1]));
    }
    places.join(" waits for ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::PackedArray;

    fn batches(after: &[&[usize]]) -> Vec<NewBatch> {
        let waiting = |places: &&[usize]| NewBatch {
            after: places.iter().copied().map(After::earlier).collect(),
            ..NewBatch::new("work", PackedArray::parse("[1,2]").unwrap())
        };
        after.iter().map(waiting).collect()
    }

    #[test]
    fn graphs_of_earlier_batches_are_allowed() {
        assert_eq!(check_after(&batches(&[&[], &[0], &[0, 0], &[1, 2]])), Ok(()));
    }

    #[test]
    fn cycles_are_refused_by_name() {
        let message = |after: &[&[usize]]| check_after(&batches(after)).unwrap_err().to_string();
        assert!(message(&[&[0]]).contains("batch 0 waits for batch 0"));
        let long = message(&[&[2], &[0], &[1]]);
        assert!(
            long.contains("batch 0 waits for batch 2 waits for batch 1 waits for batch 0"),
            "{long}"
        );
        let many: Vec<Vec<usize>> = (0..100_000)
            .map(|place| vec![(place + 99_999) % 100_000])
            .collect();
        let many: Vec<&[usize]> = many.iter().map(Vec::as_slice).collect();
        let many = message(&many);
        assert!(many.contains('…') && many.len() < 1_000, "{many}");
    }

    #[test]
    fn what_is_no_earlier_batch_is_refused() {
        let message = |after: &[&[usize]]| check_after(&batches(after)).unwrap_err().to_string();
        assert!(message(&[&[1], &[]]).contains("put batch 1 before batch 0"));
        assert!(message(&[&[], &[7]]).contains("waits for batch 7, which the submit does not have"));
        let mut wrong = batches(&[&[], &[0]]);
        wrong[1].after[0].positions = Some(Positions::from(1..3));
        assert!(
            check_after(&wrong)
                .unwrap_err()
                .to_string()
                .contains("has 2 jobs")
        );
        wrong[1].after[0].positions = Some(Positions::new());
        assert!(check_after(&wrong).is_err());
    }

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
