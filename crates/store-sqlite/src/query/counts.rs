//! Totals.
//!
//! Every job of a batch is in a slice, in a lease, in a report or in `blocked`. So the number of completed jobs is that
//! of the batches minus all others. The reports of successes, which are by far the most pages, are not read, and of the batches
//! only the latest, which are not in the totals of their lanes yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_model::{BatchId, JobState, Timestamp};
use gristmill_store::rules::lanes::group;
use gristmill_store::rules::piece::count;
use gristmill_store::{BatchSummary, JobCounts, JobFilter, KindCounts, StoreStats};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};

use crate::columns::{POSITION_BITS, read_state};
use crate::failure::{Failure, Result};
use crate::query::filter::BatchConditions;
use crate::query::gaps::{Gaps, REPORTS_IN_GAPS};
use crate::query::job::matching;
use crate::query::piece::pieces;
use crate::query::tag::narrowed;
use crate::query::totals::first_not_totalled;
use crate::worker::hops::hops_of;

/// Counts by the number of a lane.
type CountsByLane = BTreeMap<i64, JobCounts>;

/// How many matching jobs there are, by state.
pub(crate) fn counts(connection: &Connection, now: Timestamp, filter: &JobFilter) -> Result<JobCounts> {
    let mut total = JobCounts::default();
    if let Some(narrowed) = narrowed(connection, filter)? {
        for batch in matching(connection, filter, Some(&narrowed), BatchId(0), u32::MAX)? {
            let pieces = pieces(connection, now, batch)?;
            count(&pieces, &filter.states, &narrowed[&batch], &mut total);
        }
        return Ok(total);
    }
    for mut counts in counts_by_lane(connection, now, filter)?.0.into_values() {
        for state in JobState::ALL {
            if filter.states.is_empty() || filter.states.contains(&state) {
                *total.get_mut(state) += *counts.get_mut(state);
            }
        }
    }
    Ok(total)
}

/// The slices of a batch lie in its lane and rank, or have strayed to others.
const SLICES_OF_BATCHES: [&str; 2] = [
    "batch b JOIN lane l ON l.id = b.lane_id CROSS JOIN slice s ON s.lane_id = b.lane_id AND s.rank = -b.priority \
     AND s.run_at = b.run_at AND s.batch_id = b.id",
    "batch b JOIN lane l ON l.id = b.lane_id CROSS JOIN slice s ON s.batch_id = b.id AND s.strayed = 1",
];

