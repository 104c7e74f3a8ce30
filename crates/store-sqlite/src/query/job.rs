//! Single jobs, unpacked from their batches.

use std::collections::{BTreeMap, HashMap};

use gristmill_model::limits::ESTIMATE_BATCHES_MAX;
use gristmill_model::{BatchId, JobId, JobState, PackedArray, Positions, ShownProgress, Timestamp};
use gristmill_store::query::Narrowed;
use gristmill_store::rules::lanes::group;
use gristmill_store::rules::pack::indexes_of;
use gristmill_store::rules::piece::{Common, Piece, count, in_states, pauses_of, unpack};
use gristmill_store::rules::progress::Told;
use gristmill_store::{BatchPositions, JobCounts, JobDetails, JobFilter, JobRow};
use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};
use serde_json::value::RawValue;

use crate::claim::control::controls;
use crate::columns::POSITION_BITS;
use crate::failure::{Failure, Result};
use crate::graph::family::{children, parent_of};
use crate::labels::keys_of;
use crate::query::batches::{durations_of, failures, report_ids};
use crate::query::filter::BatchConditions;
use crate::query::piece::pieces;
use crate::query::prerequisite::{cause_of, prerequisites_of};
use crate::query::tag::{narrowed, tags_of};
use crate::submit::debounce::debounced_payloads;
use crate::sums::{CheckedReport, REPORT_COLUMNS, batch_columns, checked_payloads, damaged, in_batch};
use crate::transaction::read_options;

const COMMON_COLUMNS: &str = "b.id, l.kind, l.queue, b.priority, b.submitted_at, l.job_group";

/// Reads a row that begins with [`COMMON_COLUMNS`].
fn read_common(row: &rusqlite::Row<'_>) -> Result<Common> {
    Ok(Common {
        batch: BatchId(row.get(0)?),
        kind: row.get(1)?,
        queue: row.get(2)?,
        priority: row.get(3)?,
        submitted_at: Timestamp(row.get(4)?),
        group: group(row.get(5)?),
    })
}

/// One job with all known details.
pub(crate) fn job(connection: &Connection, now: Timestamp, id: JobId) -> Result<Option<JobDetails>> {
    let sql = format!(
        "SELECT {COMMON_COLUMNS}, b.options, {} FROM batch b JOIN lane l ON l.id = b.lane_id WHERE b.id = ?1",
        batch_columns!()
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([id.batch.0])?;
    let Some(row) = in_batch(id.batch, "batch", rows.next().map_err(Failure::from))? else {
        return Ok(None);
    };
    let payloads = checked_payloads(id.batch, row, 7)?;
    let batch = in_batch(id.batch, "batch", read_common(row))?;
    let options = batch.options(in_batch(id.batch, "batch", read_options(row, 6))?);
    let Some(payload) = payloads.get(id.position) else {
        return Ok(None);
    };
    let mut payload = payload.to_owned();
    if let Some(debounce) = options.unique.and_then(|unique| unique.debounce) {
        let position = Positions::from(id.position..id.position + 1);
        let one = payloads.select(&position);
        let all = debounced_payloads(connection, id.batch, &position, one, debounce)?;
        payload = all.get(0).unwrap_or_default().to_owned();
    }
    let pieces = pieces(connection, now, id.batch)?;
    let piece = pieces
        .iter()
        .find(|piece| piece.positions.contains(id.position))
        .ok_or_else(|| {
            damaged(
                id.batch,
                "batch",
                format!("job {id} is in no slice, lease or report"),
            )
        })?;
    let failures = failures(connection, id.batch, Some(id.position))?;
    let last = failures.last();
    let ended = match piece.report {
        Some(report) => ended(connection, report, &piece.positions, id.position)?,
        None => Ended::default(),
    };
    let key = match options.unique {
        Some(_) => key_of(connection, id)?,
        None => None,
    };
    let progress = match piece.claimed_at {
        Some(claimed_at) => match told(connection, id.batch)?.of(id, piece, now) {
            Some(told) => Some(told),
            None => mean_duration_us(connection, id.batch)?
                .map(|mean_us| ShownProgress::estimated(claimed_at, mean_us, now)),
        },
        None => None,
    };
    let error = last.map(|last| last.error.message.clone());
    Ok(Some(JobDetails {
        row: batch.job(id.position, piece, error, progress),
        payload: RawValue::from_string(payload)?,
        value: ended.value,
        options,
        key,
        pauses: pauses_of(piece, &batch, &controls(connection, now)?, now),
        tags: tags_of(connection, id.batch, id.position)?,
        prerequisites: match piece.state {
            JobState::Blocked => prerequisites_of(connection, now, id)?,
            _ => Vec::new(),
        },
        cause: match (piece.state, piece.report) {
            (JobState::Cancelled, Some(report)) => cause_of(connection, report)?,
            _ => None,
        },
        parent: parent_of(connection, id)?,
        children: children_of(connection, now, id)?,
        duration_us: ended.duration_us.or(last.map(|last| last.duration_us)),
        worker: piece.worker.clone(),
        log: ended.log,
        failures,
    }))
}

/// The progress that workers sent for the running jobs of a batch.
fn told(connection: &Connection, batch: BatchId) -> Result<Told> {
    let mut statement = connection.prepare_cached(
        "SELECT at, jobs FROM progress WHERE worker_id IN (SELECT worker_id FROM held WHERE batch_id = ?1)",
    )?;
    let mut rows = statement.query([batch.0])?;
    let mut told = Told::default();
    while let Some(row) = rows.next()? {
        let packed = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        told.add(Timestamp(row.get(0)?), packed, &[batch])?;
    }
    Ok(told)
}

/// The recent mean duration of jobs of a batch's kind, queue and group. Microseconds.
fn mean_duration_us(connection: &Connection, batch: BatchId) -> Result<Option<u64>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT sum(coalesce(d.sum_us, (SELECT sum(value) FROM json_each(r.durations)))) / sum(r.count) FROM report r \
         CROSS JOIN batch b ON b.id = r.id >> {POSITION_BITS} LEFT JOIN report_durations d ON d.id = r.id \
         WHERE r.id > ((SELECT max(id) FROM batch) - ?2) << {POSITION_BITS} AND (r.durations IS NOT NULL OR r.parts IS NOT NULL) \
         AND b.lane_id = (SELECT lane_id FROM batch WHERE id = ?1)"
    ))?;
    let mean: Option<i64> = statement.query_row([batch.0, ESTIMATE_BATCHES_MAX], |row| row.get(0))?;
    Ok(mean.map(i64::unsigned_abs))
}

