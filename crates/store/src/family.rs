//! Families: parents wait for their children without a worker, and then finalize.
//!
//! A report can suspend jobs and store their children with it; `model::spawn` packs the children of many parents into
//! few batches. The parents become a row of `blocked`, with an edge to each batch of children; `suspension` keeps their
//! memos, and `child_batch` the shares of each parent, both packed.
//!
//! When children end, settling finds their parents by position. Parents without open children become a slice that
//! finalizes. A claim hands it out with the memos, and its worker reads the outcomes of the children before it runs the
//! jobs. With the policy `fail`, the first failed child ends its parent and its siblings at once. Cancelling a parent
//! cancels its descendants.
//!
//! A child that completes can add siblings with its report: one more batch of the family, stored with an edge to it
//! before the report's edges are settled, so that the parent does not finalize before they end. A job without a parent
//! that spawns siblings fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gristmill_model::limits::FAMILY_BATCHES_MAX;
use gristmill_model::spawn::ranges;
use gristmill_model::{BatchId, JobError, JobId, JobState, OnChildFailure, PackedArray, Positions, Siblings};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{BatchPositions, Store, StoreError};

/// The policy of an edge that leads from children to their parents.
pub const CHILDREN: &str = "children";

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
pub struct Family {
    /// The parents' positions, ascending.
    pub parents: Positions,
    /// The effect of a failed child on its parent.
    pub on_failure: OnChildFailure,
    /// By id ascending.
    pub broods: Vec<Brood>,
}

/// A batch of children.
#[derive(Debug)]
pub struct Brood {
    /// The batch.
    pub batch: BatchId,
    /// The positions of their parents, ascending.
    parents: Positions,
    /// Where the children of each parent begin, and where the last one's end.
    bounds: Vec<u32>,
}

impl Brood {
    /// From what each parent has of it.
    pub fn of_shares(batch: BatchId, parents: Positions, shares: &[u32]) -> Self {
        Brood::of_bounds(batch, parents, bounds_of(shares))
    }

    /// From where the children of each parent begin, and where the last one's end.
    pub fn of_bounds(batch: BatchId, parents: Positions, bounds: Vec<u32>) -> Self {
        Brood {
            batch,
            parents,
            bounds,
        }
    }

    /// The children of these parents.
    pub fn of_parents(&self, parents: &Positions) -> Positions {
        let places = self.parents.indexes_of(&self.parents.intersection(parents));
        let mut children = Positions::new();
        for places in places.ranges() {
            let bounds = self.bounds.get(places.start as usize);
            let bounds = bounds.zip(self.bounds.get(places.end as usize));
            if let Some((first, end)) = bounds.filter(|(first, end)| first < end) {
                children.insert_range(*first..*end);
            }
        }
        children
    }

    /// A child's parent.
    pub fn parent_of(&self, child: u32) -> Option<u32> {
        let place = self.place_of(child);
        self.parents.select(&Positions::from(place..place + 1)).first()
    }

    fn place_of(&self, child: u32) -> u32 {
        let before = self.bounds.partition_point(|bound| *bound <= child);
        u32::try_from(before.saturating_sub(1)).unwrap_or(u32::MAX - 1)
    }

    /// The parents of children.
    pub fn parents_of(&self, children: &Positions) -> Positions {
        let mut places = Positions::new();
        for range in children.ranges() {
            let (first, last) = (self.place_of(range.start), self.place_of(range.end - 1));
            places.insert_range(first..last + 1);
        }
        self.parents.select(&places)
    }

    /// All children.
    pub fn all(&self) -> Positions {
        Positions::all(self.bounds.last().copied().unwrap_or(0))
    }
}

/// Where the children of each parent begin, and where the last one's end.
pub fn bounds_of(shares: &[u32]) -> Vec<u32> {
    let ends = ranges(shares).map(|range| range.end);
    std::iter::once(0).chain(ends).collect()
}

impl Family {
    /// The children of these parents, which are given by position.
    pub fn children_of(&self, parents: &Positions) -> Vec<BatchPositions> {
        let broods = self.broods.iter().map(|brood| BatchPositions {
            batch: brood.batch,
            positions: brood.of_parents(parents),
        });
        broods.filter(|jobs| !jobs.positions.is_empty()).collect()
    }

    /// The children of each of these parents.
    pub fn children_of_each(&self, parents: &Positions) -> impl Iterator<Item = Children> + '_ {
        let parents: Vec<u32> = self.parents.intersection(parents).iter().collect();
        parents.into_iter().map(|parent| Children {
            parent,
            jobs: self.children_of(&Positions::from(parent..parent + 1)),
        })
    }
}

/// The families of a batch, the latest first. Each position belongs to the first family that has it.
pub fn latest<'f, F>(
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
pub fn child_failed(child: JobId, state: JobState) -> JobError {
    JobError::new(
        "children",
        format!("job {child}, a child of it, ended as {state}"),
    )
    .permanent()
}

/// The error of a job whose children cannot be stored.
pub fn cannot_spawn(reason: &impl std::fmt::Display) -> JobError {
    JobError::new("children", format!("the children cannot be stored: {reason}")).permanent()
}

