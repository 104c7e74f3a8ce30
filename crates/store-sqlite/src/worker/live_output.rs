//! Followers of live output, and the latest output of running jobs.

use gristmill_model::limits::{FOLLOWED_FOR_MS, LIVE_OUTPUT_KEPT_MS, LIVE_OUTPUT_ROWS_MAX};
use gristmill_model::{BatchId, Followed, JobId, KeptOutput, Printed, Timestamp, WorkerId};
use gristmill_store::live_output::{HeldJobs, OutputPage, all_followed, batches_of, only_held};
use rusqlite::{Connection, params};

use crate::columns::read_positions;
use crate::failure::Result;
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Begins to keep output for a follower.
    pub fn follow(&self, follower: &str, packed: &str) -> Result<()> {
        self.execute(
            "INSERT INTO following (id, until, followed) VALUES (?1, ?2, ?3) \
             ON CONFLICT (id) DO UPDATE SET until = excluded.until, followed = excluded.followed",
            params![follower, self.now.0.saturating_add(FOLLOWED_FOR_MS), packed],
        )?;
        Ok(())
    }

    pub fn unfollow(&self, follower: &str) -> Result<()> {
        self.execute("DELETE FROM following WHERE id = ?1", [follower])?;
        self.forget_output()
    }

    /// The followed jobs.
    pub fn followed(&self) -> Result<Vec<Followed>> {
        let packed: Vec<String> = self.rows(
            "SELECT followed FROM following WHERE until > ?1 ORDER BY id",
            [self.now.0],
            |row| row.get(0),
        )?;
        Ok(all_followed(packed.iter().map(String::as_str))?)
    }

    /// Keeps output of jobs that a worker holds, and returns the jobs that it does not hold.
    pub fn put_output(&self, worker: WorkerId, printed: &[Printed]) -> Result<Vec<JobId>> {
        self.forget_output()?;
        let held = self.held_of_printed(worker, printed)?;
        let (kept, refused) = only_held(&held, printed);
        if self.followed()?.is_empty() {
            return Ok(refused);
        }
        for piece in kept {
            self.execute(
                "INSERT INTO live_output (at, batch_id, position, kind, attempt, start, text) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    self.now.0,
                    piece.job.batch.0,
                    piece.job.position,
                    &*piece.kind,
                    piece.attempt,
                    i64::try_from(piece.offset).unwrap_or(i64::MAX),
                    piece.text
                ],
            )?;
        }
        Ok(refused)
    }

    /// The jobs that a worker holds of the batches in the output.
    fn held_of_printed(&self, worker: WorkerId, printed: &[Printed]) -> Result<Vec<HeldJobs>> {
        let batches = serde_json::to_string(&batches_of(printed))?;
        let mut statement = self.connection.prepare_cached(
            "SELECT h.batch_id, l.kind, h.positions FROM held h JOIN batch b ON b.id = h.batch_id \
             JOIN lane l ON l.id = b.lane_id \
             WHERE h.worker_id = ?1 AND h.batch_id IN (SELECT value FROM json_each(?2))",
        )?;
        let mut rows = statement.query(params![worker.0, batches])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            all.push(HeldJobs {
                batch: BatchId(row.get(0)?),
                kind: row.get(1)?,
                positions: read_positions(row, 2)?,
            });
        }
        Ok(all)
    }

    /// Deletes output that is old, too much, or without followers.
    pub fn forget_output(&self) -> Result<()> {
        self.execute("DELETE FROM following WHERE until <= ?1", [self.now.0])?;
        self.execute(
            "DELETE FROM live_output WHERE at < ?1 OR NOT EXISTS (SELECT 1 FROM following) \
             OR id <= (SELECT max(id) FROM live_output) - ?2",
            params![
                self.now.0.saturating_sub(LIVE_OUTPUT_KEPT_MS),
                LIVE_OUTPUT_ROWS_MAX
            ],
        )?;
        Ok(())
    }
}

/// Pieces of output after a place.
pub(crate) fn live_output(connection: &Connection, followed: &[Followed], after: i64) -> Result<OutputPage> {
    let mut page = OutputPage::after(after);
    let mut statement = connection.prepare_cached(
        "SELECT id, at, batch_id, position, kind, attempt, start, text FROM live_output WHERE id > ?1 ORDER BY id LIMIT ?2",
    )?;
    let mut rows = statement.query(params![after, LIVE_OUTPUT_ROWS_MAX])?;
    while let Some(row) = rows.next()? {
        let piece = KeptOutput {
            id: row.get(0)?,
            at: Timestamp(row.get(1)?),
            printed: Printed {
                job: JobId {
                    batch: BatchId(row.get(2)?),
                    position: row.get(3)?,
                },
                kind: row.get(4)?,
                attempt: row.get(5)?,
                offset: row.get::<_, i64>(6)?.unsigned_abs(),
                text: row.get(7)?,
            },
        };
        page.add(piece, followed);
    }
    Ok(page)
}