/// How many children a job spawned last, by state.
fn children_of(connection: &Connection, now: Timestamp, id: JobId) -> Result<Option<JobCounts>> {
    let all = children(
        connection,
        id.batch,
        &Positions::from(id.position..id.position + 1),
    )?;
    let Some(own) = all.first() else {
        return Ok(None);
    };
    let mut counts = JobCounts::default();
    for jobs in &own.jobs {
        let pieces = pieces(connection, now, jobs.batch)?;
        count(&pieces, &[], &jobs.positions, &mut counts);
    }
    Ok(Some(counts))
}

/// The deduplication key of a job.
fn key_of(connection: &Connection, id: JobId) -> Result<Option<String>> {
    let keys = keys_of(connection, id.batch)?;
    let key = keys.as_ref().and_then(|keys| keys.keys.get(id.position));
    Ok(key.map(serde_json::from_str).transpose()?.flatten())
}

/// The part of a report about one job.
#[derive(Default)]
struct Ended {
    value: Option<Box<RawValue>>,
    duration_us: Option<u32>,
    log: Option<String>,
}

fn ended(connection: &Connection, report: i64, positions: &Positions, position: u32) -> Result<Ended> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {REPORT_COLUMNS} FROM reported WHERE row_id BETWEEN ?2 AND ?3 AND id = ?1"
    ))?;
    let batch = BatchId(report >> POSITION_BITS);
    let [first, last] = report_ids(batch);
    let mut rows = statement.query([report, first, last])?;
    let Some(row) = in_batch(batch, "report", rows.next().map_err(Failure::from))? else {
        return Ok(Ended::default());
    };
    let stored = CheckedReport::read(batch, row)?;
    let index = indexes_of(&Positions::from(position..position + 1), positions)
        .first()
        .unwrap_or(0);
    let value = stored.values.map(PackedArray::from_stored);
    let value = value.as_ref().and_then(|values| values.get(index));
    let logs = stored.logs.map(serde_json::from_str).transpose()?;
    let mut logs: HashMap<u32, String> = logs.unwrap_or_default();
    Ok(Ended {
        value: value
            .map(|value| RawValue::from_string(value.to_owned()))
            .transpose()?,
        duration_us: durations_of(stored.durations)?.get(index as usize).copied(),
        log: logs.remove(&position),
    })
}

