//! The totals of lanes, which housekeeping keeps (`commit/totals.rs`).

use rusqlite::Connection;

use crate::failure::Result;

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
