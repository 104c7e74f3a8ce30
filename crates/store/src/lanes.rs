//! Pairs of queue and kind, by number.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{StoreError, Want};

/// Pairs of queue and kind that one store knows: bounds the memory of the writer, and the seeks of a
/// claim of all kinds.
pub(crate) const LANES_MAX: usize = 10_000;

/// A queue and a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lane {
    pub id: i64,
    pub queue: Arc<str>,
    pub kind: Arc<str>,
}

/// The lanes that are known. Lanes are never deleted and their ids ascend, so nothing here goes stale but by a
/// rollback; another process may have added some.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    by_id: HashMap<i64, Lane>,
    by_queue: HashMap<Arc<str>, HashMap<Arc<str>, i64>>,
    first_of_kind: HashMap<Arc<str>, i64>,
    first_of_queue: HashMap<Arc<str>, i64>,
    id_max: i64,
}

impl Lanes {
    /// The id of the lane that was added last; 0 before the first.
    pub fn id_max(&self) -> i64 {
        self.id_max
    }

    /// Adds a lane; ids ascend.
    pub fn add(&mut self, lane: Lane) {
        self.id_max = self.id_max.max(lane.id);
        self.first_of_kind.entry(lane.kind.clone()).or_insert(lane.id);
        self.first_of_queue.entry(lane.queue.clone()).or_insert(lane.id);
        self.by_queue
            .entry(lane.queue.clone())
            .or_default()
            .insert(lane.kind.clone(), lane.id);
        self.by_id.insert(lane.id, lane);
    }

    /// The lane of that id.
    pub fn get(&self, id: i64) -> Option<&Lane> {
        self.by_id.get(&id)
    }

    /// The lane of a queue and a kind.
    pub fn find(&self, queue: &str, kind: &str) -> Option<i64> {
        self.by_queue.get(queue)?.get(kind).copied()
    }

    /// The lane of a kind that was added first. Whoever knows a lane knows all that were added before it.
    pub fn first_of_kind(&self, kind: &str) -> Option<i64> {
        self.first_of_kind.get(kind).copied()
    }

    /// The lane of a queue that was added first.
    pub fn first_of_queue(&self, queue: &str) -> Option<i64> {
        self.first_of_queue.get(queue).copied()
    }

    /// Refuses one lane too many.
    pub fn check_room(&self, queue: &str, kind: &str) -> Result<(), StoreError> {
        if self.by_id.len() < LANES_MAX {
            return Ok(());
        }
        Err(too_many(queue, kind))
    }

    /// The lanes that a worker wants to claim from, of those that are known; by id.
    pub fn wanted(&self, want: &Want) -> Vec<Lane> {
        let mut ids = Vec::new();
        for queue in &want.queues {
            let Some(kinds) = self.by_queue.get(queue) else {
                continue;
            };
            if want.kinds.is_empty() {
                ids.extend(kinds.values().copied());
            } else {
                ids.extend(want.kinds.iter().filter_map(|kind| kinds.get(kind).copied()));
            }
        }
        ids.sort_unstable();
        ids.dedup();
        ids.iter().filter_map(|id| self.by_id.get(id).cloned()).collect()
    }
}

/// What a submit is told that would make one lane too many.
pub(crate) fn too_many(queue: &str, kind: &str) -> StoreError {
    StoreError::InvalidInput(format!(
        "the store has {LANES_MAX} pairs of queue and kind already, and `{queue}` with `{kind}` would be one \
         more: put what varies into the payload"
    ))
}