/// A page of matching jobs.
pub(crate) fn jobs(
    connection: &Connection,
    now: Timestamp,
    filter: &JobFilter,
    after: Option<JobId>,
    limit: u32,
) -> Result<Vec<JobRow>> {
    let narrowed = narrowed(connection, filter)?;
    let conditions = BatchConditions::narrowed(filter, narrowed.as_ref());
    // Each batch with reports of a state has a job for the page, except that of the last job.
    let candidates = candidates(filter, &conditions, limit.saturating_add(1));
    let sql = format!(
        "SELECT {COMMON_COLUMNS} FROM batch b JOIN lane l ON l.id = b.lane_id \
         WHERE {} AND b.id >= ?{} AND {candidates} ORDER BY b.id",
        conditions.sql,
        conditions.params.len() + 1,
    );
    let mut params = conditions.params;
    params.push(Value::from(after.map_or(0, |job| job.batch.0)));
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query(params_from_iter(params))?;
    let mut page = Vec::new();
    while page.len() < limit as usize
        && let Some(row) = rows.next()?
    {
        let batch = read_common(row)?;
        let from = match after {
            Some(after) if after.batch == batch.batch => after.position + 1,
            _ => 0,
        };
        let only = narrowed.as_ref().and_then(|narrowed| narrowed.get(&batch.batch));
        let pieces = pieces(connection, now, batch.batch)?;
        let found = unpack(&pieces, &filter.states, only, from);
        add_jobs(connection, now, &batch, found, limit as usize, &mut page)?;
    }
    Ok(page)
}

/// The rows of these waiting jobs, in this order.
pub(crate) fn rows_of(
    connection: &Connection,
    now: Timestamp,
    found: &[(BatchId, Piece)],
) -> Result<Vec<JobRow>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COMMON_COLUMNS} FROM batch b JOIN lane l ON l.id = b.lane_id WHERE b.id = ?1"
    ))?;
    let mut all = Vec::new();
    for (batch, piece) in found {
        let common = statement.query_row([batch.0], |row| Ok(read_common(row)));
        let common = match in_batch(*batch, "batch", common.map_err(Failure::from).flatten()) {
            Ok(common) => common,
            // A claim passes over it, too.
            Err(failure) if failure.is_of_batch() => continue,
            Err(failure) => return Err(failure),
        };
        let jobs = piece.positions.iter().map(|position| (position, piece)).collect();
        add_jobs(connection, now, &common, jobs, usize::MAX, &mut all)?;
    }
    Ok(all)
}

