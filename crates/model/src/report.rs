//! Reports: the outcomes that a worker commits.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::JobError;
use crate::id::{BatchId, LeaseId};
use crate::packed::PackedArray;
use crate::positions::Positions;
use crate::siblings::Siblings;
use crate::spawn::Suspended;

/// Jobs that completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completed {
    /// Which.
    pub positions: Positions,
    /// One value a position, in the order of the positions.
    pub values: PackedArray,
    /// How long each took, in microseconds, in the same order.
    pub durations_us: Vec<u32>,
}

/// One failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedJob {
    /// Which job.
    pub position: u32,
    /// Why.
    pub error: JobError,
    /// How long it took. Microseconds.
    pub duration_us: u32,
}

/// A failed attempt after which the job ran again at once, in the same slot of its worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierFailure {
    /// Which job.
    pub position: u32,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// Why.
    pub error: JobError,
    /// How long it took. Microseconds.
    pub duration_us: u32,
    /// Its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// The log of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLog {
    /// Which job.
    pub position: u32,
    /// The text, cut at [`LOG_BYTES_MAX`](crate::limits::LOG_BYTES_MAX).
    pub text: String,
}

/// Something that a completed job writes in the transaction of its report, into tables of its own program's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportWrite {
    /// Which job.
    pub position: u32,
    /// A statement with one parameter: a JSON array with the data of all jobs of a report.
    pub sql: Arc<str>,
    /// This job's data, as JSON.
    pub item: String,
}

/// The outcomes of some positions of one leased slice: the unit of commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The lease that the jobs are held under.
    pub lease: LeaseId,
    /// Their batch.
    pub batch: BatchId,
    /// The attempt that they were claimed for.
    pub attempt: u32,
    /// The number of immediate retries of these jobs: the report is about attempt `attempt + repeats`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeats: u32,
    /// The attempts before that one, as many for each job, by position and attempt ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<EarlierFailure>,
    /// Those that completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Completed>,
    /// Those that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedJob>,
    /// Those that were not run and go back uncharged.
    #[serde(default, skip_serializing_if = "Positions::is_empty")]
    pub released: Positions,
    /// Those that wait for children, which are stored with the report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspended: Vec<Suspended>,
    /// Siblings that completed jobs spawned, which the store adds with the report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub siblings: Vec<Siblings>,
    /// Logs, by position ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<JobLog>,
    /// SQL statements of completed jobs, for the report's transaction. Only for a store in the same process: they do
    /// not travel.
    #[serde(skip)]
    pub writes: Vec<ReportWrite>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Report {
    /// A report of nothing yet.
    pub fn new(lease: LeaseId, batch: BatchId, attempt: u32) -> Self {
        Report {
            lease,
            batch,
            attempt,
            repeats: 0,
            earlier: Vec::new(),
            completed: None,
            failed: Vec::new(),
            released: Positions::new(),
            suspended: Vec::new(),
            siblings: Vec::new(),
            logs: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// The attempt that the outcomes are of.
    pub fn last_attempt(&self) -> u32 {
        self.attempt.saturating_add(self.repeats)
    }

    /// All positions that the report speaks of.
    pub fn positions(&self) -> Positions {
        let mut positions = self.released.clone();
        if let Some(completed) = &self.completed {
            positions = positions.union(&completed.positions);
        }
        for failed in &self.failed {
            positions.insert(failed.position);
        }
        for suspended in &self.suspended {
            positions = positions.union(&suspended.positions);
        }
        positions
    }

    /// How many bytes the report weighs, roughly: for the limits of queues.
    pub fn weight_bytes(&self) -> usize {
        let values = self.completed.as_ref().map_or(0, |completed| {
            completed.values.as_str().len() + completed.durations_us.len() * 4
        });
        let failed: usize = self
            .failed
            .iter()
            .map(|failed| failed.error.message.len() + failed.error.traceback.as_ref().map_or(0, String::len))
            .sum();
        let earlier: usize = self.earlier.iter().map(EarlierFailure::weight_bytes).sum();
        let logs: usize = self.logs.iter().map(|log| log.text.len()).sum();
        let writes: usize = self.writes.iter().map(ReportWrite::weight_bytes).sum();
        let suspended: usize = self.suspended.iter().map(Suspended::weight_bytes).sum();
        let siblings: usize = self.siblings.iter().map(Siblings::weight_bytes).sum();
        100 + values + failed + earlier + suspended + siblings + logs + writes
    }
}

impl ReportWrite {
    /// How many bytes it weighs, roughly.
    pub fn weight_bytes(&self) -> usize {
        50 + self.item.len()
    }
}

impl EarlierFailure {
    /// How many bytes it weighs, roughly.
    pub fn weight_bytes(&self) -> usize {
        let traceback = self.error.traceback.as_ref().map_or(0, String::len);
        100 + self.error.message.len() + traceback + self.log.as_ref().map_or(0, String::len)
    }
}

/// The answer to one report.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Receipt {
    /// The committed positions.
    pub accepted: Positions,
    /// What was refused, because the lease no longer holds it: it was rescued, cancelled, or
    /// reported before.
    #[serde(default, skip_serializing_if = "Positions::is_empty")]
    pub refused: Positions,
    /// Failed jobs that are now dead.
    #[serde(default, skip_serializing_if = "Positions::is_empty")]
    pub dead: Positions,
    /// Of what was reported as completed, and accepted: jobs whose own statements failed, or that spawned siblings that
    /// cannot be, and which have failed so.
    #[serde(default, skip_serializing_if = "Positions::is_empty")]
    pub failed: Positions,
}