/// What children take over from their parents' batch.
#[derive(Debug, Clone)]
pub struct Inheritance {
    /// The queue of the parents.
    pub queue: Arc<str>,
    /// The group of the parents.
    pub group: Option<Arc<str>>,
    /// The batch's tags.
    pub tags: Vec<gristmill_model::Tag>,
}

impl Inheritance {
    /// The batches that are stored of children of these jobs of the batch.
    pub fn batches(
        &self,
        parents: &Positions,
        children: &[gristmill_model::ChildBatch],
    ) -> Result<Vec<gristmill_model::NewBatch>, StoreError> {
        // Tags that name parents name them by their places.
        let inherited: Vec<gristmill_model::Tag> = self
            .tags
            .iter()
            .map(|tag| gristmill_model::Tag {
                positions: tag
                    .positions
                    .as_ref()
                    .map(|positions| parents.indexes_of(positions)),
                ..tag.clone()
            })
            .collect();
        let batches: Vec<gristmill_model::NewBatch> = children
            .iter()
            .map(|children| children.to_batch(&self.queue, self.group.as_deref(), &inherited))
            .collect();
        crate::rules::check::check_batches(&batches)?;
        Ok(batches)
    }
}

/// Whose children a batch holds.
#[derive(Debug)]
pub struct Parentage {
    /// The batch of their parents.
    pub batch: BatchId,
    /// The number of the family.
    pub family: i64,
    /// How many batches of children the family has.
    pub broods_count: usize,
    /// The children.
    pub brood: Brood,
}

impl Parentage {
    /// What these jobs spawned for their parents, by those.
    pub fn by_parent(&self, siblings: &Siblings) -> Option<Siblings> {
        siblings.by_parent(|child| self.brood.parent_of(child))
    }
}

/// Checks the siblings that a job spawns against its parents. The error is that of the job.
pub fn check_siblings(
    batch: BatchId,
    siblings: &Siblings,
    parentage: Option<&Parentage>,
) -> Result<(), JobError> {
    let refuse = |message: String| Err(JobError::new("siblings", message).permanent());
    let Some(parentage) = parentage else {
        let position = siblings.positions.first().unwrap_or(0);
        return refuse(format!(
            "job {} has no parent, so it cannot spawn siblings: spawn children, or submit other jobs",
            JobId { batch, position }
        ));
    };
    if parentage.broods_count + siblings.children.len() > FAMILY_BATCHES_MAX {
        return refuse(format!(
            "its parent, of batch {}, has {} batches of children, and the limit is {FAMILY_BATCHES_MAX}: spawn more \
             siblings at once, or children",
            parentage.batch, parentage.broods_count
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_and_parents_find_each_other() {
        let parents: Positions = "3,5-7".parse().unwrap();
        let family = Family {
            on_failure: OnChildFailure::Fail,
            broods: vec![
                Brood::of_shares(BatchId(8), parents.clone(), &[2, 0, 1, 3]),
                Brood::of_bounds(BatchId(9), parents.clone(), vec![0, 0, 4, 4, 4]),
                Brood::of_shares(BatchId(10), "3,7".parse().unwrap(), &[1, 2]),
            ],
            parents,
        };
        let found: Vec<Option<u32>> = (0..6).map(|child| family.broods[0].parent_of(child)).collect();
        assert_eq!(found, [3, 3, 6, 7, 7, 7].map(Some));
        let parents_of = |brood: usize, children: &str| {
            let parents = family.broods[brood].parents_of(&children.parse().unwrap());
            parents.to_string()
        };
        assert_eq!(parents_of(1, "1-3"), "5");
        assert_eq!(parents_of(0, "1,4"), "3,7");
        assert_eq!(parents_of(2, "2"), "7");
        let described = |parents: &str| -> Vec<String> {
            let children = family.children_of(&parents.parse().unwrap());
            children
                .iter()
                .map(|jobs| format!("{}:{}", jobs.batch, jobs.positions))
                .collect()
        };
        assert_eq!(described("3-7"), ["8:0-5", "9:0-3", "10:0-2"]);
        assert_eq!(described("5"), ["9:0-3"]);
        assert_eq!(described("6"), ["8:2"]);
        assert_eq!(described("7"), ["8:3-5", "10:1-2"]);
        let each: Vec<u32> = family
            .children_of_each(&"4-6".parse().unwrap())
            .map(|children| children.parent)
            .collect();
        assert_eq!(each, [5, 6]);
    }

    #[test]
    fn siblings_need_a_parent_with_room() {
        let children = gristmill_model::ChildBatch::of("child", [1]).unwrap();
        let siblings = Siblings::one(3, children);
        let with_broods = |broods_count| Parentage {
            batch: BatchId(1),
            family: 1,
            broods_count,
            brood: Brood::of_shares(BatchId(2), Positions::all(1), &[4]),
        };
        let check = |parentage: Option<&Parentage>| {
            check_siblings(BatchId(2), &siblings, parentage).map_err(|error| error.message)
        };
        assert_eq!(check(Some(&with_broods(FAMILY_BATCHES_MAX - 1))), Ok(()));
        let full = check(Some(&with_broods(FAMILY_BATCHES_MAX))).unwrap_err();
        assert!(full.contains("10000 batches of children"), "{full}");
        assert!(check(None).unwrap_err().contains("job 2:3 has no parent"));
    }
}
