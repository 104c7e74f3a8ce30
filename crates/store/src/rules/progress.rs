//! The progress of running jobs, packed: one row for each worker.
//!
//! About once a second, a worker's heartbeat writes the progress of all its jobs. It is shown for jobs that the worker
//! holds. For other jobs, the mean duration of their kind gives an estimate.

use std::collections::BTreeMap;

use gristmill_model::limits::PROGRESS_JOBS_MAX;
use gristmill_model::{BatchId, JobId, JobProgress, Progress, ShownProgress, Timestamp};

use crate::StoreError;
use crate::rules::piece::Piece;

/// Packs a worker's report as it is stored: a JSON array.
pub fn pack(jobs: Vec<JobProgress>) -> Result<String, StoreError> {
    if jobs.len() > PROGRESS_JOBS_MAX {
        return Err(StoreError::InvalidInput(format!(
            "a worker reports the progress of at most {PROGRESS_JOBS_MAX} jobs at once, not {}",
            jobs.len()
        )));
    }
    let cleaned: Vec<JobProgress> = jobs
        .into_iter()
        .map(|job| JobProgress {
            rate_per_s: job.rate_per_s.filter(|rate| rate.is_finite()),
            progress: Progress::cleaned(job.progress),
            ..job
        })
        .collect();
    serde_json::to_string(&cleaned).map_err(|error| StoreError::InvalidInput(error.to_string()))
}

/// The progress that workers reported of the jobs of some batches.
#[derive(Debug, Default)]
pub struct Told(BTreeMap<JobId, (Timestamp, JobProgress)>);

impl Told {
    /// Adds the report of one worker of time `at`, for jobs of these batches.
    pub fn add(&mut self, at: Timestamp, packed: &str, batches: &[BatchId]) -> serde_json::Result<()> {
        let jobs: Vec<JobProgress> = serde_json::from_str(packed)?;
        for told in jobs.into_iter().filter(|told| batches.contains(&told.job.batch)) {
            match self.0.get(&told.job) {
                // A worker that has lost the job reported it earlier.
                Some((known_at, _)) if *known_at >= at => {}
                _ => {
                    self.0.insert(told.job, (at, told));
                }
            }
        }
        Ok(())
    }

    /// The progress of a job at `now`; `None` for an attempt that has ended.
    pub fn of(&self, job: JobId, piece: &Piece, now: Timestamp) -> Option<ShownProgress> {
        let (at, told) = self.0.get(&job)?;
        let runs = piece
            .claimed_at
            .is_some_and(|claimed_at| claimed_at <= *at && told.attempt >= piece.attempt);
        runs.then(|| ShownProgress::told(told.clone(), *at, now))
    }
}
