//! Totals.

use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_model::{BatchId, JobState, Timestamp};
use gristmill_store::rules::piece::count;
use gristmill_store::{JobCounts, JobFilter, KindCounts, StoreStats};
use rusqlite::{Connection, params_from_iter};

use crate::columns::{POSITION_BITS, read_state};
use crate::failure::Result;
use crate::query::filter::BatchConditions;
use crate::query::job::matching;
use crate::query::piece::pieces;
use crate::query::tag::narrowed;
use crate::worker::hops::hops_of;

/// By queue and kind.
type CountsByLane = BTreeMap<(Arc<str>, Arc<str>), JobCounts>;

/// How many jobs match, by state.
pub(crate) fn counts(connection: &Connection, now: Timestamp, filter: &JobFilter) -> Result<JobCounts> {
    let mut total = JobCounts::default();
    if let Some(narrowed) = narrowed(connection, filter)? {
        for batch in matching(connection, filter, Some(&narrowed), BatchId(0), u32::MAX)? {
            let pieces = pieces(connection, now, batch)?;
            count(&pieces, &filter.states, &narrowed[&batch], &mut total);
        }
        return Ok(total);
    }
    for mut counts in counts_by_lane(connection, now, filter)?.into_values() {
        for state in JobState::ALL {
            *total.get_mut(state) += *counts.get_mut(state);
        }
    }
    Ok(total)
}

/// A batch's slices are those that lie where it says, and those that strayed.
const SLICES_OF_BATCHES: [&str; 2] = [
    "batch b JOIN lane l ON l.id = b.lane_id CROSS JOIN slice s ON s.lane_id = b.lane_id AND s.rank = -b.priority \
     AND s.run_at = b.run_at AND s.batch_id = b.id",
    "batch b JOIN lane l ON l.id = b.lane_id CROSS JOIN slice s ON s.batch_id = b.id AND s.strayed = 1",
];

fn counts_by_lane(connection: &Connection, now: Timestamp, filter: &JobFilter) -> Result<CountsByLane> {
    let conditions = BatchConditions::of(filter);
    let is_narrow = filter.names_batches();
    // Where runs, batches or times are named, its batches lead to their rows; otherwise the rows lead to their
    // batches. The order of a CROSS JOIN is kept.
    let reports = if is_narrow {
        format!(
            "batch b CROSS JOIN report r ON r.id >= b.id << {POSITION_BITS} AND r.id < (b.id + 1) << {POSITION_BITS}"
        )
    } else {
        format!("report r CROSS JOIN batch b ON b.id = r.id >> {POSITION_BITS}")
    };
    let mut queries = vec![
        format!("SELECT l.queue, l.kind, r.state AS state, sum(r.count) FROM {reports} JOIN lane l ON l.id = b.lane_id"),
        "SELECT l.queue, l.kind, 'running' AS state, sum(h.count) FROM held h JOIN batch b ON b.id = h.batch_id \
         JOIN lane l ON l.id = b.lane_id"
            .to_owned(),
        "SELECT l.queue, l.kind, iif(w.pauses IS NULL, 'blocked', 'paused') AS state, sum(w.count) \
         FROM blocked w JOIN batch b ON b.id = w.batch_id JOIN lane l ON l.id = b.lane_id"
            .to_owned(),
    ];
    let slices: &[&str] = if is_narrow {
        &SLICES_OF_BATCHES
    } else {
        &["slice s JOIN lane l ON l.id = s.lane_id"]
    };
    queries.extend(slices.iter().map(|slices| {
        let state = format!("iif(s.run_at <= {}, 'waiting', 'scheduled')", now.0);
        format!("SELECT l.queue, l.kind, {state} AS state, sum(s.count) FROM {slices}")
    }));
    let mut by_lane = CountsByLane::new();
    for query in queries {
        let sql = format!("{query} WHERE {} GROUP BY l.queue, l.kind, state", conditions.sql);
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query(params_from_iter(&conditions.params))?;
        while let Some(row) = rows.next()? {
            let state = read_state(row, 2)?;
            if filter.states.is_empty() || filter.states.contains(&state) {
                let counts = by_lane.entry((row.get(0)?, row.get(1)?)).or_default();
                *counts.get_mut(state) += row.get::<_, i64>(3)?.unsigned_abs();
            }
        }
    }
    Ok(by_lane)
}

/// Totals of the store.
pub(crate) fn stats(connection: &Connection, now: Timestamp) -> Result<StoreStats> {
    let kinds = counts_by_lane(connection, now, &JobFilter::default())?;
    let number = |sql: &str| -> Result<u64> {
        let number: i64 = connection.query_row(sql, [], |row| row.get(0))?;
        Ok(number.unsigned_abs())
    };
    Ok(StoreStats {
        kinds: kinds
            .into_iter()
            .map(|((queue, kind), counts)| KindCounts { kind, queue, counts })
            .collect(),
        hops: hops_of(connection)?,
        workers: number("SELECT count(*) FROM worker")?,
        batches: number("SELECT count(*) FROM batch")?,
        slices: number("SELECT count(*) FROM slice")?,
        leases: number("SELECT count(DISTINCT lease_id) FROM held")?,
        reports: number("SELECT count(*) FROM report")?,
        failures: number("SELECT count(*) FROM failure")?,
        size_bytes: number("PRAGMA page_count")? * number("PRAGMA page_size")?,
        tables: Vec::new(),
    })
}
