//! How jobs end, and how attempts of theirs fail, as both stores write it down.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_model::retry::{AfterFailure, RetryPolicy};
use gristmill_model::{
    BatchId, DurationHistogram, JobError, JobState, PackedArray, Positions, Report, Rng, Timestamp,
};

use crate::integrity::ReportColumns;
use crate::rules::pack::{indexes_of, pack_durations, pack_logs};

/// Whether all that a report says is that jobs completed.
pub fn is_simple(report: &Report) -> bool {
    report.failed.is_empty()
        && report.released.is_empty()
        && report.earlier.is_empty()
        && report.writes.is_empty()
        && report.suspended.is_empty()
        && report.siblings.is_empty()
        && report.completed.is_some()
}

/// How positions ended.
#[derive(Debug, Clone)]
pub struct Ending {
    /// The state in which they ended.
    pub state: JobState,
    /// The attempt.
    pub attempt: u32,
    /// The name of the worker that reported them.
    pub worker: Option<Arc<str>>,
    /// The values of completed jobs.
    pub values: Option<PackedArray>,
    /// The durations of the attempts.
    pub durations: Option<Durations>,
    /// The logs, packed.
    pub logs: Option<String>,
}

/// How long the attempts took.
#[derive(Debug, Clone)]
pub struct Durations {
    /// All of them, packed.
    pub each: String,
    /// Together, in microseconds.
    pub sum_us: u64,
    /// How many took how long.
    pub buckets: String,
}

impl Durations {
    fn of(durations_us: &[u32]) -> Self {
        let mut histogram = DurationHistogram::default();
        for duration_us in durations_us {
            histogram.record(*duration_us);
        }
        Durations {
            each: pack_durations(durations_us.iter().copied()),
            sum_us: histogram.sum_us(),
            buckets: histogram.buckets(),
        }
    }
}

impl Ending {
    /// An end without values.
    pub fn of(state: JobState, attempt: u32) -> Self {
        Ending {
            state,
            attempt,
            worker: None,
            values: None,
            durations: None,
            logs: None,
        }
    }

    /// The sum of the report that it becomes; `None` for jobs without values.
    pub fn sum(&self, batch: BatchId, positions: &Positions, finished_at: Timestamp) -> Option<i64> {
        let columns = ReportColumns {
            batch,
            positions,
            attempt: self.attempt,
            finished_at: finished_at.0,
            worker: self.worker.as_deref(),
            durations: self.durations.as_ref().map(|durations| durations.each.as_str()),
            logs: self.logs.as_deref(),
            values: self.values.as_ref()?.as_str(),
        };
        Some(columns.sum())
    }

    /// What a report completed of the jobs that are `accepted`, and which those are. As a rule that is all, and the
    /// values stay packed as they came.
    pub fn completed<'r>(
        report: &'r Report,
        accepted: &Positions,
        worker: Option<&Arc<str>>,
    ) -> serde_json::Result<Option<(Cow<'r, Positions>, Ending)>> {
        let Some(completed) = &report.completed else {
            return Ok(None);
        };
        let mut ending = Ending {
            worker: worker.cloned(),
            ..Ending::of(JobState::Completed, report.last_attempt())
        };
        if accepted.contains_all(&completed.positions) {
            ending.values = Some(completed.values.clone());
            ending.durations = Some(Durations::of(&completed.durations_us));
            ending.logs = pack_logs(report, &completed.positions)?;
            return Ok(Some((Cow::Borrowed(&completed.positions), ending)));
        }
        let positions = completed.positions.intersection(accepted);
        let indexes = indexes_of(&positions, &completed.positions);
        let durations: Vec<u32> = indexes
            .iter()
            .map(|index| completed.durations_us[index as usize])
            .collect();
        ending.values = Some(completed.values.select(&indexes));
        ending.durations = Some(Durations::of(&durations));
        ending.logs = pack_logs(report, &positions)?;
        Ok(Some((Cow::Owned(positions), ending)))
    }
}

/// One failed attempt, to be stored.
#[derive(Debug)]
pub struct FailedAttempt<'a> {
    /// The job, by its position in the batch.
    pub position: u32,
    /// The lease that held it.
    pub lease: i64,
    /// The attempt.
    pub attempt: u32,
    /// The error.
    pub error: &'a JobError,
    /// The duration of the attempt; 0 if no worker reported it.
    pub duration_us: u32,
    /// The log of the attempt.
    pub log: Option<&'a str>,
    /// The name of the worker.
    pub worker: Option<&'a str>,
    /// When the job is tried again, if it is.
    pub retried_at: Option<Timestamp>,
}

impl<'a> FailedAttempt<'a> {
    /// A failure that no worker reported.
    pub fn unreported(position: u32, lease: i64, attempt: u32, error: &'a JobError) -> Self {
        FailedAttempt {
            position,
            lease,
            attempt,
            error,
            duration_us: 0,
            log: None,
            worker: None,
            retried_at: None,
        }
    }
}

/// What becomes of the jobs that a report says have failed, be it before their last attempt.
#[derive(Debug, Default)]
pub struct Failed<'a> {
    /// The failed attempts.
    pub attempts: Vec<FailedAttempt<'a>>,
    /// The jobs without another attempt.
    pub dead: Positions,
    /// By the moment from which they can be claimed: jobs that fail together and wait equally long become one slice
    /// again.
    pub retried: BTreeMap<Timestamp, Positions>,
}

impl<'a> Failed<'a> {
    /// Of the jobs that are `accepted`, by the policy of their batch.
    pub fn of(
        report: &'a Report,
        accepted: &Positions,
        worker: Option<&'a str>,
        policy: RetryPolicy,
        now: Timestamp,
        rng: &mut dyn Rng,
    ) -> Self {
        let mut all = Failed::default();
        let earlier = report.earlier.iter();
        for failed in earlier.filter(|failed| accepted.contains(failed.position)) {
            all.attempts.push(FailedAttempt {
                position: failed.position,
                lease: report.lease.0,
                attempt: failed.attempt,
                error: &failed.error,
                duration_us: failed.duration_us,
                log: failed.log.as_deref(),
                worker,
                retried_at: Some(now),
            });
        }
        let attempt = report.last_attempt();
        for failed in &report.failed {
            if !accepted.contains(failed.position) {
                continue;
            }
            let log = report
                .logs
                .binary_search_by_key(&failed.position, |log| log.position);
            let retried_at = match policy.after_failure(attempt, &failed.error, rng) {
                AfterFailure::Dead => None,
                AfterFailure::Retry { delay_ms } => {
                    Some(now.plus_ms(i64::try_from(delay_ms).unwrap_or(i64::MAX)))
                }
            };
            match retried_at {
                None => all.dead.insert(failed.position),
                Some(run_at) => all.retried.entry(run_at).or_default().insert(failed.position),
            }
            all.attempts.push(FailedAttempt {
                position: failed.position,
                lease: report.lease.0,
                attempt,
                error: &failed.error,
                duration_us: failed.duration_us,
                log: log.ok().map(|index| report.logs[index].text.as_str()),
                worker,
                retried_at,
            });
        }
        all
    }
}
