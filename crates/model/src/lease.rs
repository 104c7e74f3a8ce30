//! What a worker holds.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::id::{BatchId, LeaseId};
use crate::labels::JobLabels;
use crate::packed::PackedArray;
use crate::positions::Positions;
use crate::retry::RetryPolicy;
use crate::trace_parent::TraceParent;

/// Jobs of one batch that a worker holds, all on the same attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasedSlice {
    /// The lease that they are held under.
    pub lease: LeaseId,
    /// Their batch.
    pub batch: BatchId,
    /// Which handler runs them.
    pub kind: Arc<str>,
    /// The queue that they were submitted to.
    pub queue: Arc<str>,
    /// Whose jobs they are, where that is said.
    pub group: Option<Arc<str>>,
    /// Their positions in the batch.
    pub positions: Positions,
    /// One payload a position, in the order of the positions.
    pub payloads: PackedArray,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// How often a worker died while it held these jobs.
    pub rescues: u32,
    /// How long one attempt may take. Milliseconds.
    pub timeout_ms: Option<u64>,
    /// Higher was claimed first.
    pub priority: i16,
    /// When a failed job is tried again: at once, it may be in the same slot.
    pub retry: RetryPolicy,
    /// When they were submitted.
    pub submitted_at: Timestamp,
    /// Where they finalize, since all of their children have ended: what each remembered, in the order of the
    /// positions.
    pub memos: Option<PackedArray>,
    /// The moment by which they have to have completed, since no attempt is made after it.
    pub deadline: Option<Timestamp>,
    /// Their keys and tags, where some have any. There may be those of other jobs of the batch, too.
    pub labels: Option<Arc<JobLabels>>,
    /// The submitter's span, where one was given.
    pub traceparent: Option<TraceParent>,
}

impl LeasedSlice {
    /// How many jobs there are.
    pub fn len(&self) -> u32 {
        self.positions.len()
    }

    /// How many bytes its payloads, memos, keys, tags and group have, which count towards
    /// [`LEASE_BYTES_TARGET`](crate::limits::LEASE_BYTES_TARGET).
    pub fn weight_bytes(&self) -> usize {
        let memos = self.memos.as_ref().map_or(0, |memos| memos.as_str().len());
        let labels = self.labels.as_ref().map_or(0, |labels| labels.job_bytes());
        let group = self.group.as_ref().map_or(0, |group| group.len());
        self.payloads.as_str().len()
            + memos
            + labels * self.len() as usize
            + group
            + size_of_val(&self.deadline)
    }

    /// Whether no job is left.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The keys and tags of some of the jobs, where these have any.
    pub fn labels_of(&self, positions: &Positions) -> Option<JobLabels> {
        self.labels.as_ref()?.select(positions)
    }
}

/// One claim: the slices that it took.
#[derive(Debug, Clone, PartialEq, Eq)]
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
