//! Ended jobs, packed as they are stored.

use std::sync::Arc;

use gristmill_model::{BatchId, JobError, JobState, PackedArray, Positions, Timestamp};
use serde::{Deserialize, Serialize};

/// Positions of one batch that ended together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredReport {
    /// The final state of the jobs.
    pub state: JobState,
    /// The positions of the jobs.
    pub positions: Positions,
    /// The value of each completed job.
    pub values: Option<PackedArray>,
    /// The duration of each completed job in microseconds, in the order of the positions. (Failures have the durations
    /// of dead jobs.)
    pub durations_us: Vec<u32>,
    /// The attempt on which they ended; 0 if there was none.
    pub attempt: u32,
    /// The name of the worker that ran them.
    pub worker: Option<Arc<str>>,
    /// The time of the end.
    pub finished_at: Timestamp,
}

/// One failed attempt of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFailure {
    /// The job's position in its batch.
    pub position: u32,
    /// The attempt, from 1; 0 for a job that was rejected before any.
    pub attempt: u32,
    /// The error.
    pub error: JobError,
    /// The duration of the attempt, in microseconds.
    pub duration_us: u32,
    /// The log of the attempt.
    pub log: Option<String>,
    /// The name of the worker that ran it.
    pub worker: Option<Arc<str>>,
    /// The time of the failure.
    pub failed_at: Timestamp,
}

/// The ended jobs of one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchOutcomes {
    /// The batch.
    pub batch: BatchId,
    /// Number of jobs in the batch.
    pub count: u32,
    /// The reports, in ascending order of first position. Each ended position is in exactly one.
    pub reports: Vec<StoredReport>,
    /// The last failure of each dead job, in ascending order of position.
    pub errors: Vec<StoredFailure>,
}

impl BatchOutcomes {
    /// Number of jobs that have ended.
    pub fn ended(&self) -> u32 {
        self.reports.iter().map(|report| report.positions.len()).sum()
    }
}
