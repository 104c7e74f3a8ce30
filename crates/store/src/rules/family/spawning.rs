//! Children and siblings of a report: the batches that are stored for them, or the reason why they cannot be stored.

use std::sync::Arc;

use gristmill_model::limits::{FAMILY_BATCHES_MAX, GENERATIONS_MAX};
use gristmill_model::{BatchId, ChildBatch, JobError, JobId, NewBatch, Positions, Siblings, Tag, Timestamp};

use crate::StoreError;
use crate::rules::family::Brood;

/// Makes the error of a job whose children cannot be stored.
pub fn cannot_spawn(reason: &impl std::fmt::Display) -> JobError {
    JobError::new("children", format!("the children cannot be stored: {reason}")).permanent()
}

/// The data that children inherit from their parents' batch.
#[derive(Debug, Clone)]
pub struct Inheritance {
    /// The queue of the parents.
    pub queue: Arc<str>,
    /// The group of the parents.
    pub group: Option<Arc<str>>,
    /// The batch's tags.
    pub tags: Vec<Tag>,
    /// The number of generations above the parents: 0 for jobs that were submitted.
    pub generation: u32,
}

impl Inheritance {
    /// Makes the batches that are stored for children of these jobs. `place` is the moment that decides their place in line, where
    /// their options name none.
    pub fn batches(
        &self,
        now: Timestamp,
        place: Option<Timestamp>,
        parents: &Positions,
        children: &[ChildBatch],
    ) -> Result<Vec<NewBatch>, StoreError> {
        if self.generation >= GENERATIONS_MAX && !children.is_empty() {
            return Err(StoreError::InvalidInput(format!(
                "they would be generation {} of children, and the limit is {GENERATIONS_MAX}: let a job or flow submit others, \
                 instead of waiting for them",
                self.generation + 1
            )));
        }
        // Tags of parents name them by their indexes here.
        let inherited: Vec<Tag> = self
            .tags
            .iter()
            .map(|tag| Tag {
                positions: tag
                    .positions
                    .as_ref()
                    .map(|positions| parents.indexes_of(positions)),
                ..tag.clone()
            })
            .collect();
        let mut batches: Vec<NewBatch> = children
            .iter()
            .map(|children| children.to_batch(now, &self.queue, self.group.as_deref(), &inherited))
            .collect();
        for batch in batches.iter_mut().filter(|batch| batch.options.signal.is_none()) {
            batch.options.run_at = batch.options.run_at.or(place);
        }
        crate::rules::check::check_batches(&batches)?;
        Ok(batches)
    }
}

/// The parents of the children in a batch.
#[derive(Debug)]
pub struct Parentage {
    /// The batch of their parents.
    pub batch: BatchId,
    /// The number of the family.
    pub family: i64,
    /// Whether the parents are flows, which may run while children are open.
    pub is_flow: bool,
    /// The place in line of the children.
    pub run_at: Timestamp,
    /// Number of batches of children in the family.
    pub broods_count: usize,
    /// The children.
    pub brood: Brood,
}

impl Parentage {
    /// Converts the siblings that these jobs spawned to children of their parents.
    pub fn by_parent(&self, siblings: &Siblings) -> Option<Siblings> {
        siblings.by_parent(|child| self.brood.parent_of(child))
    }

    /// The place in line of siblings that steps of flows spawn: the place of these steps. `None` for siblings of other children.
    pub fn place_of_siblings(&self, now: Timestamp) -> Option<Timestamp> {
        self.is_flow.then(|| self.run_at.min(now))
    }
}

/// Checks the siblings that a job spawns against its parents. The error is the job's.
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
    fn generations_have_a_limit() {
        let of = |generation: u32| Inheritance {
            queue: "default".into(),
            group: None,
            tags: Vec::new(),
            generation,
        };
        let children = ChildBatch::of("child", [1]).unwrap();
        let spawn = |generation, children: &[ChildBatch]| {
            let batches = of(generation).batches(Timestamp(0), None, &Positions::all(1), children);
            batches
                .map(|batches| batches.len())
                .map_err(|error| error.to_string())
        };
        assert_eq!(spawn(GENERATIONS_MAX - 1, &children), Ok(1));
        let refused = spawn(GENERATIONS_MAX, &children).unwrap_err();
        assert!(refused.contains("generation 101 of children"), "{refused}");
        assert_eq!(
            spawn(GENERATIONS_MAX, &[]),
            Ok(0),
            "a flow may wait for its earlier steps"
        );
    }

    #[test]
    fn siblings_need_a_parent_with_room() {
        let children = ChildBatch::of("child", [1]).unwrap();
        let siblings = Siblings::one(3, children);
        let with_broods = |broods_count| Parentage {
            batch: BatchId(1),
            family: 1,
            is_flow: false,
            run_at: Timestamp(0),
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
