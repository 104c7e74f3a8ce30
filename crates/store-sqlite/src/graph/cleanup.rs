//! Instances that clean up after cancelled flows. See `flow.rs` in the crate `store`.

use std::collections::BTreeMap;

use gristmill_model::limits::CLEANUP_WAITS_MS_MAX;
use gristmill_model::{BatchId, Positions, Timestamp};
use gristmill_store::rules::family::flow::{BEGINNING, next_cleanup_look};
use gristmill_store::{BatchPositions, CleanupBatch, DueCleanup, StoreError};
use rusqlite::{Connection, params};

use crate::SqliteStore;
use crate::columns::read_positions;
use crate::failure::Result;
use crate::limits::ENDED_CLEANUPS_PER_TRANSACTION;
use crate::transaction::Transaction;

/// Cancelled flows for which nobody has begun the cleanup, the earliest first.
pub(crate) fn cleanups_due(
    connection: &Connection,
    ran_before: Timestamp,
    rows_max: u32,
) -> Result<Vec<DueCleanup>> {
    let mut statement = connection.prepare_cached(
        "SELECT batch_id, positions, within_ms FROM ( \
         SELECT * FROM (SELECT * FROM cleanup WHERE was_running = 0 AND begins_at IS NOT NULL ORDER BY begins_at, id LIMIT ?2) \
         UNION ALL SELECT * FROM ( \
         SELECT * FROM cleanup WHERE was_running = 1 AND begins_at <= ?1 ORDER BY begins_at, id LIMIT ?2)) \
         ORDER BY begins_at, id LIMIT ?2",
    )?;
    let mut rows = statement.query(params![ran_before.0, rows_max])?;
    let mut due = Vec::new();
    while let Some(row) = rows.next()? {
        due.push(DueCleanup {
            flows: BatchPositions {
                batch: BatchId(row.get(0)?),
                positions: read_positions(row, 1)?,
            },
            within_ms: row.get::<_, i64>(2)?.unsigned_abs(),
        });
    }
    Ok(due)
}

impl SqliteStore {
    /// Cancels the instances that have cleaned up for as long as they may, in portions. Returns how many.
    pub(crate) async fn end_late_cleanups(&self) -> std::result::Result<u64, StoreError> {
        let now = self.clock.now();
        let mut is_last = !self.read(move |connection| ends_one(connection, now)).await?;
        let mut total = 0;
        while !is_last {
            let ended = self
                .write(0, move |transaction| transaction.end_late_cleanups(now))
                .await?;
            (total, is_last) = (total + ended.0, ended.1);
        }
        Ok(total)
    }
}

/// Reports whether an instance that cleans up is to be looked at, or cancelled.
fn ends_one(connection: &Connection, now: Timestamp) -> Result<bool> {
    let mut statement =
        connection.prepare_cached("SELECT EXISTS (SELECT 1 FROM cleanup WHERE ends_at <= ?1)")?;
    Ok(statement.query_row([now.0], |row| row.get(0))?)
}