/// The jobs of matching batches, in all states, and the number of these batches; without completed jobs, and 0, if the filter
/// does not ask for them.
fn counts_by_lane(
    connection: &Connection,
    now: Timestamp,
    filter: &JobFilter,
) -> Result<(CountsByLane, u64)> {
    let conditions = BatchConditions::of(filter);
    // If the filter names runs, batches or times, its batches lead to their rows; otherwise the rows lead to their
    // batches. SQLite keeps the order of a CROSS JOIN, and the second condition on the state lets it use the partial
    // index.
    let (unsuccessful, slices): (String, &[&str]) = if filter.names_batches() {
        let reports = format!(
            "batch b CROSS JOIN report r INDEXED BY report_unsuccessful ON r.state IN ('dead', 'cancelled', 'expired') \
             AND r.state <> 'completed' AND r.id >= b.id << {POSITION_BITS} AND r.id < (b.id + 1) << {POSITION_BITS} \
             JOIN lane l ON l.id = b.lane_id"
        );
        (reports, &SLICES_OF_BATCHES)
    } else {
        let reports = format!(
            "report r INDEXED BY report_unsuccessful CROSS JOIN batch b ON b.id = r.id >> {POSITION_BITS} \
             AND r.state <> 'completed' JOIN lane l ON l.id = b.lane_id"
        );
        match filter.no_steps {
            true => (
                reports,
                &["slice s JOIN lane l ON l.id = s.lane_id JOIN batch b ON b.id = s.batch_id"],
            ),
            false => (reports, &["slice s JOIN lane l ON l.id = s.lane_id"]),
        }
    };
    let mut by_lane = CountsByLane::new();
    let mut add = |select: &str, from: &str, params: &[Value]| -> Result<()> {
        let sql = format!("SELECT l.id, {select} FROM {from} WHERE {}", conditions.sql);
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(params))?;
        while let Some(row) = rows.next()? {
            let counts = by_lane.entry(row.get(0)?).or_default();
            *counts.get_mut(read_state(row, 1)?) += row.get::<_, i64>(2)?.unsigned_abs();
        }
        Ok(())
    };
    add("r.state, r.count", &unsuccessful, &conditions.params)?;
    add(
        "'running', h.count",
        "held h JOIN batch b ON b.id = h.batch_id JOIN lane l ON l.id = b.lane_id",
        &conditions.params,
    )?;
    add(
        "iif(w.pauses IS NULL, 'blocked', 'paused'), w.count",
        "blocked w JOIN batch b ON b.id = w.batch_id JOIN lane l ON l.id = b.lane_id",
        &conditions.params,
    )?;
    let now_and_conditions = [&[Value::from(now.0)], conditions.params.as_slice()].concat();
    for slices in slices {
        let state = "iif(s.run_at <= ?, 'waiting', 'scheduled'), s.count";
        add(state, slices, &now_and_conditions)?;
    }
    let batches = if filter.states.is_empty() || filter.states.contains(&JobState::Completed) {
        add_completed(connection, filter, &conditions, &mut by_lane)?
    } else {
        0
    };
    Ok((by_lane, batches))
}

/// Adds the completed jobs of each lane, once all others are known. Returns the number of matching batches.
fn add_completed(
    connection: &Connection,
    filter: &JobFilter,
    conditions: &BatchConditions,
    by_lane: &mut CountsByLane,
) -> Result<u64> {
    let mut jobs_by_lane: BTreeMap<i64, u64> = BTreeMap::new();
    let mut batches = 0;
    let mut add = |sql: &str, params: &[Value]| -> Result<()> {
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query(params_from_iter(params))?;
        while let Some(row) = rows.next()? {
            *jobs_by_lane.entry(row.get(0)?).or_default() += row.get::<_, i64>(1)?.unsigned_abs();
            batches += row.get::<_, i64>(2)?.unsigned_abs();
        }
        Ok(())
    };
    // The batches that are in the totals of their lanes are not read, unless the filter tells batches of a lane apart.
    let mut first = i64::MIN;
    if !filter.names_batches() && !filter.no_steps {
        first = first_not_totalled(connection)?;
        let sql = format!(
            "SELECT t.lane_id, t.jobs, t.batches FROM lane_total t LEFT JOIN lane l ON l.id = t.lane_id WHERE {}",
            conditions.sql
        );
        add(&sql, &conditions.params)?;
    }
    // SQLite leaves out a LEFT JOIN to a lane that no condition names.
    let sql = format!(
        "SELECT b.lane_id, b.count, 1 FROM batch b LEFT JOIN lane l ON l.id = b.lane_id WHERE {} AND b.id >= ?",
        conditions.sql
    );
    add(
        &sql,
        &[conditions.params.as_slice(), &[Value::from(first)]].concat(),
    )?;
    for (lane, jobs) in jobs_by_lane {
        let counts = by_lane.entry(lane).or_default();
        let others = counts.total();
        counts.completed = jobs.checked_sub(others).ok_or_else(|| {
            Failure::Damaged(format!(
                "the batches of lane {lane} have {jobs} jobs, and {others} of them have not completed"
            ))
        })?;
    }
    Ok(batches)
}

