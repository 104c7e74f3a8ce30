//! Reports: the outcomes that a worker commits.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::JobError;
use crate::id::{BatchId, LeaseId};
use crate::packed::PackedArray;
use crate::positions::Positions;
use crate::siblings::Siblings;
use crate::spawn::Suspended;

/// The completed jobs of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completed {
    /// The positions of the jobs.
    pub positions: Positions,
    /// The value of each job, in the order of the positions.
    pub values: PackedArray,
    /// The duration of each job in microseconds, in the same order.
    pub durations_us: Vec<u32>,
}

/// One failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedJob {
    /// The position of the job.
    pub position: u32,
    /// The error.
    pub error: JobError,
    /// The duration of the attempt, in microseconds.
    pub duration_us: u32,
}

/// A failed attempt after which the job was retried at once, in the same slot of its worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierFailure {
    /// The position of the job.
    pub position: u32,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The error.
    pub error: JobError,
    /// The duration of the attempt, in microseconds.
    pub duration_us: u32,
    /// The log of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// The log of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLog {
    /// The position of the job.
    pub position: u32,
    /// The text, cut at [`LOG_BYTES_MAX`](crate::limits::LOG_BYTES_MAX).
    pub text: String,
}

/// Data that a completed job writes in the transaction of its report, into its program's own tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportWrite {
    /// The position of the job.
    pub position: u32,
    /// A statement with one parameter: a JSON array with the data of all jobs of a report.
    pub sql: Arc<str>,
    /// The job's data, as JSON.
    pub item: String,
}

/// The outcomes of some positions of one leased slice: the unit of commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The lease that holds the jobs.
    pub lease: LeaseId,
    /// Their batch.
    pub batch: BatchId,
    /// The attempt for which they were claimed.
    pub attempt: u32,
    /// The number of immediate retries of these jobs. The report describes attempt `attempt + repeats`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeats: u32,
    /// The earlier failed attempts, equally many for each job, in ascending order of position and attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<EarlierFailure>,
    /// The jobs that completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Completed>,
    /// The jobs that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedJob>,
    /// The jobs that did not run, and return to the store without a charged attempt.
    #[serde(default, skip_serializing_if = "Positions::is_empty")]
    pub released: Positions,
    /// The jobs that wait for children. The children are stored with the report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspended: Vec<Suspended>,
    /// The siblings that completed jobs spawned. The store adds them with the report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub siblings: Vec<Siblings>,
    /// The logs of jobs, in ascending order of position.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<JobLog>,
    /// SQL statements of completed jobs, for the transaction of the report. They do not travel, so the store must be in
    /// the same process.
    #[serde(skip)]
    pub writes: Vec<ReportWrite>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Report {
    /// Makes an empty report.
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

    /// The attempt that the outcomes describe.
    pub fn last_attempt(&self) -> u32 {
        self.attempt.saturating_add(self.repeats)
    }

    /// All positions in the report.
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

    /// Approximate number of bytes, for the limits of queues.
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
    /// Approximate number of bytes.
    pub fn weight_bytes(&self) -> usize {
        50 + self.item.len()
    }
}

impl EarlierFailure {
    /// Approximate number of bytes.
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
    /// The refused positions, which the lease no longer holds, because they were rescued, cancelled or reported before.
    #[serde(default, skip_serializing_if = "Positions::is_empty")]
    pub refused: Positions,
    /// Failed jobs that are now dead.
    #[serde(default, skip_serializing_if = "Positions::is_empty")]
    pub dead: Positions,
    /// The accepted positions that were reported as completed, but failed because their statements failed or their
    /// siblings are invalid.
    #[serde(default, skip_serializing_if = "Positions::is_empty")]
    pub failed: Positions,
}
