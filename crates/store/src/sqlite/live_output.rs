//! Who follows what running jobs print, and what they printed within the last moments.

use gristmill_model::limits::{FOLLOWED_FOR_MS, LIVE_OUTPUT_KEPT_MS, LIVE_OUTPUT_ROWS_MAX};
use gristmill_model::{BatchId, Followed, JobId, KeptOutput, Printed, Timestamp};
use rusqlite::{Connection, params};

use super::failure::Result;
use super::transaction::Transaction;
use crate::live_output::{OutputPage, all_followed};

impl Transaction<'_> {
    /// Has output kept for a follower.
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

    /// What is followed.
    pub fn followed(&self) -> Result<Vec<Followed>> {
        let packed: Vec<String> = self.rows(
            "SELECT followed FROM following WHERE until > ?1 ORDER BY id",
            [self.now.0],
            |row| row.get(0),
        )?;
        Ok(all_followed(packed.iter().map(String::as_str))?)
    }

    pub fn put_output(&self, printed: &[Printed]) -> Result<()> {
        self.forget_output()?;
        if self.followed()?.is_empty() {
            return Ok(());
        }
        for piece in printed {
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
        Ok(())
    }

    /// Deletes output that is old, too much, or followed by nobody.
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

/// Pieces after a place.
pub(super) fn live_output(connection: &Connection, followed: &[Followed], after: i64) -> Result<OutputPage> {
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
