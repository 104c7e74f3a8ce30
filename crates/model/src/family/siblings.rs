//! Siblings: further children of its own parent that a running job spawns.

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::packed::PackedArray;
use crate::positions::Positions;
use crate::spawn::{CHILD_BATCHES_READ_MAX, ChildBatch, InvalidSpawn, OnChildFailure, Suspended};

/// Jobs that spawned further children of their own parents, which wait for these children too. Positions ascend, and
/// the shares of children are in their order. In a report, the positions are those of completed jobs. In a store, they
/// are those of the parents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Siblings {
    /// The positions of the jobs or parents.
    pub positions: Positions,
    /// The siblings, with one share for each position.
    #[serde(deserialize_with = "bounded::list::<_, _, CHILD_BATCHES_READ_MAX>")]
    pub children: Vec<ChildBatch>,
}

impl Siblings {
    /// Makes the siblings of one job, each batch with one share.
    pub fn one(position: u32, children: Vec<ChildBatch>) -> Self {
        Siblings {
            positions: Positions::from(position..position + 1),
            children,
        }
    }

    /// Checks everything that can be checked without a store.
    ///
    /// # Errors
    ///
    /// The first problem.
    pub fn check(&self) -> Result<(), InvalidSpawn> {
        self.clone().into_suspended().check()
    }

    /// Selects the siblings at these positions; `None` if there are none.
    pub fn select(&self, positions: &Positions) -> Option<Siblings> {
        let selected = self.clone().into_suspended().select(positions)?;
        Some(Siblings::from_suspended(selected)).filter(|siblings| !siblings.children.is_empty())
    }

    /// Converts the positions of jobs to those of their parents, which ascend with them. The children of all jobs of
    /// one parent become its children. Jobs without a parent are left out.
    pub fn by_parent(&self, parent_of: impl Fn(u32) -> Option<u32>) -> Option<Siblings> {
        let orphans = self.positions.iter().filter(|job| parent_of(*job).is_none());
        let kept = self.select(&self.positions.difference(&orphans.collect()))?;
        let parents: Vec<u32> = kept.positions.iter().filter_map(&parent_of).collect();
        debug_assert!(parents.is_sorted(), "parents ascend with their jobs");
        debug_assert_eq!(
            parents.len(),
            kept.positions.len() as usize,
            "each kept job has a parent"
        );
        let children = kept.children.into_iter().map(|children| {
            let mut shares: Vec<u32> = Vec::new();
            let mut last = None;
            for (parent, share) in parents.iter().zip(&children.shares) {
                match shares.last_mut().filter(|_| last == Some(parent)) {
                    Some(sum) => *sum += share,
                    None => shares.push(*share),
                }
                last = Some(parent);
            }
            ChildBatch { shares, ..children }
        });
        Some(Siblings {
            children: children.collect(),
            positions: parents.into_iter().collect(),
        })
    }

    /// Approximate number of bytes.
    pub fn weight_bytes(&self) -> usize {
        let children = self.children.iter();
        children.map(ChildBatch::weight_bytes).sum()
    }

    /// Packs the siblings of jobs in one batch. Similar siblings share batches.
    pub fn pack(all: Vec<Siblings>) -> Vec<Siblings> {
        let all = all.into_iter().map(Siblings::into_suspended).collect();
        let packed = Suspended::pack(all).into_iter();
        packed.map(Siblings::from_suspended).collect()
    }

    /// Converts the siblings to suspended jobs without memos.
    fn into_suspended(self) -> Suspended {
        let nulls = vec!["null"; self.positions.len() as usize].join("\n,");
        Suspended {
            positions: self.positions,
            memos: PackedArray::from_stored(format!("[{nulls}]")),
            on_failure: OnChildFailure::default(),
            flow: None,
            seen: Vec::new(),
            given_up: Vec::new(),
            cleanup_ms: None,
            children: self.children,
        }
    }

    fn from_suspended(suspended: Suspended) -> Siblings {
        Siblings {
            positions: suspended.positions,
            children: suspended.children,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawn::Spawn;

    fn one(position: u32, payloads: &[u32]) -> Siblings {
        let spawn = Spawn::new().children("page", payloads).unwrap();
        Siblings::one(position, spawn.children)
    }

    #[test]
    fn siblings_of_many_jobs_share_batches_by_parent() {
        let packed = Siblings::pack(vec![one(7, &[70]), one(2, &[20, 21]), one(3, &[30])]);
        assert_eq!(packed.len(), 1);
        packed[0].check().unwrap();
        assert_eq!(packed[0].children[0].shares, [2, 1, 1]);
        let by_parent = packed[0].by_parent(|job| Some(job / 2)).unwrap();
        by_parent.check().unwrap();
        assert_eq!(by_parent.positions.to_string(), "1,3");
        assert_eq!(by_parent.children[0].shares, [3, 1]);
        let payloads = by_parent.children[0].payloads.as_str();
        assert_eq!(payloads, "[20\n,21\n,30\n,70]");
        let some = packed[0].by_parent(|job| (job != 2).then_some(job)).unwrap();
        assert_eq!(
            (some.positions.to_string().as_str(), &*some.children[0].shares),
            ("3,7", &[1, 1][..])
        );
        assert_eq!(packed[0].by_parent(|_| None), None);
    }

    #[test]
    fn siblings_are_selected_and_checked() {
        let packed = Siblings::pack(vec![one(1, &[10]), one(2, &[20, 21])]).remove(0);
        let second = packed.select(&Positions::from(2..9)).unwrap();
        assert_eq!(second.children[0].payloads.as_str(), "[20\n,21]");
        assert_eq!(packed.select(&Positions::from(3..9)), None);
        let mut wrong = packed.clone();
        wrong.children[0].shares = vec![1, 1];
        assert!(matches!(wrong.check(), Err(InvalidSpawn::Shares { .. })));
    }
}
