//! What a worker holds.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::{BatchId, LeaseId};
use crate::packed::PackedArray;
use crate::positions::Positions;
use crate::retry::RetryPolicy;

/// Jobs of one batch that a worker holds, all on the same attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasedSlice {
    /// The lease that they are held under.
    pub lease: LeaseId,
    /// Their batch.
    pub batch: BatchId,
    /// Which handler runs them.
    pub kind: Arc<str>,
    /// Their positions in the batch.
    pub positions: Positions,
    /// One payload a position, in the order of the positions.
    pub payloads: PackedArray,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// How often a worker died while it held these jobs.
    pub rescues: u32,
    /// How long one attempt may take. Milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Higher was claimed first.
    #[serde(default)]
    pub priority: i16,
    /// When a failed job is tried again: at once, it may be in the same slot.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// When they were submitted.
    pub submitted_at: Timestamp,
    /// Where they finalize, since all of their children have ended: what each remembered, in the order of the
    /// positions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memos: Option<PackedArray>,
}

impl LeasedSlice {
    /// How many jobs there are.
    pub fn len(&self) -> u32 {
        self.positions.len()
    }

    /// Whether no job is left.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }
}

/// One claim: the slices that it took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Fences the reports: one under a lost lease is refused.
    pub id: LeaseId,
    /// What is held, in the order in which it is to be run.
    pub slices: Vec<LeasedSlice>,
}

impl Lease {
    /// How many jobs the lease holds.
    pub fn jobs(&self) -> u32 {
        self.slices.iter().map(LeasedSlice::len).sum()
    }
}
