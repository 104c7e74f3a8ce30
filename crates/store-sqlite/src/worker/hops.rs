//! Batch statistics, totalled for all workers.

use gristmill_batching::{BatchStats, HopStats};
use rusqlite::{Connection, params};

use crate::failure::Result;
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Adds the counts of a caller since its last call, and those of the writer.
    pub fn add_hops(&mut self, hops: &BatchStats) -> Result<()> {
        let mut hops = hops.clone();
        hops.merge(&std::mem::take(&mut self.memory.hops));
        if hops.hops.is_empty() {
            return Ok(());
        }
        let mut total = hops_of(self.connection)?;
        total.merge(&hops);
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        for hop in hops.hops.keys() {
            let stats = &total.hops[hop];
            self.execute(
                "INSERT OR REPLACE INTO hop_stat (hop, batches, items, items_max, end_reasons) \
                 VALUES (?1, ?2, ?3, ?4, ?5)",
                params![
                    hop,
                    number(stats.batches),
                    number(stats.items),
                    number(stats.items_max),
                    serde_json::to_string(&stats.end_reasons)?
                ],
            )?;
        }
        Ok(())
    }
}

/// The totals since the store was made.
pub(crate) fn hops_of(connection: &Connection) -> Result<BatchStats> {
    let mut statement =
        connection.prepare_cached("SELECT hop, batches, items, items_max, end_reasons FROM hop_stat")?;
    let mut rows = statement.query([])?;
    let mut total = BatchStats::default();
    while let Some(row) = rows.next()? {
        let count = |column: usize| -> Result<u64> { Ok(row.get::<_, i64>(column)?.unsigned_abs()) };
        let stats = HopStats {
            batches: count(1)?,
            items: count(2)?,
            items_max: count(3)?,
            end_reasons: serde_json::from_str(row.get_ref(4)?.as_str().map_err(rusqlite::Error::from)?)?,
        };
        total.hops.insert(row.get(0)?, stats);
    }
    Ok(total)
}
