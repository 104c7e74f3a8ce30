//! Commits reports.

pub(crate) mod compaction;
pub(crate) mod totals;

use std::sync::Arc;

use gristmill_model::{BatchId, JobState, PackedArray, Positions, Receipt, Report, Suspended, WorkerId};
use gristmill_store::BatchPositions;
use gristmill_store::integrity::failure_sum;
use gristmill_store::rules::deadline::began_at;
use gristmill_store::rules::ending::{Ending, Failed, FailedAttempt, is_simple};
use gristmill_store::rules::open::Held;
use gristmill_store::rules::report_write::{
    FailedExtras, ONE_PARAMETER, packed, with_failures, write_failed, writing,
};
use rusqlite::params;

use crate::claim::slice::NewSlice;
use crate::columns::report_id;
use crate::failure::Result;
use crate::graph::dependency::Ended;
use crate::transaction::Transaction;

/// For reports of at most this many jobs, the history reads the report itself, with its durations. That saves a row for each small
/// report.
pub(crate) const DURATIONS_READ_MAX: u32 = 16;

/// Jobs that a report concerns and that are not its own.
#[derive(Default)]
struct Freed {
    /// Whether other jobs wait for jobs of the batch.
    is_awaited: bool,
    /// The children that flows left open.
    left_open: Vec<BatchPositions>,
}

/// What a report ended.
fn ended(report: &Report, receipt: &Receipt) -> Ended {
    let completed = report.completed.as_ref();
    let completed = completed.map(|completed| completed.positions.intersection(&receipt.accepted));
    Ended {
        batch: report.batch,
        endings: vec![
            (JobState::Completed, completed.unwrap_or_default()),
            (JobState::Dead, receipt.dead.clone()),
        ],
    }
}

