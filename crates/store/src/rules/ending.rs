//! Endings of jobs and failures of attempts, in the form that both stores write.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_model::retry::{AfterFailure, RetryPolicy};
use gristmill_model::{
    BatchId, DurationHistogram, JobError, JobState, PackedArray, Positions, Report, Rng, Timestamp,
};

use crate::integrity::ReportColumns;
use crate::rules::pack::{indexes_of, pack_durations, pack_logs};

/// Whether a report only completes jobs.
pub fn is_simple(report: &Report) -> bool {
    report.failed.is_empty()
        && report.released.is_empty()
        && report.earlier.is_empty()
        && report.writes.is_empty()
        && report.suspended.is_empty()
        && report.siblings.is_empty()
        && report.completed.is_some()
}

/// The ending of some positions.
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

/// The durations of attempts.
#[derive(Debug, Clone)]
pub struct Durations {
    /// Each duration, packed.
    pub each: String,
    /// The sum, in microseconds.
    pub sum_us: u64,
    /// The number of durations in each bucket.
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
    /// Makes the ending of one job that completes without running.
    pub fn of_value(value: PackedArray) -> Self {
        assert_eq!(value.count(), 1, "one job has one value");
        Ending {
            values: Some(value),
            durations: Some(Durations::of(&[0])),
            ..Ending::of(JobState::Completed, 1)
        }
    }

    /// Makes an ending without values.
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

    /// The checksum of the report that it becomes; `None` for jobs without values.
    pub fn sum(&self, batch: BatchId, positions: &Positions, finished_at: Timestamp) -> Option<i64> {
        let values = self.values.as_ref().map_or(positions.len(), PackedArray::count);
        assert_eq!(values, positions.len(), "each job has its value");
        assert!(self.state.is_final(), "a report ends its jobs");
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

    /// The accepted completed jobs of a report, and their ending. Usually all are accepted, and the values stay packed
    /// as they arrived.
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
            assert_eq!(
                completed.values.count(),
                completed.positions.len(),
                "each completed job has a value"
            );
            assert_eq!(
                completed.durations_us.len(),
                completed.positions.len() as usize,
                "each completed job has a duration"
            );
            ending.values = Some(completed.values.clone());
            ending.durations = Some(Durations::of(&completed.durations_us));
            ending.logs = pack_logs(report, &completed.positions)?;
            return Ok(Some((Cow::Borrowed(&completed.positions), ending)));
        }
        let positions = completed.positions.intersection(accepted);
        let indexes = indexes_of(&positions, &completed.positions);
        assert_eq!(indexes.len(), positions.len(), "each job has an index");
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

/// One failed attempt to store.
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
    /// The time of the retry, if there is one.
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

/// The plan for the failed attempts of a report, including earlier ones.
#[derive(Debug, Default)]
pub struct Failed<'a> {
    /// The failed attempts.
    pub attempts: Vec<FailedAttempt<'a>>,
    /// The jobs without another attempt.
    pub dead: Positions,
    /// The jobs with another attempt, by the time from which they can be claimed. Jobs that fail together and wait
    /// equally long become one slice again.
    pub retried: BTreeMap<Timestamp, Positions>,
}

impl<'a> Failed<'a> {
    /// Plans the accepted jobs by the policy of their batch.
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
        assert_eq!(
            all.dead.len() + all.retried.values().map(Positions::len).sum::<u32>(),
            report
                .failed
                .iter()
                .filter(|failed| accepted.contains(failed.position))
                .count() as u32,
            "each failed job is dead or retried"
        );
        assert!(all.retried.keys().all(|run_at| *run_at >= now), "not in the past");
        debug_assert!(all.retried.values().all(|retried| retried.is_disjoint(&all.dead)));
        all
    }
}
