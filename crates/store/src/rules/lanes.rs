//! Lanes: combinations of queue, kind and group, by number.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use gristmill_model::NewBatch;

use crate::{StoreError, Want};

/// Maximum number of lanes of one store. Each process that claims or submits keeps their names, about 300 bytes each,
/// so that this bounds its memory.
pub const LANES_MAX: usize = 1_000_000;

/// Maximum lanes with waiting jobs that one step of a claim reads. A claim that finds too few jobs reads as many
/// further lanes, and the next claim begins with those. So its cost does not grow with the number of waiting lanes. Up
/// to this number, the order of claims holds among all lanes, and beyond it among the lanes of a step.
pub const LOOK_LANES_MAX: usize = 10_000;

/// A queue, a kind and a group; the group is empty for jobs without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// The id of the lane.
    pub id: i64,
    /// The queue.
    pub queue: Arc<str>,
    /// The kind.
    pub kind: Arc<str>,
    /// The group.
    pub group: Arc<str>,
}

impl Lane {
    /// The name of the lane.
    pub fn name(&self) -> LaneName<'_> {
        LaneName {
            queue: &self.queue,
            kind: &self.kind,
            group: &self.group,
        }
    }
}

/// The name of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneName<'a> {
    /// The queue.
    pub queue: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The group; empty if there is none.
    pub group: &'a str,
}

impl<'a> LaneName<'a> {
    /// The lane of a batch.
    pub fn of(batch: &'a NewBatch) -> Self {
        LaneName {
            queue: &batch.queue,
            kind: &batch.kind,
            group: batch.options.group.as_deref().unwrap_or_default(),
        }
    }
}

impl fmt::Display for LaneName<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "kind `{}` on queue `{}`", self.kind, self.queue)?;
        match self.group {
            "" => Ok(()),
            group => write!(formatter, " of group `{group}`"),
        }
    }
}

/// Converts a lane's group to the form that callers see.
pub fn group(stored: Arc<str>) -> Option<Arc<str>> {
    (!stored.is_empty()).then_some(stored)
}

/// The lanes of one queue and kind, by group.
type ByGroup = HashMap<Arc<str>, i64>;

/// The number of known lanes from which a handle checks whether they still exist. With fewer, their memory does not
/// matter.
const LOOKED_AT_FROM: usize = 10_000;

/// The known lanes. Their ids ascend and are never reused. Another process may have added lanes, and a prune may have
/// deleted lanes without jobs: a submit notices it, and then calls [`keep`](Lanes::keep).
#[derive(Debug, Default)]
pub struct Lanes {
    by_id: HashMap<i64, Lane>,
    by_queue: HashMap<Arc<str>, HashMap<Arc<str>, ByGroup>>,
    first_of_kind: HashMap<Arc<str>, i64>,
    first_of_queue: HashMap<Arc<str>, i64>,
    /// Those that are about to be deleted: they have no jobs, and get none before they are made anew.
    retired: HashSet<i64>,
    /// Whether the store has refused a further one.
    is_full: bool,
    /// From how many on it is looked whether they still exist.
    looked_at_from: usize,
    id_max: i64,
}

impl Lanes {
    /// The id of the lane that was added last; 0 before the first.
    pub fn id_max(&self) -> i64 {
        self.id_max
    }

    /// Adds a lane, or adds a retired lane again. The lanes before the last one are known.
    pub fn add(&mut self, lane: Lane) {
        self.id_max = self.id_max.max(lane.id);
        self.retired.remove(&lane.id);
        let first = |of: &mut HashMap<Arc<str>, i64>, name: &Arc<str>| {
            let first = of.entry(name.clone()).or_insert(lane.id);
            *first = lane.id.min(*first);
        };
        first(&mut self.first_of_kind, &lane.kind);
        first(&mut self.first_of_queue, &lane.queue);
        self.by_queue
            .entry(lane.queue.clone())
            .or_default()
            .entry(lane.kind.clone())
            .or_default()
            .insert(lane.group.clone(), lane.id);
        assert!(lane.id > 0, "ids of lanes are positive");
        self.by_id.insert(lane.id, lane);
    }

    /// The lane with this id.
    pub fn get(&self, id: i64) -> Option<&Lane> {
        self.by_id.get(&id)
    }

