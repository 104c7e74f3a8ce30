//! Families: parents wait for their children without a worker, and then finalize.
//!
//! A report can suspend jobs and store their children with it. `model::spawn` packs the children of many parents into
//! few batches. The parents become a row of `blocked`, with an edge to each batch of children. `suspension` keeps their
//! memos, and `child_batch` keeps the shares of each parent, both packed.
//!
//! When children end, settling finds their parents by position. Parents without open children become a slice that
//! finalizes. A claim hands it out with the memos, and its worker reads the outcomes of the children before it runs the
//! jobs. With the policy `fail`, the first failed child ends its parent and its siblings at once. Cancelling a parent
//! cancels its descendants.
//!
//! A child that completes can add siblings with its report. They are one more batch of the family, stored with an edge
//! to it before the report's edges are settled, so that the parent does not finalize before they end. A job without a
//! parent that spawns siblings fails.
//!
//! A flow is a job that suspends again and again. The families of its steps stay its own: its next run gets the memos
//! and children of all of them ([`flow`]).

pub mod flow;
pub mod spawning;

use gristmill_model::spawn::ranges;
use gristmill_model::{BatchId, JobError, JobId, JobState, OnChildFailure, PackedArray, Positions, Wake};

use crate::{BatchPositions, Children, Suspension};

/// The policy of an edge between children and their parents.
pub const CHILDREN: &str = "children";

/// Jobs of a batch that were suspended together, and their children.
#[derive(Debug)]
pub struct Family {
    /// The positions of the parents, in ascending order.
    pub parents: Positions,
    /// The action on a parent when its child fails.
    pub on_failure: OnChildFailure,
    /// For steps of flows, when they run again.
    pub flow: Option<Wake>,
    /// The batches of children, in ascending order of id. Of a flow that waits, also those of its earlier steps for which
    /// it waits.
    pub broods: Vec<Brood>,
}

/// A batch of children.
#[derive(Debug)]
pub struct Brood {
    /// The batch.
    pub batch: BatchId,
    /// Whether they are together. See [`ChildBatch::together`](gristmill_model::ChildBatch::together).
    pub together: bool,
    /// The positions of their parents, in ascending order.
    parents: Positions,
    /// The beginning of each parent's children, and the end of the last one's.
    bounds: Vec<u32>,
}

impl Brood {
    /// Makes a brood from the share of each parent.
    pub fn of_shares(batch: BatchId, parents: Positions, shares: &[u32]) -> Self {
        assert_eq!(shares.len(), parents.len() as usize, "each parent has a share");
        Brood::of_bounds(batch, parents, bounds_of(shares))
    }

    /// Makes a brood from the beginning of each parent's children, and the end of the last one's.
    pub fn of_bounds(batch: BatchId, parents: Positions, bounds: Vec<u32>) -> Self {
        assert!(bounds.is_sorted(), "the shares of parents follow each other");
        assert_eq!(bounds.len(), parents.len() as usize + 1, "one share each");
        Brood {
            batch,
            together: false,
            parents,
            bounds,
        }
    }

    /// Sets whether they are together.
    pub fn together(self, together: bool) -> Self {
        Brood { together, ..self }
    }

    /// The parents of ended children whose flows may have news: where the children are together, those with none that is open.
    pub fn parents_with_news(&self, ended: &Positions, open: &Positions) -> Positions {
        let parents = self.parents_of(ended);
        match self.together {
            true => parents.difference(&self.parents_of(&open.intersection(&self.all()))),
            false => parents,
        }
    }

    /// Finds the children of these parents.
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

    /// Finds the parent of a child.
    pub fn parent_of(&self, child: u32) -> Option<u32> {
        let place = self.place_of(child);
        self.parents.select(&Positions::from(place..place + 1)).first()
    }

    fn place_of(&self, child: u32) -> u32 {
        let before = self.bounds.partition_point(|bound| *bound <= child);
        u32::try_from(before.saturating_sub(1)).unwrap_or(u32::MAX - 1)
    }

    /// Finds the parents of children.
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

/// The beginning of each parent's children, and the end of the last one's.
pub fn bounds_of(shares: &[u32]) -> Vec<u32> {
    let ends = ranges(shares).map(|range| range.end);
    std::iter::once(0).chain(ends).collect()
}

impl Family {
    /// Finds the children of these parents, given by position.
    pub fn children_of(&self, parents: &Positions) -> Vec<BatchPositions> {
        let broods = self.broods.iter().map(|brood| BatchPositions {
            batch: brood.batch,
            positions: brood.of_parents(parents),
        });
        broods.filter(|jobs| !jobs.positions.is_empty()).collect()
    }

    /// Finds the parent of a child, and its suspension. `memos` has the memo of each parent.
    pub fn suspension_of(&self, memos: &PackedArray, child: JobId) -> Option<(u32, Suspension)> {
        let brood = self.broods.iter().find(|brood| brood.batch == child.batch)?;
        let parent = brood.parent_of(child.position)?;
        let only = Positions::from(parent..parent + 1);
        let place = self
            .parents
            .indexes_of(&self.parents.intersection(&only))
            .first()?;
        let suspension = Suspension {
            memo: memos.get(place)?.to_owned(),
            flow: self.flow,
            children: self.children_of(&only),
        };
        Some((parent, suspension))
    }

    /// Finds the children of each of these parents.
    pub fn children_of_each(&self, parents: &Positions) -> impl Iterator<Item = Children> + '_ {
        let parents: Vec<u32> = self.parents.intersection(parents).iter().collect();
        parents.into_iter().map(|parent| {
            let jobs = self.children_of(&Positions::from(parent..parent + 1));
            let is_together = |batch| {
                self.broods
                    .iter()
                    .any(|brood| brood.batch == batch && brood.together)
            };
            let batches = jobs.iter().map(|jobs| jobs.batch);
            Children {
                parent,
                together: batches.filter(|batch| is_together(*batch)).collect(),
                jobs,
                is_flow: self.flow.is_some(),
            }
        })
    }
}

/// Assigns each position to the latest family that has it. `families` are in order, latest first.
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
    debug_assert_eq!(
        found.iter().map(|(_, own)| own.len()).sum::<u32>() + left.len(),
        wanted.len(),
        "each position belongs to at most one family"
    );
    found
}

/// Makes the error of a parent that is dead because a child failed.
pub fn child_failed(child: JobId, state: JobState) -> JobError {
    JobError::new(
        "children",
        format!("job {child}, a child of it, ended as {state}"),
    )
    .permanent()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_and_parents_find_each_other() {
        let parents: Positions = "3,5-7".parse().unwrap();
        let family = Family {
            on_failure: OnChildFailure::Fail,
            flow: None,
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
        let together = Brood::of_shares(BatchId(11), "3,5-7".parse().unwrap(), &[2, 0, 1, 3]).together(true);
        let news = |brood: &Brood, ended: &str, open: &str| {
            let news = brood.parents_with_news(&ended.parse().unwrap(), &open.parse().unwrap());
            news.to_string()
        };
        assert_eq!(news(&together, "0,2,4", "1,3"), "6");
        assert_eq!(news(&family.broods[0], "0,2,4", "1,3"), "3,6-7");
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
}
