//! Parents and children: what all stores do with them in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gristmill_model::{
    BatchId, JobError, JobId, JobState, OnChildFailure, PackedArray, Positions, spawn::ranges,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{BatchPositions, Store, StoreError};

/// The policy of an edge that leads from children to their parents.
pub(crate) const CHILDREN: &str = "children";

/// The children that a job spawned last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Children {
    /// Its position in its batch.
    pub parent: u32,
    /// The children, by batch ascending.
    pub jobs: Vec<BatchPositions>,
}

/// How a child ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChildOutcome {
    /// The child.
    pub job: JobId,
    /// How it ended. Anything but `completed` is a failure.
    pub state: JobState,
    /// Its value, where it completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Box<RawValue>>,
    /// Why it is dead, where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<JobError>,
}

/// How the children of these jobs of a batch ended that they spawned last, in the order of the jobs: those of each by
/// batch and position ascending. Each batch of children is read once, however many parents share it.
pub async fn child_outcomes(
    store: &dyn Store,
    batch: BatchId,
    parents: &Positions,
) -> Result<Vec<Vec<ChildOutcome>>, StoreError> {
    let families = store.children(batch, parents).await?;
    let batches: BTreeSet<BatchId> = families
        .iter()
        .flat_map(|family| family.jobs.iter().map(|jobs| jobs.batch))
        .collect();
    let mut ended: BTreeMap<BatchId, BTreeMap<u32, ChildOutcome>> = BTreeMap::new();
    for children in batches {
        let wanted = families.iter().flat_map(|family| &family.jobs);
        let wanted = wanted.filter(|jobs| jobs.batch == children);
        let wanted = wanted.fold(Positions::new(), |all, jobs| all.union(&jobs.positions));
        ended.insert(children, outcomes_of(store, children, &wanted).await?);
    }
    let mut by_parent: BTreeMap<u32, Vec<ChildOutcome>> = BTreeMap::new();
    for family in families {
        let all = by_parent.entry(family.parent).or_default();
        for jobs in family.jobs {
            let Some(ended) = ended.get_mut(&jobs.batch) else {
                continue;
            };
            all.extend(
                jobs.positions
                    .iter()
                    .filter_map(|position| ended.remove(&position)),
            );
        }
    }
    let parents = parents.iter();
    Ok(parents
        .map(|parent| by_parent.remove(&parent).unwrap_or_default())
        .collect())
}

/// How these jobs of a batch ended, as far as they have.
async fn outcomes_of(
    store: &dyn Store,
    batch: BatchId,
    wanted: &Positions,
) -> Result<BTreeMap<u32, ChildOutcome>, StoreError> {
    let mut ended = BTreeMap::new();
    let Some(outcomes) = store.outcomes(batch).await? else {
        return Ok(ended);
    };
    for report in outcomes.reports {
        let positions = report.positions.intersection(wanted);
        let places = report.positions.indexes_of(&positions);
        let values = report.values.map(|values| values.select(&places));
        let mut values = values.iter().flat_map(PackedArray::items);
        for position in positions.iter() {
            let value = values.next().map(|value| RawValue::from_string(value.to_owned()));
            let outcome = ChildOutcome {
                job: JobId { batch, position },
                state: report.state,
                value: value.transpose().map_err(|error| {
                    StoreError::Database(format!("the value of job {batch}:{position} is no JSON: {error}"))
                })?,
                error: None,
            };
            ended.insert(position, outcome);
        }
    }
    for failure in outcomes.errors {
        if let Some(outcome) = ended.get_mut(&failure.position) {
            outcome.error = Some(failure.error);
        }
    }
    Ok(ended)
}

/// Jobs of a batch that suspended together, and their children.
#[derive(Debug)]
pub(crate) struct Family {
    /// The parents' positions, ascending.
    pub parents: Positions,
    pub on_failure: OnChildFailure,
    /// By id ascending.
    pub broods: Vec<Brood>,
}

/// A batch of children.
#[derive(Debug)]
pub(crate) struct Brood {
    pub batch: BatchId,
    /// Where the children of each parent begin, and where the last one's end.
    bounds: Vec<u32>,
}

impl Brood {
    /// From what each parent has of it.
    pub fn of_shares(batch: BatchId, shares: &[u32]) -> Self {
        let mut bounds = vec![0];
        bounds.extend(ranges(shares).map(|range| range.end));
        Brood { batch, bounds }
    }

    /// From where the children of each parent begin, and where the last one's end.
    pub fn of_bounds(batch: BatchId, bounds: Vec<u32>) -> Self {
        Brood { batch, bounds }
    }

    /// The children of the parent in this place.
    pub fn of_parent(&self, place: u32) -> Positions {
        let bounds = self
            .bounds
            .get(place as usize)
            .zip(self.bounds.get(place as usize + 1));
        match bounds {
            Some((start, end)) if start < end => Positions::from(*start..*end),
            _ => Positions::new(),
        }
    }