impl Transaction<'_> {
    /// Notes which of these cancelled jobs of a batch may be cleaned up after: the family of each part, and whether a worker ran it.
    /// Flows whose steps a worker ran are noted before.
    pub fn note_cleanups(
        &mut self,
        batch: BatchId,
        cancelled: &[(Option<i64>, bool, Positions)],
    ) -> Result<()> {
        let mut noted: BTreeMap<(bool, i64), Positions> = BTreeMap::new();
        // Only jobs with a family have suspended.
        for (family, was_running, flows) in cancelled.iter().filter(|(family, ..)| family.is_some()) {
            let within_ms = self.row(
                "SELECT cleanup_ms FROM suspension WHERE batch_id = ?1 AND family = ?2 AND cleanup_ms IS NOT NULL \
                 AND NOT EXISTS (SELECT 1 FROM cleanup u WHERE u.batch_id = ?1 AND u.ends_at IS NOT NULL)",
                params![batch.0, family],
                |row| row.get::<_, i64>(0),
            )?;
            if let Some(within_ms) = within_ms {
                let all = noted.entry((*was_running, within_ms)).or_default();
                *all = all.union(flows);
            }
        }
        for ((was_running, within_ms), flows) in noted {
            self.execute(
                "INSERT INTO cleanup (batch_id, positions, begins_at, was_running, within_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![batch.0, flows.to_string(), self.now.0, was_running, within_ms],
            )?;
        }
        if cancelled.iter().any(|(_, was_running, _)| *was_running) {
            self.execute(
                "WITH RECURSIVE up (id) AS (SELECT parent_id FROM child_batch WHERE batch_id = ?1 \
                 UNION SELECT c.parent_id FROM up JOIN child_batch c ON c.batch_id = up.id) \
                 UPDATE cleanup SET was_running = 1 WHERE batch_id IN (SELECT id FROM up) AND begins_at = ?2",
                params![batch.0, self.now.0],
            )?;
        }
        Ok(())
    }

    /// Begins to clean up after flows, unless another process has begun that for one of them.
    pub fn begin_cleanups(
        &mut self,
        flows: &[BatchPositions],
        cleanup: Option<&CleanupBatch>,
    ) -> Result<bool> {
        let mut rows_left = Vec::new();
        for BatchPositions { batch, positions } in flows {
            let noted = self.rows(
                "SELECT id, positions FROM cleanup WHERE batch_id = ?1 AND begins_at IS NOT NULL",
                [batch.0],
                |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)),
            )?;
            let mut found = Positions::new();
            for (row, noted) in noted {
                let noted: Positions = noted.parse()?;
                if !noted.is_disjoint(positions) {
                    found = found.union(&noted);
                    rows_left.push((row, noted.difference(positions)));
                }
            }
            if !found.contains_all(positions) {
                return Ok(false);
            }
        }
        for (row, left) in rows_left {
            match left.is_empty() {
                true => self.execute("DELETE FROM cleanup WHERE id = ?1", [row])?,
                false => self.execute(
                    "UPDATE cleanup SET positions = ?2 WHERE id = ?1",
                    params![row, left.to_string()],
                )?,
            };
        }
        let Some(CleanupBatch { batch, within_ms }) = cleanup else {
            return Ok(true);
        };
        for BatchPositions { batch, positions } in flows {
            self.execute(
                "INSERT INTO cleanup (batch_id, positions) VALUES (?1, ?2)",
                params![batch.0, positions.to_string()],
            )?;
        }
        let all = Positions::all(batch.payloads.count());
        let within_ms = within_ms.cast_signed();
        for id in self.submit(std::slice::from_ref(batch), None)? {
            let looked_at = next_cleanup_look(within_ms, self.now, self.now);
            self.insert_instances(id, &all, within_ms, looked_at, false)?;
        }
        Ok(true)
    }

    fn insert_instances(
        &self,
        batch: BatchId,
        positions: &Positions,
        within_ms: i64,
        ends_at: Timestamp,
        has_begun: bool,
    ) -> Result<()> {
        if !positions.is_empty() {
            self.execute(
                "INSERT INTO cleanup (batch_id, positions, within_ms, ends_at, has_begun) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![batch.0, positions.to_string(), within_ms, ends_at.0, has_begun],
            )?;
        }
        Ok(())
    }

    /// Cancels some instances that had cleaned up by `due_by` for as long as they may. Returns how many, and whether these were all. The
    /// time of those that have begun since the last look begins; those that no worker begins wait on, up to a limit.
    pub fn end_late_cleanups(&mut self, due_by: Timestamp) -> Result<(u64, bool)> {
        let looked_at = self.rows(
            &format!(
                "SELECT u.id, u.batch_id, u.positions, u.within_ms, u.has_begun, b.submitted_at FROM cleanup u \
                 JOIN batch b ON b.id = u.batch_id WHERE u.ends_at <= ?1 ORDER BY u.ends_at, u.id \
                 LIMIT {ENDED_CLEANUPS_PER_TRANSACTION}"
            ),
            [due_by.0],
            |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    BatchId(row.get(1)?),
                    row.get::<_, String>(2)?,
                    row.get::<_, i64>(3)?,
                    row.get::<_, bool>(4)?,
                    Timestamp(row.get(5)?),
                ))
            },
        )?;
        let is_last = looked_at.len() < ENDED_CLEANUPS_PER_TRANSACTION;
        let (mut count, mut all) = (0, Vec::new());
        for (row, batch, positions, within_ms, has_begun, submitted_at) in looked_at {
            let positions = positions.parse::<Positions>()?;
            let new = self.not_begun(batch)?.intersection(&positions);
            let begun = positions.difference(&new);
            self.execute("DELETE FROM cleanup WHERE id = ?1", [row])?;
            let mut late = Positions::new();
            match has_begun {
                true => late = begun,
                false => {
                    self.insert_instances(batch, &begun, within_ms, self.now.plus_ms(within_ms), true)?
                }
            }
            if self.now >= submitted_at.plus_ms(CLEANUP_WAITS_MS_MAX) {
                late = late.union(&new);
            } else {
                let looked_at = next_cleanup_look(within_ms, submitted_at, self.now);
                self.insert_instances(batch, &new, within_ms, looked_at, false)?;
            }
            if late.is_empty() {
                continue;
            }
            let positions = late;
            let ended = self.cancel_descendants(vec![BatchPositions { batch, positions }])?;
            let own = ended.iter().filter(|ended| ended.batch == batch);
            let own = own.flat_map(|ended| &ended.endings);
            count += own.map(|(_, positions)| u64::from(positions.len())).sum::<u64>();
            all.extend(ended);
        }
        self.settle(all)?;
        Ok((count, is_last))
    }

    /// The jobs of a batch that no worker has begun, or only one that died, of a batch of jobs that have memos from the start.
    fn not_begun(&self, batch: BatchId) -> Result<Positions> {
        let slices = self.slices_of(batch)?.into_iter();
        let slices = slices.map(|slice| (slice.family, slice.attempt, slice.positions));
        // Paused instances.
        let blocked = self.blocked_of(batch)?.into_iter();
        let blocked = blocked.map(|blocked| (blocked.family, blocked.attempt, blocked.positions));
        let new = slices.chain(blocked);
        let new = new.filter(|(family, attempt, _)| *family == Some(BEGINNING) && *attempt == 1);
        Ok(new.fold(Positions::new(), |all, (_, _, positions)| all.union(&positions)))
    }

    /// Whether the jobs of a batch clean up after cancelled flows, or are steps of those that do.
    pub fn cleans_up(&self, batch: BatchId) -> Result<bool> {
        let found = self.row(
            "WITH RECURSIVE up (id) AS (SELECT ?1 UNION ALL SELECT c.parent_id FROM up JOIN child_batch c ON c.batch_id = up.id) \
             SELECT 1 FROM up JOIN cleanup u ON u.batch_id = up.id AND u.ends_at IS NOT NULL LIMIT 1",
            [batch.0],
            |_| Ok(()),
        )?;
        Ok(found.is_some())
    }

    /// The cancelled flows of a batch for which a cleanup has begun, or will: a retry would undo what it does.
    pub fn cleaned_up(&self, batch: BatchId) -> Result<Positions> {
        let rows = self.rows(
            "SELECT positions FROM cleanup WHERE batch_id = ?1 AND ends_at IS NULL",
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
