//! Leases: the jobs that a worker holds.

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
    /// The lease that holds them.
    pub lease: LeaseId,
    /// Their batch.
    pub batch: BatchId,
    /// The name of the handler that runs them.
    pub kind: Arc<str>,
    /// The queue to which they were submitted.
    pub queue: Arc<str>,
    /// The group of the jobs, if they have one.
    pub group: Option<Arc<str>>,
    /// Their positions in the batch.
    pub positions: Positions,
    /// The payload of each job, in the order of the positions.
    pub payloads: PackedArray,
    /// The number of the current attempt, from 1.
    pub attempt: u32,
    /// The number of times that a worker died while it held these jobs.
    pub rescues: u32,
    /// The time limit of one attempt, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The priority. Jobs with a higher one were claimed first.
    pub priority: i16,
    /// The retry policy. An immediate retry may use the same slot.
    pub retry: RetryPolicy,
    /// The time of the submit.
    pub submitted_at: Timestamp,
    /// The memo of each job, in the order of the positions, if the jobs finalize because all their children have ended.
    pub memos: Option<PackedArray>,
    /// The time by which they have to complete. No attempt begins after it.
    pub deadline: Option<Timestamp>,
    /// Their keys and tags, if they have any. Labels of other jobs of the batch may be included.
    pub labels: Option<Arc<JobLabels>>,
    /// The submitter's span, if there is one.
    pub traceparent: Option<TraceParent>,
}

impl LeasedSlice {
    /// Number of jobs.
    pub fn len(&self) -> u32 {
        self.positions.len()
    }

    /// Number of bytes of the payloads, memos, keys, tags and group, which count towards
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

    /// Whether there are no jobs left.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The keys and tags of some of the jobs; `None` if these have none.
    pub fn labels_of(&self, positions: &Positions) -> Option<JobLabels> {
        self.labels.as_ref()?.select(positions)
    }
}

/// The slices that one claim took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The id, which fences reports: a report under a lost lease is refused.
    pub id: LeaseId,
    /// The slices, in the order in which they are to run.
    pub slices: Vec<LeasedSlice>,
}

impl Lease {
    /// Number of jobs of the lease.
    pub fn jobs(&self) -> u32 {
        self.slices.iter().map(LeasedSlice::len).sum()
    }
}