/// Summaries of these batches, with the states of their jobs.
pub(crate) fn batch_summaries(
    connection: &Connection,
    now: Timestamp,
    batches: &[BatchId],
) -> Result<Vec<BatchSummary>> {
    let mut statement = connection.prepare_cached(
        "SELECT l.kind, l.queue, l.job_group, b.submitted_at FROM batch b JOIN lane l ON l.id = b.lane_id WHERE b.id = ?1",
    )?;
    let mut found = Vec::with_capacity(batches.len());
    for &batch in batches {
        let row = statement.query_row([batch.0], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        });
        let Some((kind, queue, stored_group, submitted_at)) = row.optional()? else {
            continue;
        };
        let filter = JobFilter {
            batch: Some(batch),
            ..JobFilter::default()
        };
        found.push(BatchSummary {
            batch,
            kind,
            queue,
            group: group(stored_group),
            submitted_at: Timestamp(submitted_at),
            counts: counts(connection, now, &filter)?,
        });
    }
    Ok(found)
}

/// The numbers of jobs by queue, kind and state.
pub(crate) fn kind_counts(
    connection: &Connection,
    now: Timestamp,
    no_steps: bool,
) -> Result<Vec<KindCounts>> {
    Ok(kinds_and_batches(connection, now, no_steps)?.0)
}

/// The numbers of jobs by queue, kind and state, and the number of batches.
fn kinds_and_batches(
    connection: &Connection,
    now: Timestamp,
    no_steps: bool,
) -> Result<(Vec<KindCounts>, u64)> {
    let filter = JobFilter {
        no_steps,
        ..JobFilter::default()
    };
    let (by_lane, batches) = counts_by_lane(connection, now, &filter)?;
    let mut statement = connection.prepare_cached("SELECT id, queue, kind FROM lane ORDER BY queue, kind")?;
    let mut rows = statement.query([])?;
    let mut kinds: Vec<KindCounts> = Vec::new();
    while let Some(row) = rows.next()? {
        let Some(counts) = by_lane.get(&row.get(0)?) else {
            continue;
        };
        let (queue, kind): (Arc<str>, Arc<str>) = (row.get(1)?, row.get(2)?);
        match kinds.last_mut() {
            // The lane of another group.
            Some(last) if last.kind == kind && last.queue == queue => last.counts.add(counts),
            _ => kinds.push(KindCounts {
                kind,
                queue,
                counts: *counts,
            }),
        }
    }
    Ok((kinds, batches))
}

/// The number of reports. Of batches whose reports all have a row with their durations, these rows are counted.
fn reports(connection: &Connection) -> Result<u64> {
    let mut gaps = Gaps::default();
    let mut reports = 0;
    let count = format!("SELECT count(*) FROM {REPORTS_IN_GAPS}");
    let mut count_in = |ranges: &str| -> Result<()> {
        let mut statement = connection.prepare_cached(&count)?;
        reports += statement
            .query_row([ranges], |row| row.get::<_, i64>(0))?
            .unsigned_abs();
        Ok(())
    };
    let mut statement =
        connection.prepare_cached("SELECT id, count, batch_count FROM report_durations ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if let Some(ranges) = gaps.pass(row.get(0)?, row.get(1)?, row.get(2)?) {
            count_in(&ranges)?;
        }
    }
    let (ranges, covering) = gaps.end();
    count_in(&ranges)?;
    Ok(reports + covering)
}

/// The totals of the store.
pub(crate) fn stats(connection: &Connection, now: Timestamp) -> Result<StoreStats> {
    let number = |sql: &str| -> Result<u64> {
        let number: i64 = connection.query_row(sql, [], |row| row.get(0))?;
        Ok(number.unsigned_abs())
    };
    let (kinds, batches) = kinds_and_batches(connection, now, false)?;
    Ok(StoreStats {
        kinds,
        hops: hops_of(connection)?,
        workers: number("SELECT count(*) FROM worker")?,
        batches,
        slices: number("SELECT count(*) FROM slice")?,
        leases: number("SELECT count(DISTINCT lease_id) FROM held")?,
        reports: reports(connection)?,
        failures: number("SELECT count(*) FROM failure")?,
        size_bytes: number("PRAGMA page_count")? * number("PRAGMA page_size")?,
        tables: Vec::new(),
    })
}
