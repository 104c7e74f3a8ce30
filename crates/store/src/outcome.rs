//! Ended jobs, packed as they are stored.

use std::sync::Arc;

use gristmill_model::{BatchId, JobError, JobState, PackedArray, Positions, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ChildOutcome;

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

impl StoredReport {
    /// The part of these positions; `None` if there are none.
    pub fn narrowed(self, positions: &Positions) -> Option<StoredReport> {
        let own = self.positions.intersection(positions);
        if own.is_empty() {
            return None;
        }
        if own == self.positions {
            return Some(self);
        }
        let indexes = self.positions.indexes_of(&own);
        let durations = indexes.iter();
        let durations = durations.filter_map(|index| self.durations_us.get(index as usize).copied());
        Some(StoredReport {
            values: self.values.as_ref().map(|values| values.select(&indexes)),
            durations_us: durations.collect(),
            positions: own,
            ..self
        })
    }
}

/// The ended jobs of a batch that are wanted, and how much they may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomesWanted {
    /// The batch.
    pub batch: BatchId,
    /// The positions; `None` for all.
    pub positions: Option<Positions>,
    /// Maximum bytes, as [`OutcomesWanted::bytes_of`] counts them, and of errors.
    pub bytes_max: usize,
    /// All ended jobs are read in place of the wanted ones, where they have at most this many bytes.
    pub whole_bytes_max: usize,
}

impl OutcomesWanted {
    /// The bytes of this many jobs with values of these bytes together.
    pub fn bytes_of(jobs: u32, values_bytes: usize) -> usize {
        (jobs as usize * size_of::<ChildOutcome>()).saturating_add(values_bytes)
    }

    /// The bytes of a part of a report.
    pub fn bytes_of_report(report: &StoredReport) -> usize {
        let values = report.values.as_ref();
        Self::bytes_of(
            report.positions.len(),
            values.map_or(0, |values| values.as_str().len()),
        )
    }
}

/// Gathers those parts of reports that are wanted, within the limit of bytes.
#[derive(Debug)]
pub struct WantedReports<'w> {
    batch: BatchId,
    positions: &'w Positions,
    bytes_max: usize,
    reports: Vec<StoredReport>,
    dead: Positions,
    bytes: usize,
}

impl<'w> WantedReports<'w> {
    /// Begins without reports. `positions` are the wanted ones, or all of the batch.
    pub fn new(batch: BatchId, positions: &'w Positions, bytes_max: usize) -> Self {
        WantedReports {
            batch,
            positions,
            bytes_max,
            reports: Vec::new(),
            dead: Positions::new(),
            bytes: 0,
        }
    }

    /// Adds the wanted part of a report. Returns `false` if there are more bytes than may be read.
    #[must_use]
    pub fn add(&mut self, report: StoredReport) -> bool {
        let Some(report) = report.narrowed(self.positions) else {
            return true;
        };
        self.bytes += OutcomesWanted::bytes_of_report(&report);
        if report.state == JobState::Dead {
            self.dead = self.dead.union(&report.positions);
        }
        self.reports.push(report);
        self.bytes <= self.bytes_max
    }

    /// The dead jobs, and the bytes that their errors may have.
    pub fn dead(&self) -> (&Positions, usize) {
        (&self.dead, self.bytes_max.saturating_sub(self.bytes))
    }

    /// The outcomes, with the errors of the dead jobs. `count` is the number of all jobs of the batch.
    pub fn read(self, count: u32, errors: Vec<StoredFailure>) -> BatchOutcomes {
        let mut reports = self.reports;
        reports.sort_by_key(|report| report.positions.first());
        BatchOutcomes {
            batch: self.batch,
            count,
            reports,
            errors,
        }
    }
}

/// The answer to [`OutcomesWanted`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutcomesRead {
    /// The batch does not exist.
    Unknown,
    /// They have more bytes than may be read.
    TooLarge,
    /// The wanted jobs that have ended. The errors have no logs.
    Read(BatchOutcomes),
    /// All jobs of the batch that have ended, likewise.
    ReadWhole(BatchOutcomes),
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

/// One job that has ended.
#[derive(Debug, Clone, Copy)]
pub struct EndedJob<'a> {
    /// Its position in its batch.
    pub position: u32,
    /// The report that ended it.
    pub report: &'a StoredReport,
    /// Its duration in microseconds, if it completed.
    pub duration_us: Option<u32>,
    /// Its value, if it completed.
    pub value: Option<&'a str>,
    /// Its last failure, if it is dead.
    pub failure: Option<&'a StoredFailure>,
}

impl BatchOutcomes {
    /// Number of jobs that have ended.
    pub fn ended(&self) -> u32 {
        self.reports.iter().map(|report| report.positions.len()).sum()
    }

    /// The jobs that have ended, in ascending order of position.
    pub fn jobs(&self) -> Vec<EndedJob<'_>> {
        let mut jobs = Vec::with_capacity(self.ended() as usize);
        for report in &self.reports {
            let mut values = report.values.as_ref().map(PackedArray::items);
            let mut durations_us = report.durations_us.iter().copied();
            jobs.extend(report.positions.iter().map(|position| EndedJob {
                position,
                report,
                duration_us: durations_us.next(),
                value: values.as_mut().and_then(Iterator::next),
                failure: self.failure(position),
            }));
        }
        jobs.sort_unstable_by_key(|job| job.position);
        debug_assert!(
            jobs.is_sorted_by(|one, next| one.position < next.position),
            "each job has one outcome"
        );
        jobs
    }

    /// The last failure of a dead job.
    pub fn failure(&self, position: u32) -> Option<&StoredFailure> {
        debug_assert!(self.errors.is_sorted_by_key(|failure| failure.position));
        let place = self
            .errors
            .binary_search_by_key(&position, |failure| failure.position);
        place.ok().map(|place| &self.errors[place])
    }
}
