//! The totals of lanes, which housekeeping keeps (`commit/totals.rs`).

use rusqlite::Connection;

use crate::failure::Result;

/// How to have all totals counted anew. Housekeeping counts them.
pub(crate) const RECOUNT: &str = "Have the totals counted anew: run the statements \
     `DELETE FROM lane_total; UPDATE sequence SET next_value = 0 WHERE name = 'totalled'` in one transaction, by `sqlite3` for example";

/// The lowest id of a batch that is not in the totals.
pub(crate) fn first_not_totalled(connection: &Connection) -> Result<i64> {
    let mut statement =
        connection.prepare_cached("SELECT next_value FROM sequence WHERE name = 'totalled'")?;
    Ok(statement.query_row([], |row| row.get(0))?)
}

/// Lanes whose totals are not those of their batches.
pub(crate) fn wrong_totals(connection: &Connection) -> Result<Vec<i64>> {
    let mut statement = connection.prepare_cached(
        "SELECT lane_id FROM (SELECT lane_id, batches, jobs FROM lane_total UNION ALL \
         SELECT lane_id, -count(*), -sum(count) FROM batch \
         WHERE id < (SELECT next_value FROM sequence WHERE name = 'totalled') GROUP BY lane_id) \
         GROUP BY lane_id HAVING sum(batches) <> 0 OR sum(jobs) <> 0",
    )?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