/// The next matching batches after one, by id; their states still have to be checked.
pub(super) fn matching(
    connection: &Connection,
    filter: &JobFilter,
    narrowed: Option<&Narrowed>,
    after: BatchId,
    batches_max: u32,
) -> Result<Vec<BatchId>> {
    let conditions = BatchConditions::narrowed(filter, narrowed);
    let (first, limit) = (conditions.params.len() + 1, conditions.params.len() + 2);
    let candidates = candidates(filter, &conditions, batches_max);
    let sql = format!(
        "SELECT b.id FROM batch b JOIN lane l ON l.id = b.lane_id WHERE {} AND b.id >= ?{first} AND {candidates} \
         ORDER BY b.id LIMIT ?{limit}",
        conditions.sql,
    );
    let mut params = conditions.params;
    params.extend([Value::from(after.0.saturating_add(1)), Value::from(batches_max)]);
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(params), |row| Ok(BatchId(row.get(0)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The matching jobs, packed.
pub(crate) fn job_ids(
    connection: &Connection,
    now: Timestamp,
    filter: &JobFilter,
    after: Option<BatchId>,
    batches_max: u32,
) -> Result<Vec<BatchPositions>> {
    let narrowed = narrowed(connection, filter)?;
    let mut after = after.unwrap_or(BatchId(0));
    let mut found = Vec::new();
    // A page may be empty only at the end, but many batches may have no matching jobs.
    while found.is_empty() {
        let batches = matching(connection, filter, narrowed.as_ref(), after, batches_max)?;
        let Some(last) = batches.last() else { break };
        after = *last;
        add_ids(connection, now, filter, narrowed.as_ref(), &batches, &mut found)?;
    }
    Ok(found)
}

/// Adds the matching jobs of these batches.
fn add_ids(
    connection: &Connection,
    now: Timestamp,
    filter: &JobFilter,
    narrowed: Option<&Narrowed>,
    batches: &[BatchId],
    found: &mut Vec<BatchPositions>,
) -> Result<()> {
    for &batch in batches {
        let mut positions = match filter.states.as_slice() {
            [] => {
                let mut statement = connection.prepare_cached("SELECT count FROM batch WHERE id = ?1")?;
                Positions::all(statement.query_row([batch.0], |row| row.get(0))?)
            }
            states => in_states(&pieces(connection, now, batch)?, states),
        };
        if let Some(only) = narrowed.and_then(|narrowed| narrowed.get(&batch)) {
            positions = positions.intersection(only);
        }
        if !positions.is_empty() {
            found.push(BatchPositions { batch, positions });
        }
    }
    Ok(())
}

/// Narrows batches to those that may have jobs in the wanted states, beginning with the one that the parameter after
/// those of the conditions names. A filter by batch, run, tags or keys is narrow enough. It needs to find only the
/// first `batches_max` batches.
fn candidates(filter: &JobFilter, conditions: &BatchConditions, batches_max: u32) -> String {
    let states = &filter.states;
    let is_narrow = filter.batch.is_some() || filter.run.is_some() || filter.tells_jobs_apart();
    if is_narrow || states.is_empty() || states.contains(&JobState::Completed) {
        return "true".to_owned();
    }
    let first = format!("?{}", conditions.params.len() + 1);
    let mut parts = Vec::new();
    if states.contains(&JobState::Waiting) || states.contains(&JobState::Scheduled) {
        parts.push(format!("SELECT batch_id FROM slice WHERE batch_id >= {first}"));
    }
    if states.contains(&JobState::Blocked) || states.contains(&JobState::Paused) {
        parts.push(format!("SELECT batch_id FROM blocked WHERE batch_id >= {first}"));
    }
    if states.contains(&JobState::Running) {
        parts.push(format!("SELECT batch_id FROM held WHERE batch_id >= {first}"));
    }
    // Other conditions exclude some of the batches.
    let limit = if conditions.are_none() {
        format!(" LIMIT {batches_max}")
    } else {
        String::new()
    };
    let finals = states.iter().filter(|state| state.is_final());
    parts.extend(finals.map(|state| reported_in(*state, &first, &limit)));
    format!("b.id IN ({})", parts.join(" UNION "))
}

/// The batches from `first` on with reports of an unsuccessful state, in order. Each step of the recursion leads to the
/// next batch, so a limit is reached without reading all others.
fn reported_in(state: JobState, first: &str, limit: &str) -> String {
    // The second condition lets SQLite use the partial index.
    let from = |batch: &str| {
        format!(
            "(SELECT id >> {POSITION_BITS} FROM report WHERE state = '{state}' AND state <> 'completed' \
             AND id >= {batch} << {POSITION_BITS} ORDER BY id LIMIT 1)"
        )
    };
    let (first, next) = (from(first), from("(step.batch_id + 1)"));
    format!(
        "SELECT batch_id FROM (WITH RECURSIVE step(batch_id) AS (SELECT {first} UNION ALL SELECT {next} FROM step \
         WHERE step.batch_id IS NOT NULL) SELECT batch_id FROM step WHERE batch_id IS NOT NULL{limit})"
    )
}

/// Adds jobs of one batch, until the page is full.
fn add_jobs(
    connection: &Connection,
    now: Timestamp,
    batch: &Common,
    found: BTreeMap<u32, &Piece>,
    limit: usize,
    page: &mut Vec<JobRow>,
) -> Result<()> {
    if found.is_empty() {
        return Ok(());
    }
    let found: Vec<(u32, &Piece)> = found.into_iter().take(limit - page.len()).collect();
    let positions = found.iter().map(|(position, _)| *position);
    let mut messages = failure_messages(connection, batch.batch, positions)?;
    let running = found.iter().any(|(_, piece)| piece.claimed_at.is_some());
    let told = if running {
        told(connection, batch.batch)?
    } else {
        Told::default()
    };
    for (position, piece) in found {
        let job = JobId {
            batch: batch.batch,
            position,
        };
        let progress = told.of(job, piece, now);
        page.push(batch.job(position, piece, messages.remove(&position), progress));
    }
    Ok(())
}

/// The message of the last failure of each of these jobs. It reads no failures of others: a batch can have many.
fn failure_messages(
    connection: &Connection,
    batch: BatchId,
    positions: impl Iterator<Item = u32>,
) -> Result<HashMap<u32, String>> {
    let mut statement = connection.prepare_cached(
        "SELECT position, error ->> '$.message' FROM failure \
         WHERE batch_id = ?1 AND position IN (SELECT value FROM json_each(?2)) ORDER BY position, failed_at, attempt, lease_id",
    )?;
    let positions = serde_json::to_string(&positions.collect::<Vec<_>>())?;
    let rows = statement.query_map(params![batch.0, positions], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
