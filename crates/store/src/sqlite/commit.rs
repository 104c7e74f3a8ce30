//! Committing reports.

use std::collections::BTreeMap;

use gristmill_model::retry::AfterFailure;
use gristmill_model::{BatchId, JobError, JobState, Positions, Receipt, Report, Timestamp, WorkerId};
use rusqlite::params;

use super::failure::Result;
use super::held::Held;
use super::slice::NewSlice;
use super::transaction::Transaction;
use crate::pack::{indexes_of, pack_durations, pack_logs};

/// A report's id is its batch's, shifted left by so many bits, and its first position.
pub(super) const POSITION_BITS: u32 = 14;
const _: () = assert!(gristmill_model::limits::BATCH_JOBS_MAX <= 1 << POSITION_BITS);

/// The id of the report that begins with `first_position`.
pub(super) fn report_id(batch: BatchId, first_position: u32) -> i64 {
    (batch.0 << POSITION_BITS) | i64::from(first_position)
}

/// How positions ended.
#[derive(Debug)]
pub(super) struct Ending<'a> {
    pub state: JobState,
    pub attempt: u32,
    pub worker: Option<&'a str>,
    pub values: Option<&'a str>,
    pub durations: Option<String>,
    pub logs: Option<String>,
}

impl Ending<'_> {
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
}

/// One failed attempt, to be stored.
#[derive(Debug)]
pub(super) struct FailedAttempt<'a> {
    pub position: u32,
    pub lease: i64,
    pub attempt: u32,
    pub error: &'a JobError,
    pub duration_us: u32,
    pub log: Option<&'a str>,
    pub worker: Option<&'a str>,
}

impl Transaction<'_> {
    /// Commits what the lease still holds of one report, and refuses the rest.
    pub fn commit(
        &mut self,
        worker: WorkerId,
        worker_name: Option<&str>,
        report: &Report,
    ) -> Result<Receipt> {
        let reported = report.positions();
        let mut receipt = Receipt::default();
        let rows = self.held_under(worker, report.lease, report.batch, report.attempt)?;
        for held in &rows {
            let accepted = held.positions.intersection(&reported);
            if accepted.is_empty() {
                continue;
            }
            self.let_go(held, &accepted)?;
            receipt.accepted = receipt.accepted.union(&accepted);
            let released = report.released.intersection(&accepted);
            if !released.is_empty() {
                self.give_back(held, &released, held.rescues, held.expires_at)?;
            }
            if !report.failed.is_empty() {
                let dead = self.commit_failures(held, &accepted, worker_name, report)?;
                receipt.dead = receipt.dead.union(&dead);
            }
        }
        self.commit_completed(&receipt.accepted, worker_name, report)?;
        if !receipt.dead.is_empty() {
            let ending = Ending {
                worker: worker_name,
                ..Ending::of(JobState::Dead, report.attempt)
            };
            self.insert_report(report.batch, &receipt.dead, &ending)?;
        }
        receipt.refused = reported.difference(&receipt.accepted);
        Ok(receipt)
    }

    fn commit_completed(
        &mut self,
        accepted: &Positions,
        worker_name: Option<&str>,
        report: &Report,
    ) -> Result<()> {
        let Some(completed) = &report.completed else {
            return Ok(());
        };
        let mut ending = Ending {
            worker: worker_name,
            ..Ending::of(JobState::Completed, report.attempt)
        };
        if accepted.contains_all(&completed.positions) {
            ending.values = Some(completed.values.as_str());
            ending.durations = Some(pack_durations(completed.durations_us.iter().copied()));
            ending.logs = pack_logs(report, &completed.positions)?;
            return self.insert_report(report.batch, &completed.positions, &ending);
        }
        let positions = completed.positions.intersection(accepted);
        let indexes = indexes_of(&positions, &completed.positions);
        let values = completed.values.select(&indexes);
        let durations = indexes.iter().map(|index| completed.durations_us[index as usize]);
        ending.values = Some(values.as_str());
        ending.durations = Some(pack_durations(durations));
        ending.logs = pack_logs(report, &positions)?;
        self.insert_report(report.batch, &positions, &ending)
    }

    /// Stores the failed attempts of one claimed slice, makes those claimable that are to be tried again,
    /// and gives back those that are dead.
    fn commit_failures(
        &mut self,
        held: &Held,
        accepted: &Positions,
        worker_name: Option<&str>,
        report: &Report,
    ) -> Result<Positions> {
        let head = self.head(held.batch)?;
        let policy = head.options.retry;
        let mut dead = Positions::new();
        // Jobs that fail together and wait equally long become one slice again.
        let mut retried: BTreeMap<Timestamp, Positions> = BTreeMap::new();
        for failed in report
            .failed
            .iter()
            .filter(|failed| accepted.contains(failed.position))
        {
            let log = report
                .logs
                .binary_search_by_key(&failed.position, |log| log.position);
            self.insert_failure(
                held.batch,
                &FailedAttempt {
                    position: failed.position,
                    lease: held.lease,
                    attempt: held.attempt,
                    error: &failed.error,
                    duration_us: failed.duration_us,
                    log: log.ok().map(|index| report.logs[index].text.as_str()),
                    worker: worker_name,
                },
            )?;
            match policy.after_failure(held.attempt, &failed.error, &mut *self.memory.rng) {
                AfterFailure::Dead => dead.insert(failed.position),
                AfterFailure::Retry { delay_ms } => {
                    let delay_ms = i64::try_from(delay_ms).unwrap_or(i64::MAX);
                    let run_at = self.now.plus_ms(delay_ms);
                    retried.entry(run_at).or_default().insert(failed.position);
                }
            }
        }
        for (run_at, positions) in &retried {
            let slice = NewSlice {
                positions,
                run_at: *run_at,
                attempt: held.attempt + 1,
                rescues: held.rescues,
                expires_at: None,
            };
            self.insert_slice(held.batch, &head, &slice)?;
        }
        Ok(dead)
    }

    /// Stores how positions ended. Nothing where there are none.
    pub fn insert_report(&self, batch: BatchId, positions: &Positions, ending: &Ending<'_>) -> Result<()> {
        let Some(first) = positions.first() else {
            return Ok(());
        };
        self.execute(
            "INSERT INTO report (id, state, attempt, count, finished_at, worker, positions, durations, logs, \"values\") \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                report_id(batch, first),
                ending.state.name(),
                ending.attempt,
                positions.len(),
                self.now.0,
                ending.worker,
                positions.to_string(),
                ending.durations,
                ending.logs,
                ending.values,
            ],
        )?;
        Ok(())
    }

    /// Stores one failed attempt.
    pub fn insert_failure(&self, batch: BatchId, failed: &FailedAttempt<'_>) -> Result<()> {
        self.execute(
            "INSERT INTO failure (batch_id, position, lease_id, attempt, duration_us, failed_at, worker, error, log) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                batch.0,
                failed.position,
                failed.lease,
                failed.attempt,
                failed.duration_us,
                self.now.0,
                failed.worker,
                serde_json::to_string(failed.error)?,
                failed.log,
            ],
        )?;
        Ok(())
    }
}
