//! The numbers of batches and jobs of each lane, so that a count of completed jobs does not read every batch.
//!
//! Batches never change and get ascending ids under the write lock. So housekeeping adds them a portion at a time, and the
//! totals are those of all batches below one id. Queries read the batches from there on.

use gristmill_model::BatchId;
use gristmill_store::StoreError;
use rusqlite::{Connection, params};

use crate::SqliteStore;
use crate::failure::Result;
use crate::limits::TOTALLED_BATCHES_PER_TRANSACTION;
use crate::query::totals::first_not_totalled;
use crate::transaction::Transaction;
use crate::writer::operation::Durability;

/// The next portion of batches: its first id, the id after it, and whether there are more; `None` if there are no such batches.
fn portion(connection: &Connection) -> Result<Option<(i64, i64, bool)>> {
    let mut statement = connection.prepare_cached(
        "SELECT max(id) + 1, count(*) FROM (SELECT id FROM batch WHERE id >= ?1 ORDER BY id LIMIT ?2)",
    )?;
    let first = first_not_totalled(connection)?;
    let row = statement.query_row([first, TOTALLED_BATCHES_PER_TRANSACTION.into()], |row| {
        Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, u32>(1)?))
    });
    let (end, batches) = row?;
    Ok(end.map(|end| (first, end, batches == TOTALLED_BATCHES_PER_TRANSACTION)))
}

impl Transaction<'_> {
    /// Adds the next portion of batches to the totals. Returns whether there are more.
    fn total(&mut self) -> Result<bool> {
        let Some((first, end, has_more)) = portion(self.connection)? else {
            return Ok(false);
        };
        self.execute(
            "INSERT INTO lane_total (lane_id, batches, jobs) \
             SELECT lane_id, count(*), sum(count) FROM batch WHERE id >= ?1 AND id < ?2 GROUP BY lane_id \
             ON CONFLICT (lane_id) DO UPDATE SET batches = batches + excluded.batches, jobs = jobs + excluded.jobs",
            [first, end],
        )?;
        self.execute(
            "UPDATE sequence SET next_value = ?1 WHERE name = 'totalled'",
            [end],
        )?;
        Ok(has_more)
    }

    /// Subtracts a batch that is about to be deleted.
    pub fn subtract_from_totals(&self, batch: BatchId) -> Result<()> {
        let found = self.row(
            "SELECT lane_id, count FROM batch WHERE id = ?1 AND id < (SELECT next_value FROM sequence WHERE name = 'totalled')",
            [batch.0],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
        )?;
        let Some((lane, jobs)) = found else {
            return Ok(());
        };
        let changed = self.execute(
            "UPDATE lane_total SET batches = batches - 1, jobs = jobs - ?2 WHERE lane_id = ?1 AND batches >= 1 AND jobs >= ?2",
            params![lane, jobs],
        )?;
        if changed != 1 {
            tracing::warn!(lane, %batch, "the totals of the lane are damaged; they are counted anew");
            self.execute("DELETE FROM lane_total", [])?;
            self.execute("UPDATE sequence SET next_value = 0 WHERE name = 'totalled'", [])?;
        }
        Ok(())
    }
}

impl SqliteStore {
    /// Adds new batches to the totals, in portions.
    pub(crate) async fn total_in_portions(&self) -> std::result::Result<(), StoreError> {
        // A transaction that changes nothing would still take the write lock.
        let mut has_more = self.read(portion).await?.is_some();
        while has_more {
            has_more = self
                .write_with(Durability::Needless, 0, |transaction| transaction.total())
                .await?;
        }
        Ok(())
    }
}
