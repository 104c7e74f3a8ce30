//! Ended jobs, packed as they are stored.

use std::sync::Arc;

use gristmill_model::{BatchId, JobError, JobState, PackedArray, Positions, Timestamp};
use serde::{Deserialize, Serialize};

/// Positions of one batch that ended together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredReport {
    /// How they ended; a final state.
    pub state: JobState,
    /// Which.
    pub positions: Positions,
    /// For completed jobs: one value a position.
    pub values: Option<PackedArray>,
    /// For completed jobs: how long each took, in microseconds, in the order of the positions. (Of dead jobs,
    /// their failures tell.)
    pub durations_us: Vec<u32>,
    /// The attempt they ended on; 0 where none was made.
    pub attempt: u32,
    /// The name of the worker that ran them.
    pub worker: Option<Arc<str>>,
    /// When.
    pub finished_at: Timestamp,
}

/// One failed attempt of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFailure {
    /// The job's position in its batch.
    pub position: u32,
    /// The attempt, from 1; 0 for a job that was rejected before any.
    pub attempt: u32,
    /// Why it failed.
    pub error: JobError,
    /// How long it took. Microseconds.
    pub duration_us: u32,
    /// What it printed.
    pub log: Option<String>,
    /// The name of the worker that ran it.
    pub worker: Option<Arc<str>>,
    /// When.
    pub failed_at: Timestamp,
}

/// The ended jobs of one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchOutcomes {
    /// The batch.
    pub batch: BatchId,
    /// How many jobs it has.
    pub count: u32,
    /// By first position ascending. Each ended position stands in exactly one.
    pub reports: Vec<StoredReport>,
    /// For the dead jobs, the last failure of each, by position ascending.
    pub errors: Vec<StoredFailure>,
}

impl BatchOutcomes {
    /// How many jobs have ended.
    pub fn ended(&self) -> u32 {
        self.reports.iter().map(|report| report.positions.len()).sum()
    }
}
