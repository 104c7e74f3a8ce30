//! Ended jobs.

use std::collections::HashMap;
use std::sync::Arc;

use gristmill_model::JobState;
use gristmill_store::history::HistoryRows;
use gristmill_store::{HistoryFilter, HistoryRow};
use rusqlite::{CachedStatement, Connection, params};

use crate::columns::{POSITION_BITS, read_state};
use crate::commit::DURATIONS_READ_MAX;
use crate::failure::{Failure, Result};
use crate::query::batches::read_durations;
use crate::query::gaps::{BATCHES_IN_GAPS, Gaps};

/// The reports in gaps, with their lanes. SQLite keeps the order of a CROSS JOIN, so reports of other kinds are not read.
const REPORTS: &str = "CROSS JOIN lane l ON l.id = b.lane_id AND (?5 IS NULL OR l.kind = ?5) AND (?6 IS NULL OR l.queue = ?6) \
     CROSS JOIN report r ON r.id >= b.id << 14 AND r.id < (b.id + 1) << 14";
const _: () = assert!(POSITION_BITS == 14);

/// How many jobs ended in each state, and how long they took.
pub(crate) fn history(connection: &Connection, filter: &HistoryFilter) -> Result<Vec<HistoryRow>> {
    let mut history = HistoryRows::new(filter);
    let lanes = lanes(connection, filter)?;
    let mut others = Others::prepare(connection, filter)?;
    let since = filter.since.map_or(i64::MIN, |moment| moment.0);
    let until = filter.until.map_or(i64::MAX, |moment| moment.0);
    let mut statement = connection.prepare_cached(
        "SELECT id, count, batch_count, finished_at, lane_id, sum_us, buckets FROM report_durations ORDER BY id",
    )?;
    let mut rows = statement.query([])?;
    let mut gaps = Gaps::default();
    while let Some(row) = rows.next()? {
        let jobs: u32 = row.get(1)?;
        if let Some(ranges) = gaps.pass(row.get(0)?, jobs, row.get(2)?) {
            others.add(&ranges, &mut history)?;
        }
        let finished_at: i64 = row.get(3)?;
        // Others add the parts of compacted reports.
        if jobs == 0 || finished_at < since || finished_at >= until {
            continue;
        }
        let Some((queue, kind)) = lanes.get(&row.get(4)?) else {
            continue;
        };
        let period = filter.by.length_ms().map(|length_ms| finished_at / length_ms);
        let entry = history.row(period, queue, kind)?;
        entry.add(JobState::Completed, jobs.into());
        let buckets = row.get_ref(6)?.as_str().map_err(rusqlite::Error::from)?;
        let added = entry
            .durations
            .add_buckets(buckets, 1, row.get::<_, i64>(5)?.unsigned_abs());
        added.ok_or_else(|| not_durations(buckets))?;
    }
    others.add(&gaps.end().0, &mut history)?;
    Ok(history.into_rows())
}

/// Queues and kinds of lanes by the lanes' ids.
type Lanes = HashMap<i64, (Arc<str>, Arc<str>)>;

/// The queue and kind of each lane that the filter allows.
fn lanes(connection: &Connection, filter: &HistoryFilter) -> Result<Lanes> {
    let mut statement = connection.prepare_cached(
        "SELECT id, queue, kind FROM lane WHERE (?1 IS NULL OR kind = ?1) AND (?2 IS NULL OR queue = ?2)",
    )?;
    let rows = statement.query_map(params![filter.kind, filter.queue], |row| {
        Ok((row.get(0)?, (row.get(1)?, row.get(2)?)))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Reports without a row of their durations: of few jobs, unsuccessful or compacted.
struct Others<'c> {
    filter: &'c HistoryFilter,
    /// The statements that read whole reports, and the parts of compacted ones.
    statements: [CachedStatement<'c>; 2],
}

impl<'c> Others<'c> {
    fn prepare(connection: &'c Connection, filter: &'c HistoryFilter) -> Result<Self> {
        let whole = format!(
            "SELECT l.queue, l.kind, r.finished_at / ?4, r.state, sum(r.count), count(*), NULL AS buckets, NULL AS sum_us, \
             CASE WHEN r.count <= {DURATIONS_READ_MAX} THEN r.durations END AS short \
             FROM {BATCHES_IN_GAPS} {REPORTS} LEFT JOIN report_durations d ON d.id = r.id \
             WHERE r.parts IS NULL AND d.id IS NULL AND r.finished_at >= ?2 AND r.finished_at < ?3 GROUP BY 1, 2, 3, 4, 9"
        );
        let parts = format!(
            "SELECT l.queue, l.kind, (p.value ->> '$.finished_at') / ?4, r.state, sum(p.value ->> '$.count'), count(*), \
             p.value ->> '$.buckets' AS buckets, sum(p.value ->> '$.sum_us'), p.value ->> '$.short' AS short \
             FROM {BATCHES_IN_GAPS} {REPORTS} CROSS JOIN json_each(r.parts) p \
             WHERE r.parts IS NOT NULL AND r.finished_at >= ?2 AND p.value ->> '$.finished_at' >= ?2 \
             AND p.value ->> '$.finished_at' < ?3 GROUP BY 1, 2, 3, 4, 7, 9"
        );
        Ok(Others {
            filter,
            statements: [
                connection.prepare_cached(&whole)?,
                connection.prepare_cached(&parts)?,
            ],
        })
    }

    /// Adds the rows of both statements for the batches in these ranges: a queue, a kind, a period, a state, jobs, reports, and
    /// their durations.
    fn add(&mut self, ranges: &str, history: &mut HistoryRows) -> Result<()> {
        for statement in &mut self.statements {
            let mut rows = statement.query(params![
                ranges,
                self.filter.since.map_or(i64::MIN, |moment| moment.0),
                self.filter.until.map_or(i64::MAX, |moment| moment.0),
                self.filter.by.length_ms(),
                self.filter.kind,
                self.filter.queue,
            ])?;
            while let Some(row) = rows.next()? {
                let (queue, kind): (Arc<str>, Arc<str>) = (row.get(0)?, row.get(1)?);
                let state = read_state(row, 3)?;
                let entry = history.row(row.get(2)?, &queue, &kind)?;
                entry.add(state, row.get::<_, i64>(4)?.unsigned_abs());
                let reports = row.get::<_, i64>(5)?.unsigned_abs();
                for duration_us in read_durations(row, 8)? {
                    entry.durations.record_times(duration_us, reports);
                }
                if let Some(buckets) = row.get_ref(6)?.as_str_or_null().map_err(rusqlite::Error::from)? {
                    let sum_us = row.get::<_, i64>(7)?.unsigned_abs();
                    let added = entry.durations.add_buckets(buckets, reports, sum_us);
                    added.ok_or_else(|| not_durations(buckets))?;
                }
            }
        }
        Ok(())
    }
}

fn not_durations(buckets: &str) -> Failure {
    Failure::Damaged(format!("`{buckets}` are no durations"))
}
