//! Flows that clean up after a cancel. See `flow.rs` in the crate `store`.

use std::sync::Arc;

use gristmill_model::{BatchId, Positions, Report, WorkerId};
use gristmill_store::BatchPositions;
use gristmill_store::rules::ending::FailedAttempt;
use gristmill_store::rules::family::flow::{CancelMode, cancellation, ending_in};
use rusqlite::params;

use crate::claim::slice::NewSlice;
use crate::columns::read_positions;
use crate::failure::Result;
use crate::graph::dependency::Ended;
use crate::transaction::Transaction;

/// Jobs that a cancel took out of a row of open jobs.
#[derive(Debug)]
pub(crate) struct Taken {
    pub positions: Positions,
    pub family: Option<i64>,
    /// The current or next attempt.
    pub attempt: u32,
    /// The attempt on which they end.
    pub last_attempt: u32,
    pub rescues: u32,
    /// The negated priority; the batch's if `None`.
    pub rank: Option<i64>,
}

impl Transaction<'_> {
    /// The flows of a batch that clean up.
    pub fn cleaning(&self, batch: BatchId) -> Result<Positions> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT positions FROM cleanup WHERE batch_id = ?1")?;
        let mut rows = statement.query([batch.0])?;
        let mut cleaning = Positions::new();
        while let Some(row) = rows.next()? {
            cleaning = cleaning.union(&read_positions(row, 0)?);
        }
        Ok(cleaning)
    }

    /// Lets those of the jobs taken from a batch clean up that may, and leaves the others. Returns how many.
    pub fn begin_cleanup(
        &mut self,
        batch: BatchId,
        taken: &mut [Taken],
        cleaning: &Positions,
        mode: CancelMode,
    ) -> Result<u32> {
        if mode == CancelMode::AtOnce {
            return Ok(0);
        }
        let (mut begun, mut all) = (Vec::new(), Positions::new());
        for jobs in taken {
            let Some(cleanup_ms) = self.cleanup_ms(batch, jobs.family)? else {
                continue;
            };
            let cleaners = jobs.positions.difference(cleaning);
            if cleaners.is_empty() {
                continue;
            }
            jobs.positions = jobs.positions.intersection(cleaning);
            self.execute(
                "INSERT INTO cleanup (batch_id, ends_at, positions) VALUES (?1, ?2, ?3)",
                params![batch.0, self.now.plus_ms(cleanup_ms).0, cleaners.to_string()],
            )?;
            all = all.union(&cleaners);
            begun.push((cleaners, jobs.attempt, jobs.rescues, jobs.rank));
        }
        if begun.is_empty() {
            return Ok(0);
        }
        let (count, number) = (all.len(), self.next_family(batch)?);
        self.insert_suspension(batch, number, &cancellation(all))?;
        let head = self.head(batch)?;
        for (positions, attempt, rescues, rank) in &begun {
            let slice = NewSlice {
                positions,
                rank: rank.unwrap_or(head.rank()),
                run_at: head.run_at.min(self.now),
                attempt: *attempt,
                rescues: *rescues,
                expires_at: None,
                family: Some(number),
            };
            self.insert_slice(batch, &head, &slice)?;
        }
        Ok(count)
    }

    /// How long flows may clean up that are cancelled after this step.
    fn cleanup_ms(&self, batch: BatchId, family: Option<i64>) -> Result<Option<i64>> {
        let Some(family) = family else {
            return Ok(None);
        };
        let found = self.row(
            "SELECT cleanup_ms FROM suspension WHERE batch_id = ?1 AND family = ?2",
            params![batch.0, family],
            |row| row.get::<_, Option<i64>>(0),
        )?;
        Ok(found.flatten())
    }

    /// Forgets the time of flows that have ended.
    pub fn end_cleanup(&self, batch: BatchId, ended: &Positions) -> Result<()> {
        let rows = self.rows(
            "SELECT id, positions FROM cleanup WHERE batch_id = ?1",
            [batch.0],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)),
        )?;
        for (id, positions) in rows {
            let rest = positions.parse::<Positions>()?.difference(ended);
            match rest.is_empty() {
                true => self.execute("DELETE FROM cleanup WHERE id = ?1", [id])?,
                false => self.execute(
                    "UPDATE cleanup SET positions = ?2 WHERE id = ?1",
                    params![id, rest.to_string()],
                )?,
            };
        }
        Ok(())
    }

    /// Ends flows that clean up as cancelled, where a report would end them or begin them anew. Keeps the errors of those that
    /// failed. The report then no longer holds them.
    pub fn end_cleaned(
        &mut self,
        worker: WorkerId,
        worker_name: Option<&Arc<str>>,
        report: &Report,
    ) -> Result<()> {
        let cleaning = self.cleaning(report.batch)?;
        if cleaning.is_empty() {
            return Ok(());
        }
        let held = self.held_under(worker, report.lease, report.batch, report.attempt)?;
        let held = held
            .iter()
            .fold(Positions::new(), |all, held| all.union(&held.positions));
        let over = ending_in(report).intersection(&cleaning).intersection(&held);
        for failed in report
            .failed
            .iter()
            .filter(|failed| over.contains(failed.position))
        {
            let attempt = FailedAttempt {
                duration_us: failed.duration_us,
                worker: worker_name.map(|name| &**name),
                ..FailedAttempt::unreported(
                    failed.position,
                    report.lease.0,
                    report.last_attempt(),
                    &failed.error,
                )
            };
            self.insert_failure(report.batch, &attempt)?;
        }
        let over = BatchPositions {
            batch: report.batch,
            positions: over,
        };
        let ended = self.cancel_trees(vec![over], CancelMode::AtOnce)?;
        self.settle(ended)
    }

    /// Ends flows that have cleaned up for as long as they may. Returns how many, and what that ended.
    pub fn end_late_cleanups(&mut self) -> Result<(u64, Vec<Ended>)> {
        let late = self.rows(
            "SELECT batch_id, positions FROM cleanup WHERE ends_at <= ?1 ORDER BY id",
            [self.now.0],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)),
        )?;
        let (mut count, mut all) = (0, Vec::new());
        for (batch, positions) in late {
            let batch = BatchId(batch);
            let late = BatchPositions {
                batch,
                positions: positions.parse()?,
            };
            let ended = self.cancel_trees(vec![late], CancelMode::AtOnce)?;
            let own = ended.iter().filter(|ended| ended.batch == batch);
            let own = own.flat_map(|ended| &ended.endings);
            count += own.map(|(_, positions)| u64::from(positions.len())).sum::<u64>();
            all.extend(ended);
        }
        // What ended otherwise meanwhile, such as with its worker, has a time still.
        self.execute("DELETE FROM cleanup WHERE ends_at <= ?1", [self.now.0])?;
        Ok((count, all))
    }

    /// The flows of a batch that have been cancelled while they waited: a retry would cancel them once more.
    pub fn cancelled_flows(&self, batch: BatchId) -> Result<Positions> {
        let rows = self.rows(
            "SELECT positions FROM suspension WHERE batch_id = ?1 AND flow = 'cancelled'",
            [batch.0],
            |row| row.get::<_, String>(0),
        )?;
        let mut all = Positions::new();
        for positions in rows {
            all = all.union(&positions.parse()?);
        }
        Ok(all)
    }
}