impl Transaction<'_> {
    /// Commits the jobs of a report that the lease still holds, and refuses the rest.
    pub fn commit(
        &mut self,
        worker: WorkerId,
        worker_name: Option<&Arc<str>>,
        report: &Report,
    ) -> Result<Receipt> {
        let reported = report.positions();
        let refused_siblings = self.refused_siblings(report)?;
        let report = with_failures(report, &refused_siblings);
        let failed_writes = if report.writes.is_empty() {
            FailedExtras::new()
        } else {
            self.carry_out_writes(worker, &report)?
        };
        let report = with_failures(&report, &failed_writes);
        let report = &*report;
        let (mut receipt, freed) = match self.let_go_whole(worker, report, &reported)? {
            Some(freed) => (
                Receipt {
                    accepted: reported.clone(),
                    ..Receipt::default()
                },
                freed,
            ),
            None => self.commit_parts(worker, worker_name, report, &reported)?,
        };
        let failed: Positions = failed_writes
            .into_keys()
            .chain(refused_siblings.into_keys())
            .collect();
        receipt.failed = failed.intersection(&receipt.accepted);
        if let Some((positions, ending)) = Ending::completed(report, &receipt.accepted, worker_name)? {
            self.end_jobs(report.batch, &positions, &ending)?;
        }
        if !receipt.dead.is_empty() {
            let ending = Ending {
                worker: worker_name.cloned(),
                ..Ending::of(JobState::Dead, report.last_attempt())
            };
            self.end_jobs(report.batch, &receipt.dead, &ending)?;
        }
        let mut all = self.spawn_siblings(report, &receipt.accepted)?;
        all.extend(self.cancel_descendants(freed.left_open)?);
        if freed.is_awaited {
            all.push(ended(report, &receipt));
        }
        self.settle(all)?;
        receipt.refused = reported.difference(&receipt.accepted);
        debug_assert!(
            reported.contains_all(&receipt.accepted),
            "only reported jobs are accepted"
        );
        debug_assert!(
            receipt.accepted.contains_all(&receipt.dead) && receipt.accepted.contains_all(&receipt.failed),
            "only accepted jobs die or fail"
        );
        Ok(receipt)
    }

    /// Takes out of the lease what a report speaks of, where that is one claimed slice and all of it has completed, as it
    /// is as a rule: by one statement. `None` where it is not so.
    fn let_go_whole(
        &mut self,
        worker: WorkerId,
        report: &Report,
        reported: &Positions,
    ) -> Result<Option<Freed>> {
        if !is_simple(report) {
            return Ok(None);
        }
        let found = self.row(
            "DELETE FROM held WHERE lease_id = ?1 AND batch_id = ?2 AND attempt = ?3 AND first_position = ?4 \
             AND worker_id = ?5 AND positions = ?6 RETURNING EXISTS (SELECT 1 FROM edge WHERE prerequisite_id = ?2), family",
            params![
                report.lease.0,
                report.batch.0,
                report.attempt,
                reported.first(),
                worker.0,
                reported.to_string()
            ],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let Some((is_awaited, family)) = found else {
            return Ok(None);
        };
        self.freed();
        Ok(Some(Freed {
            is_awaited,
            left_open: self.left_open(report.batch, family, reported)?,
        }))
    }

    /// Takes the positions of a report that its lease still holds out of the lease, makes released and retried jobs
    /// claimable, and stores the failures.
    fn commit_parts(
        &mut self,
        worker: WorkerId,
        worker_name: Option<&Arc<str>>,
        report: &Report,
        reported: &Positions,
    ) -> Result<(Receipt, Freed)> {
        let mut receipt = Receipt::default();
        let mut freed = Freed::default();
        for held in &self.held_under(worker, report.lease, report.batch, report.attempt)? {
            let accepted = held.positions.intersection(reported);
            if accepted.is_empty() {
                continue;
            }
            self.let_go(held, &accepted)?;
            debug_assert!(receipt.accepted.is_disjoint(&accepted), "disjoint");
            receipt.accepted = receipt.accepted.union(&accepted);
            let released = report.released.intersection(&accepted);
            if !released.is_empty() {
                self.give_back(held, &released, held.rescues, held.expires_at)?;
            }
            freed.is_awaited |= held.is_awaited;
            let completed = report
                .completed
                .as_ref()
                .map(|completed| completed.positions.intersection(&accepted));
            let mut over = completed.unwrap_or_default();
            for suspended in &report.suspended {
                let last = Held {
                    attempt: report.last_attempt(),
                    ..held.clone()
                };
                if suspended.begins_anew() {
                    let anew = suspended.positions.intersection(&accepted);
                    freed
                        .left_open
                        .extend(self.left_open(held.batch, held.family, &anew)?);
                }
                let dead = self.commit_suspended(&last, &accepted, suspended, worker_name)?;
                receipt.dead = receipt.dead.union(&dead);
            }
            if !(report.failed.is_empty() && report.earlier.is_empty()) {
                let dead = self.commit_failures(held, &accepted, worker_name, report)?;
                over = over.union(&dead);
                receipt.dead = receipt.dead.union(&dead);
            }
            freed
                .left_open
                .extend(self.left_open(held.batch, held.family, &over)?);
        }
        Ok((receipt, freed))
    }

    /// Carries out the writes of a report's jobs, as far as its lease still holds them. If that fails, it finds the
    /// jobs whose writes fail, and writes nothing of them.
    fn carry_out_writes(&self, worker: WorkerId, report: &Report) -> Result<FailedExtras> {
        let mut failed = FailedExtras::new();
        let rows = self.held_under(worker, report.lease, report.batch, report.attempt)?;
        let held = rows
            .iter()
            .fold(Positions::new(), |all, held| all.union(&held.positions));
        let jobs = writing(report, &held);
        if !jobs.is_empty() && self.write_of(report, &jobs)?.is_some() {
            for position in jobs.iter() {
                if let Some(reason) = self.write_of(report, &Positions::from(position..position + 1))? {
                    failed.insert(position, write_failed(&reason));
                }
            }
        }
        Ok(failed)
    }

    /// Carries out the writes of these jobs, all or nothing. Returns the reason of a failure.
    fn write_of(&self, report: &Report, jobs: &Positions) -> Result<Option<String>> {
        self.execute("SAVEPOINT handler", [])?;
        let written = packed(report, jobs)
            .iter()
            .try_for_each(|(sql, items)| self.write_one(sql, items));
        if written.is_err() {
            self.execute("ROLLBACK TO handler", [])?;
        }
        self.execute("RELEASE handler", [])?;
        Ok(written.err())
    }

    fn write_one(&self, sql: &str, items: &str) -> std::result::Result<(), String> {
        let told = |error: rusqlite::Error| error.to_string();
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        // Transactions are not allowed here, and statements that only read are useless.
        if statement.readonly() {
            return Err("it must be an INSERT, an UPDATE or a DELETE".to_owned());
        }
        if statement.parameter_count() != 1 {
            return Err(ONE_PARAMETER.to_owned());
        }
        statement.execute([items]).map(drop).map_err(told)
    }

    /// Stores the failed attempts of one claimed slice, makes those claimable that are to be retried, and returns the
    /// dead ones.
    fn commit_failures(
        &mut self,
        held: &Held,
        accepted: &Positions,
        worker_name: Option<&Arc<str>>,
        report: &Report,
    ) -> Result<Positions> {
        let head = self.head(held.batch)?;
        let policy = head.options.retry;
        let failed = Failed::of(
            report,
            accepted,
            worker_name.map(|name| &**name),
            policy,
            self.now,
            &mut *self.memory.rng,
        );
        assert!(accepted.contains_all(&failed.dead), "only accepted jobs die");
        assert!(
            failed
                .retried
                .values()
                .all(|retried| accepted.contains_all(retried))
        );
        for attempt in &failed.attempts {
            self.insert_failure(held.batch, attempt)?;
        }
        let durations = failed.attempts.iter().map(|attempt| attempt.duration_us);
        let expires_at = held
            .standing()
            .deadline(&head.options, began_at(self.now, durations));
        for (run_at, positions) in &failed.retried {
            let slice = NewSlice {
                run_at: *run_at,
                attempt: report.last_attempt() + 1,
                expires_at,
                ..NewSlice::back(held, &head, positions)
            };
            self.bring_back(held, &head, &slice)?;
        }
        Ok(failed.dead)
    }

    /// Makes accepted jobs of one claimed slice wait for children. Returns the jobs that are dead because their
    /// children cannot be stored.
    fn commit_suspended(
        &mut self,
        held: &Held,
        accepted: &Positions,
        suspended: &Suspended,
        worker_name: Option<&Arc<str>>,
    ) -> Result<Positions> {
        let Some(suspended) = suspended.select(accepted) else {
            return Ok(Positions::new());
        };
        assert!(accepted.contains_all(&suspended.positions), "only they suspend");
        let Err(error) = self.suspend(held, &suspended)? else {
            return Ok(Positions::new());
        };
        for position in suspended.positions.iter() {
            let failed = FailedAttempt {
                worker: worker_name.map(|name| &**name),
                ..FailedAttempt::unreported(position, held.lease, held.attempt, &error)
            };
            self.insert_failure(held.batch, &failed)?;
        }
        Ok(suspended.positions)
    }

    /// Ends positions of a batch, keeps their values and releases their keys. Does nothing without positions.
    pub fn end_jobs(&mut self, batch: BatchId, positions: &Positions, ending: &Ending) -> Result<()> {
        if positions.is_empty() {
            return Ok(());
        }
        self.insert_report(batch, positions, ending)?;
        self.keep_values(batch, positions, ending)?;
        self.release_keys(batch, positions, ending.state)
    }

    /// Stores the end of positions. Does nothing without positions.
    pub fn insert_report(&mut self, batch: BatchId, positions: &Positions, ending: &Ending) -> Result<()> {
        let Some(first) = positions.first() else {
            return Ok(());
        };
        let id = report_id(batch, first);
        if let Some(durations) = &ending.durations
            && positions.len() > DURATIONS_READ_MAX
        {
            let head = self.head(batch)?;
            self.execute(
                "INSERT INTO report_durations (id, lane_id, count, batch_count, finished_at, sum_us, buckets) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    id,
                    head.lane_id,
                    positions.len(),
                    head.count,
                    self.now.0,
                    durations.sum_us.cast_signed(),
                    durations.buckets
                ],
            )?;
        }
        self.execute(
            "INSERT INTO report (id, state, attempt, count, finished_at, worker, positions, durations, logs, \"values\", sum) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            params![
                id,
                ending.state.name(),
                ending.attempt,
                positions.len(),
                self.now.0,
                ending.worker,
                positions.to_string(),
                ending.durations.as_ref().map(|durations| &durations.each),
                ending.logs,
                ending.values.as_ref().map(PackedArray::as_str),
                ending.sum(batch, positions, self.now),
            ],
        )?;
        Ok(())
    }

    /// Stores one failed attempt.
    pub fn insert_failure(&self, batch: BatchId, failed: &FailedAttempt<'_>) -> Result<()> {
        let error = serde_json::to_string(failed.error)?;
        let sum = failure_sum(batch, failed.position, failed.attempt, &error, failed.log);
        self.execute(
            "INSERT INTO failure (batch_id, position, lease_id, attempt, duration_us, failed_at, worker, error, log, retried_at, sum) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            params![
                batch.0,
                failed.position,
                failed.lease,
                failed.attempt,
                failed.duration_us,
                self.now.0,
                failed.worker,
                error,
                failed.log,
                failed.retried_at.map(|moment| moment.0),
                sum,
            ],
        )?;
        Ok(())
    }
}
