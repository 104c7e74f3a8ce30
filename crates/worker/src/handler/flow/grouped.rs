//! Steps that begin together: those that are alike become one batch of children.

use std::collections::BTreeMap;

use gristmill_model::limits::{BATCH_BYTES_TARGET, BATCH_JOBS_MAX};
use gristmill_model::{ChildBatch, PackedArray};

use crate::handler::flow::memo::StepEntry;

/// Maximum number of groups of its destination that a step tries, so that many different steps do not take quadratic time.
const OPEN_GROUPS_MAX: usize = 32;

/// The key by which a step finds its groups: the kind, the queue and the priority of their children.
type Destination = (String, Option<String>, i16);

/// Steps of single jobs that are alike; or one step of several jobs, or one wait.
struct Group {
    children: Vec<ChildBatch>,
    steps: Vec<StepEntry>,
    bytes: usize,
}

impl Group {
    fn admits(&self, step: &StepEntry, children: &ChildBatch) -> bool {
        let first = &self.children[0];
        let are_single = self.steps[0].count.is_none() && step.count.is_none();
        are_single
            && children.options.signal.is_none()
            && first.is_like(children)
            && self.steps.len() < BATCH_JOBS_MAX as usize
            && self.bytes + children.payloads.as_str().len() <= BATCH_BYTES_TARGET
    }

    fn finish(mut self) -> ChildBatch {
        if self.children.len() == 1 {
            return self.children.remove(0);
        }
        let payloads = PackedArray::concat(self.children.iter().map(|children| &children.payloads));
        assert_eq!(
            payloads.count() as usize,
            self.steps.len(),
            "each step of a group has one job"
        );
        ChildBatch {
            shares: vec![payloads.count()],
            payloads,
            ..self.children.remove(0)
        }
    }
}

/// Groups the steps that an instance begins. Returns them in the order of their children. Steps of one identity, by which a replay
/// tells them apart, keep their order among themselves.
pub(super) fn grouped(begun: Vec<(StepEntry, ChildBatch)>) -> (Vec<StepEntry>, Vec<ChildBatch>) {
    let count = begun.len();
    let mut groups: Vec<Group> = Vec::new();
    let mut places: BTreeMap<Destination, Vec<usize>> = BTreeMap::new();
    let mut latest: BTreeMap<(String, Option<String>), usize> = BTreeMap::new();
    for (step, children) in begun {
        let identity = (step.name.clone(), step.key.clone());
        let first = latest.get(&identity).copied().unwrap_or(0);
        let priority = children.options.priority;
        let destination = (children.kind.clone(), children.queue.clone(), priority);
        let known = places.entry(destination).or_default();
        let open = known.iter().rev().take(OPEN_GROUPS_MAX).copied();
        let mut open = open.take_while(|place| *place >= first);
        let place = open.find(|place| groups[*place].admits(&step, &children));
        let place = place.unwrap_or_else(|| {
            known.push(groups.len());
            groups.push(Group {
                children: Vec::new(),
                steps: Vec::new(),
                bytes: 0,
            });
            groups.len() - 1
        });
        latest.insert(identity, place);
        let group = &mut groups[place];
        group.bytes += children.payloads.as_str().len();
        group.children.push(children);
        group.steps.push(step);
    }
    let mut steps = Vec::with_capacity(count);
    let mut batches = Vec::with_capacity(groups.len());
    for group in groups {
        steps.extend_from_slice(&group.steps);
        batches.push(group.finish());
    }
    assert_eq!(steps.len(), count, "each step is in one group");
    (steps, batches)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step of the kind with this key and priority, and its number.
    fn step(kind: &str, key: &str, priority: i16, number: u32) -> (StepEntry, ChildBatch) {
        let mut children = ChildBatch::of(kind, [number]).unwrap().remove(0);
        children.options.priority = priority;
        let entry = StepEntry {
            name: kind.to_owned(),
            hash: number,
            key: Some(key.to_owned()).filter(|key| !key.is_empty()),
            count: None,
        };
        (entry, children)
    }

    /// The hashes of the steps, and the payloads of each batch.
    fn told(begun: Vec<(StepEntry, ChildBatch)>) -> (Vec<u32>, Vec<String>) {
        let (steps, batches) = grouped(begun);
        let texts = batches.iter().map(|batch| {
            assert_eq!(batch.shares, [batch.payloads.count()]);
            format!("{}{}", batch.kind, batch.payloads.as_str().replace('\n', ""))
        });
        (steps.iter().map(|step| step.hash).collect(), texts.collect())
    }

    #[test]
    fn steps_that_are_alike_share_a_batch() {
        let begun = vec![
            step("a", "", 0, 1),
            step("b", "", 0, 2),
            step("a", "", 0, 3),
            step("a", "key", 0, 4),
        ];
        assert_eq!(
            told(begun),
            (vec![1, 3, 4, 2], vec!["a[1,3,4]".to_owned(), "b[2]".to_owned()])
        );
    }

    #[test]
    fn steps_that_are_alike_share_a_batch_among_many_others() {
        let kinds = OPEN_GROUPS_MAX as u32 + 8;
        let begun = (0..2 * kinds).map(|number| step(&format!("kind {}", number % kinds), "", 0, number));
        let (hashes, batches) = told(begun.collect());
        assert_eq!(hashes[..4], [0, kinds, 1, kinds + 1]);
        assert_eq!(batches.len(), kinds as usize);
    }

    #[test]
    fn steps_of_one_identity_keep_their_order() {
        let begun = vec![
            step("a", "", 0, 1),
            step("a", "", 9, 2),
            step("a", "", 0, 3),
            step("a", "key", 0, 4),
            step("a", "", 9, 5),
        ];
        let batches = ["a[1]", "a[2]", "a[3,4]", "a[5]"].map(str::to_owned);
        assert_eq!(told(begun), (vec![1, 2, 3, 4, 5], batches.to_vec()));
    }

    #[test]
    fn several_jobs_and_full_batches_stay_apart() {
        let several = |number| {
            let (entry, children) = step("a", "", 0, number);
            (
                StepEntry {
                    count: Some(1),
                    ..entry
                },
                children,
            )
        };
        let (hashes, batches) = told(vec![
            several(1),
            step("a", "", 0, 2),
            several(3),
            step("a", "x", 0, 4),
        ]);
        assert_eq!(hashes, [1, 2, 4, 3]);
        assert_eq!(batches, ["a[1]", "a[2,4]", "a[3]"]);
        let many = (0..BATCH_JOBS_MAX + 2).map(|number| step("a", "", 0, number));
        let (hashes, batches) = told(many.collect());
        assert!(hashes.is_sorted());
        assert_eq!((batches.len(), batches[1].as_str()), (2, "a[10000,10001]"));
    }
}
