//! Ended jobs.

use std::sync::Arc;

use gristmill_store::history::HistoryRows;
use gristmill_store::{HistoryFilter, HistoryRow};
use rusqlite::{Connection, params};

use crate::columns::{POSITION_BITS, read_state};
use crate::commit::DURATIONS_READ_MAX;
use crate::failure::{Failure, Result};
use crate::query::batches::read_durations;

/// How many jobs ended in each state, and how long they took.
pub(crate) fn history(connection: &Connection, filter: &HistoryFilter) -> Result<Vec<HistoryRow>> {
    let mut history = HistoryRows::new(filter);
    // Reports and their durations are in the order of batches, so all three tables are walked in parallel. SQLite keeps
    // the order of a CROSS JOIN, and reports of other kinds are not read.
    let plain = format!(
        "SELECT l.queue, l.kind, r.finished_at / ?5, r.state, sum(r.count), count(*), d.buckets, sum(d.sum_us), \
         CASE WHEN r.count <= {DURATIONS_READ_MAX} AND d.id IS NULL THEN r.durations END \
         FROM batch b CROSS JOIN lane l ON l.id = b.lane_id \
         CROSS JOIN report r ON r.id >= b.id << {POSITION_BITS} AND r.id < (b.id + 1) << {POSITION_BITS} \
         LEFT JOIN report_durations d ON d.id = r.id \
         WHERE r.parts IS NULL AND r.finished_at >= ?1 AND r.finished_at < ?2 \
         AND (?3 IS NULL OR l.kind = ?3) AND (?4 IS NULL OR l.queue = ?4) GROUP BY 1, 2, 3, 4, 7, 9"
    );
    add(connection, filter, &plain, &mut history)?;
    // Each part of a compacted report.
    let compacted = format!(
        "SELECT l.queue, l.kind, (p.value ->> '$.finished_at') / ?5, r.state, sum(p.value ->> '$.count'), count(*), \
         p.value ->> '$.buckets', sum(p.value ->> '$.sum_us'), p.value ->> '$.short' \
         FROM batch b CROSS JOIN lane l ON l.id = b.lane_id \
         CROSS JOIN report r ON r.id >= b.id << {POSITION_BITS} AND r.id < (b.id + 1) << {POSITION_BITS} \
         CROSS JOIN json_each(r.parts) p \
         WHERE r.parts IS NOT NULL AND r.finished_at >= ?1 AND p.value ->> '$.finished_at' >= ?1 \
         AND p.value ->> '$.finished_at' < ?2 AND (?3 IS NULL OR l.kind = ?3) AND (?4 IS NULL OR l.queue = ?4) \
         GROUP BY 1, 2, 3, 4, 7, 9"
    );
    add(connection, filter, &compacted, &mut history)?;
    Ok(history.into_rows())
}

/// Adds the rows of a statement: a queue, a kind, a period, a state, jobs, reports, and their durations.
fn add(connection: &Connection, filter: &HistoryFilter, sql: &str, history: &mut HistoryRows) -> Result<()> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![
        filter.since.map_or(i64::MIN, |moment| moment.0),
        filter.until.map_or(i64::MAX, |moment| moment.0),
        filter.kind,
        filter.queue,
        filter.by.length_ms(),
    ])?;
    while let Some(row) = rows.next()? {
        let (queue, kind): (Arc<str>, Arc<str>) = (row.get(0)?, row.get(1)?);
        let state = read_state(row, 3)?;
        let entry = history.row(row.get(2)?, &queue, &kind)?;
        entry.add(state, row.get::<_, i64>(4)?.unsigned_abs());
        for duration_us in read_durations(row, 8)? {
            let reports = row.get::<_, i64>(5)?.unsigned_abs();
            entry.durations.record_times(duration_us, reports);
        }
        if let Some(buckets) = row.get_ref(6)?.as_str_or_null().map_err(rusqlite::Error::from)? {
            let reports = row.get::<_, i64>(5)?.unsigned_abs();
            let sum_us = row.get::<_, i64>(7)?.unsigned_abs();
            let added = entry.durations.add_buckets(buckets, reports, sum_us);
            added.ok_or_else(|| Failure::Damaged(format!("`{buckets}` are no durations")))?;
        }
    }
    Ok(())
}