    /// The place of a child's parent.
    pub fn parent_of(&self, child: u32) -> u32 {
        let before = self.bounds.partition_point(|bound| *bound <= child);
        u32::try_from(before.saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// The places of the parents of children.
    pub fn parents_of(&self, children: &Positions) -> Positions {
        let mut places = Positions::new();
        for range in children.ranges() {
            let (first, last) = (self.parent_of(range.start), self.parent_of(range.end - 1));
            places.insert_range(first..last + 1);
        }
        places
    }

    /// All children.
    pub fn all(&self) -> Positions {
        Positions::all(self.bounds.last().copied().unwrap_or(0))
    }
}

impl Family {
    /// The position of the parent in this place.
    pub fn position_of(&self, place: u32) -> Option<u32> {
        self.parents.select(&Positions::from(place..place + 1)).first()
    }

    /// The children of these parents, which are given by position.
    pub fn children_of(&self, parents: &Positions) -> Vec<BatchPositions> {
        let places = self.parents.indexes_of(&self.parents.intersection(parents));
        let broods = self.broods.iter().map(|brood| BatchPositions {
            batch: brood.batch,
            positions: places
                .iter()
                .fold(Positions::new(), |all, place| all.union(&brood.of_parent(place))),
        });
        broods.filter(|jobs| !jobs.positions.is_empty()).collect()
    }

    /// The children of each of these parents.
    pub fn children_of_each(&self, parents: &Positions) -> impl Iterator<Item = Children> + '_ {
        let places: Vec<u32> = self
            .parents
            .indexes_of(&self.parents.intersection(parents))
            .iter()
            .collect();
        places.into_iter().filter_map(|place| {
            let jobs = self.broods.iter().map(|brood| BatchPositions {
                batch: brood.batch,
                positions: brood.of_parent(place),
            });
            Some(Children {
                parent: self.position_of(place)?,
                jobs: jobs.filter(|jobs| !jobs.positions.is_empty()).collect(),
            })
        })
    }
}

/// The families of a batch, the latest first, of which each position belongs to the first that has it.
pub(crate) fn latest<'f, F>(
    families: impl IntoIterator<Item = (F, &'f Positions)>,
    wanted: &Positions,
) -> Vec<(F, Positions)> {
    let mut left = wanted.clone();
    let mut found = Vec::new();
    for (family, parents) in families {
        let own = parents.intersection(&left);
        if !own.is_empty() {
            left = left.difference(&own);
            found.push((family, own));
        }
    }
    found
}

/// The error of a parent that is dead because of a child.
pub(crate) fn child_failed(child: JobId, state: JobState) -> JobError {
    JobError::new(
        "children",
        format!("job {child}, a child of it, ended as {state}"),
    )
    .permanent()
}

/// The error of a job whose children cannot be stored.
pub(crate) fn cannot_spawn(reason: &impl std::fmt::Display) -> JobError {
    JobError::new("children", format!("the children cannot be stored: {reason}")).permanent()
}

/// What children take over from their parents' batch.
#[derive(Debug, Clone)]
pub(crate) struct Inheritance {
    pub queue: Arc<str>,
    pub group: Option<Arc<str>>,
    /// The batch's tags.
    pub tags: Vec<gristmill_model::Tag>,
}

impl Inheritance {
    /// The batches of children that are stored for jobs of the batch.
    pub fn batches(
        &self,
        suspended: &gristmill_model::Suspended,
    ) -> Result<Vec<gristmill_model::NewBatch>, StoreError> {
        // Tags that name parents name them by their places.
        let inherited: Vec<gristmill_model::Tag> = self
            .tags
            .iter()
            .map(|tag| gristmill_model::Tag {
                positions: tag
                    .positions
                    .as_ref()
                    .map(|positions| suspended.positions.indexes_of(positions)),
                ..tag.clone()
            })
            .collect();
        let batches = suspended.children.iter();
        let batches: Vec<gristmill_model::NewBatch> = batches
            .map(|children| children.to_batch(&self.queue, self.group.as_deref(), &inherited))
            .collect();
        crate::check::check_batches(&batches)?;
        Ok(batches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_and_parents_find_each_other() {
        let family = Family {
            parents: "3,5-7".parse().unwrap(),
            on_failure: OnChildFailure::Fail,
            broods: vec![
                Brood::of_shares(BatchId(8), &[2, 0, 1, 3]),
                Brood::of_bounds(BatchId(9), vec![0, 0, 4, 4, 4]),
            ],
        };
        let places: Vec<u32> = (0..6).map(|child| family.broods[0].parent_of(child)).collect();
        assert_eq!(places, [0, 0, 2, 3, 3, 3]);
        assert_eq!(
            family.broods[1].parents_of(&"1-3".parse().unwrap()).to_string(),
            "1"
        );
        assert_eq!(
            family.broods[0].parents_of(&"1,4".parse().unwrap()).to_string(),
            "0,3"
        );
        let described = |parents: &str| -> Vec<String> {
            let children = family.children_of(&parents.parse().unwrap());
            children
                .iter()
                .map(|jobs| format!("{}:{}", jobs.batch, jobs.positions))
                .collect()
        };
        assert_eq!(described("3-7"), ["8:0-5", "9:0-3"]);
        assert_eq!(described("5"), ["9:0-3"]);
        assert_eq!(described("6"), ["8:2"]);
        let each: Vec<u32> = family
            .children_of_each(&"4-6".parse().unwrap())
            .map(|children| children.parent)
            .collect();
        assert_eq!(each, [5, 6]);
    }
}
