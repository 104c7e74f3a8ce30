//! Workers, as the store knows them.

use std::sync::Arc;

use gristmill_model::limits::RESCUES_MAX;
use gristmill_model::{BatchId, Followed, JobError, Lease, LeaseId, Positions, Receipt, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};

/// The data with which a worker registers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewWorker {
    /// Its name, for people.
    pub name: String,
    /// The machine that it runs on.
    pub host: String,
    /// Its process there.
    pub process_id: u32,
    /// A text that distinguishes its process from a later one with the same id (on Linux: the boot id and the start
    /// time of the process in ticks).
    pub process_started: String,
    /// The queues from which it claims; empty if it does not say.
    #[serde(default)]
    pub queues: Vec<Arc<str>>,
    /// The kinds that it runs; empty if it runs all kinds, or does not say.
    #[serde(default)]
    pub kinds: Vec<Arc<str>>,
}

impl NewWorker {
    /// Whether it may run jobs of this queue and kind, judged by its registration.
    pub fn may_serve(&self, queue: &str, kind: &str) -> bool {
        let named =
            |names: &[Arc<str>], name: &str| names.is_empty() || names.iter().any(|known| **known == *name);
        named(&self.queues, queue) && named(&self.kinds, kind)
    }
}

/// A registered worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRow {
    /// Its id.
    pub id: WorkerId,
    /// The data of its registration.
    #[serde(flatten)]
    pub worker: NewWorker,
    /// The time of its registration.
    pub started_at: Timestamp,
    /// The time of its last heartbeat.
    pub heartbeat_at: Timestamp,
    /// Number of jobs that it holds.
    pub jobs_held: u64,
    /// The time at which it was asked to drain; `None` if it was not.
    #[serde(default)]
    pub drain_at: Option<Timestamp>,
}

/// The jobs that a worker wants to claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    /// Maximum number of jobs; at most [`LEASE_JOBS_MAX`](gristmill_model::limits::LEASE_JOBS_MAX).
    pub jobs_max: u32,
    /// The queues, in no order of preference.
    pub queues: Vec<Arc<str>>,
    /// The kinds; all kinds if empty.
    pub kinds: Vec<Arc<str>>,
    /// The lowest priority; all priorities if `None`. (The submitted priority counts, without aging.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_min: Option<i16>,
}

impl Want {
    /// The highest rank (the negated priority) that is wanted.
    pub fn rank_max(&self) -> i32 {
        self.priority_min
            .map_or(i32::MAX, |priority| -i32::from(priority))
    }
}

/// Jobs that a worker no longer holds, as a heartbeat or an exchange reports them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// The lease that held them.
    pub lease: LeaseId,
    /// Their batch.
    pub batch: BatchId,
    /// Which were cancelled.
    pub positions: Positions,
}

/// The answer to an exchange.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exchanged {
    /// One a report, in the same order.
    pub receipts: Vec<Receipt>,
    /// What was claimed, if anything was wanted and there.
    pub lease: Option<Lease>,
    /// Where fewer jobs were there than wanted: when the next of these queues and kinds can be claimed, if any
    /// is known.
    pub next_run_at: Option<Timestamp>,
    /// Where fewer jobs were there than wanted: whether some wait until others are over, for a limit's sake.
    pub limited: bool,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Whether the worker is still registered. If not, its leases are lost.
    pub known: bool,
    /// Jobs that were cancelled while it held them, each told once.
    pub revoked: Vec<Revoked>,
    /// Jobs whose output somebody follows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub followed: Vec<Followed>,
    /// Whether it was asked to drain: to claim nothing more, to end or release the jobs that it holds, and to leave.
    #[serde(default)]
    pub drain: bool,
    /// What keeps due jobs from it, in words, where it asked and some are due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
}

/// What a rescue did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rescued {
    /// The workers that were given up.
    pub workers: Vec<WorkerId>,
    /// Jobs that are claimable again.
    pub jobs: u64,
    /// Jobs that are dead, because too many workers died with them.
    pub dead: u64,
}

/// Why a job is dead after its workers died too often.
pub fn too_many_rescues(rescues: u32) -> JobError {
    JobError::new(
        "rescues",
        format!(
            "{} workers died while they held this job, the limit is {RESCUES_MAX}: it may be the one that kills them",
            rescues + 1
        ),
    )
}