    /// The id of the lane with this name, unless the lane is about to be deleted.
    pub fn find(&self, name: LaneName<'_>) -> Option<i64> {
        let kinds = self.by_queue.get(name.queue)?;
        let id = kinds.get(name.kind)?.get(name.group).copied()?;
        (!self.retired.contains(&id)).then_some(id)
    }

    /// Forgets the lanes that do not exist any more: `known` has all that do, with whether they are about to be deleted, but for
    /// those that were added after the last of them.
    pub fn keep(&mut self, known: &[(i64, bool)]) {
        let last = known.iter().map(|(id, _)| *id).max().unwrap_or(0);
        let exists: HashSet<i64> = known.iter().map(|(id, _)| *id).collect();
        let before = std::mem::take(self);
        for lane in before.by_id.into_values() {
            if lane.id > last || exists.contains(&lane.id) {
                self.add(lane);
            }
        }
        self.retired = known
            .iter()
            .filter(|(_, retired)| *retired)
            .map(|(id, _)| *id)
            .collect();
        self.looked_at_from = self.by_id.len() * 2;
        self.id_max = before.id_max;
    }

    /// Whether there are so many that some may not exist any more: twice as many as when that was looked at last.
    pub fn may_be_stale(&self) -> bool {
        self.by_id.len() >= self.looked_at_from.max(LOOKED_AT_FROM)
    }

    /// The store has refused a further lane.
    pub fn refused(&mut self) {
        self.is_full = true;
    }

    /// The first lane with a kind. A process that knows a lane knows all lanes that were added before it.
    pub(crate) fn first_of_kind(&self, kind: &str) -> Option<i64> {
        self.first_of_kind.get(kind).copied()
    }

    /// The first lane with a queue.
    pub(crate) fn first_of_queue(&self, queue: &str) -> Option<i64> {
        self.first_of_queue.get(queue).copied()
    }

    /// Refuses a lane beyond the limit.
    pub fn check_room(&self, name: LaneName<'_>) -> Result<(), StoreError> {
        if self.by_id.len() < LANES_MAX && !self.is_full {
            return Ok(());
        }
        Err(too_many(name))
    }

    /// The lanes of [`wanted`](Lanes::wanted), if they are at most `lanes_max`.
    pub fn wanted_up_to(&self, want: &Want, lanes_max: usize) -> Option<Vec<Lane>> {
        let queues = || want.queues.iter().filter_map(|queue| self.by_queue.get(queue));
        let count: usize = if want.kinds.is_empty() {
            queues().flat_map(HashMap::values).map(HashMap::len).sum()
        } else {
            let kinds = queues().flat_map(|kinds| want.kinds.iter().filter_map(|kind| kinds.get(kind)));
            kinds.map(HashMap::len).sum()
        };
        (count <= lanes_max).then(|| self.wanted(want))
    }

    /// The queues of the known lanes.
    pub fn queues(&self) -> Vec<Arc<str>> {
        self.by_queue.keys().cloned().collect()
    }

    /// The known lanes from which a worker wants to claim, of all groups, by id.
    pub fn wanted(&self, want: &Want) -> Vec<Lane> {
        let mut ids = Vec::new();
        for kinds in want.queues.iter().filter_map(|queue| self.by_queue.get(queue)) {
            if want.kinds.is_empty() {
                ids.extend(kinds.values().flat_map(HashMap::values));
            } else {
                let kinds = want.kinds.iter().filter_map(|kind| kinds.get(kind));
                ids.extend(kinds.flat_map(HashMap::values));
            }
        }
        ids.sort_unstable();
        ids.dedup();
        ids.iter().filter_map(|id| self.by_id.get(id).cloned()).collect()
    }
}

impl Want {
    /// Whether jobs of a lane are wanted, apart from their priority.
    pub fn admits(&self, lane: &Lane) -> bool {
        self.jobs_max > 0
            && self.queues.contains(&lane.queue)
            && (self.kinds.is_empty() || self.kinds.contains(&lane.kind))
    }
}

/// Makes the error of a submit that would exceed the limit of lanes.
pub fn too_many(name: LaneName<'_>) -> StoreError {
    StoreError::InvalidInput(format!(
        "the store has reached its limit of {LANES_MAX} combinations of queue, kind and group with {name}: put \
         the varying part into the payload"
    ))
}
