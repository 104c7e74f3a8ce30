//! Batches, their outcomes, and the workers.

use std::sync::Arc;

use gristmill_model::{BatchId, JobState, PackedArray, Positions, RunId, Timestamp, WorkerId};
use gristmill_store::integrity::failure_sum;
use gristmill_store::outcome::{
    BatchOutcomes, OutcomesRead, OutcomesWanted, StoredFailure, StoredReport, WantedReports,
};
use gristmill_store::{BatchRow, NewWorker, WorkerRow};
use rusqlite::{Connection, OptionalExtension, params};

use crate::columns::{read_positions, read_state, report_id};
use crate::failure::{Failure, Result};
use crate::sums::{CheckedReport, REPORT_COLUMNS, batch_columns, checked_payloads, damaged, in_batch};
use crate::worker::steady_clock::WallTimes;

/// The registered workers, by id.
pub(crate) fn workers(connection: &Connection, times: &WallTimes) -> Result<Vec<WorkerRow>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, name, host, process_id, process_started, started_at, heartbeat_at, \
         (SELECT coalesce(sum(count), 0) FROM held WHERE worker_id = worker.id), queues, kinds, boot, beat_ms, \
         drain_at \
         FROM worker ORDER BY id",
    )?;
    let mut rows = statement.query([])?;
    let mut workers = Vec::new();
    while let Some(row) = rows.next()? {
        let boot: String = row.get(10)?;
        workers.push(WorkerRow {
            id: WorkerId(row.get(0)?),
            worker: NewWorker {
                name: row.get(1)?,
                host: row.get(2)?,
                process_id: row.get(3)?,
                process_started: row.get(4)?,
                queues: serde_json::from_str(&row.get::<_, String>(8)?)?,
                kinds: serde_json::from_str(&row.get::<_, String>(9)?)?,
            },
            started_at: Timestamp(row.get(5)?),
            heartbeat_at: times.of(&boot, row.get(11)?, Timestamp(row.get(6)?)),
            jobs_held: row.get::<_, i64>(7)?.unsigned_abs(),
            drain_at: row.get::<_, Option<i64>>(12)?.map(Timestamp),
        });
    }
    Ok(workers)
}

/// The payloads of a batch as they were submitted.
pub(crate) fn payloads(connection: &Connection, batch: BatchId) -> Result<Option<PackedArray>> {
    let mut statement = connection.prepare_cached(concat!(
        "SELECT ",
        batch_columns!(),
        " FROM batch b WHERE b.id = ?1"
    ))?;
    let mut rows = statement.query([batch.0])?;
    match in_batch(batch, "batch", rows.next().map_err(Failure::from))? {
        Some(row) => Ok(Some(checked_payloads(batch, row, 0)?)),
        None => Ok(None),
    }
}

/// The batches of a run.
pub(crate) fn run_batches(
    connection: &Connection,
    run: RunId,
    after: Option<BatchId>,
    limit: u32,
) -> Result<Vec<BatchRow>> {
    let mut statement = connection.prepare_cached(
        "SELECT b.id, l.kind, l.queue, b.count, b.submitted_at FROM batch b JOIN lane l ON l.id = b.lane_id \
         WHERE b.run_id = ?1 AND b.id > ?2 ORDER BY b.id LIMIT ?3",
    )?;
    let after = after.map_or(0, |batch| batch.0);
    let rows = statement.query_map(params![run.0, after, limit], |row| {
        Ok(BatchRow {
            batch: BatchId(row.get(0)?),
            kind: row.get(1)?,
            queue: row.get(2)?,
            count: row.get(3)?,
            submitted_at: Timestamp(row.get(4)?),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The batch with the highest id.
pub(crate) fn newest_batch(connection: &Connection) -> Result<Option<BatchId>> {
    let mut statement = connection.prepare_cached("SELECT max(id) FROM batch")?;
    let id: Option<i64> = statement.query_row([], |row| row.get(0))?;
    Ok(id.map(BatchId))
}

fn job_count(connection: &Connection, batch: BatchId) -> Result<Option<u32>> {
    let mut statement = connection.prepare_cached("SELECT count FROM batch WHERE id = ?1")?;
    Ok(statement.query_row([batch.0], |row| row.get(0)).optional()?)
}

/// Reports whether all jobs of a batch have ended.
pub(crate) fn is_finished(connection: &Connection, batch: BatchId) -> Result<bool> {
    let Some(count) = job_count(connection, batch)? else {
        return Ok(true);
    };
    let mut statement =
        connection.prepare_cached("SELECT coalesce(sum(count), 0) FROM report WHERE id BETWEEN ?1 AND ?2")?;
    let ended: u32 = statement.query_row(report_ids(batch), |row| row.get(0))?;
    Ok(ended == count)
}

/// The first and the last id that a report of the batch can have.
pub(crate) fn report_ids(batch: BatchId) -> [i64; 2] {
    [report_id(batch, 0), report_id(BatchId(batch.0 + 1), 0) - 1]
}

/// The ended jobs of a batch.
pub(crate) fn outcomes(connection: &Connection, batch: BatchId) -> Result<Option<BatchOutcomes>> {
    let Some(count) = job_count(connection, batch)? else {
        return Ok(None);
    };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {REPORT_COLUMNS} FROM reported WHERE row_id BETWEEN ?1 AND ?2 ORDER BY id"
    ))?;
    let mut rows = statement.query(report_ids(batch))?;
    let mut reports = Vec::new();
    let mut dead = Positions::new();
    while let Some(row) = in_batch(batch, "report", rows.next().map_err(Failure::from))? {
        let report = stored_report(batch, row)?;
        if report.state == JobState::Dead {
            dead = dead.union(&report.positions);
        }
        reports.push(report);
    }
    let errors = if dead.is_empty() {
        Vec::new()
    } else {
        last_failures(connection, batch, &dead)?
    };
    Ok(Some(BatchOutcomes {
        batch,
        count,
        reports,
        errors,
    }))
}

/// Reads a row of [`REPORT_COLUMNS`].
fn stored_report(batch: BatchId, row: &rusqlite::Row<'_>) -> Result<StoredReport> {
    let stored = CheckedReport::read(batch, row)?;
    Ok(StoredReport {
        state: in_batch(batch, "report", read_state(row, 1))?,
        values: stored.values.map(PackedArray::from_stored),
        durations_us: in_batch(batch, "report", durations_of(stored.durations))?,
        attempt: stored.attempt,
        worker: stored.worker.map(Arc::from),
        finished_at: stored.finished_at,
        positions: stored.positions,
    })
}

/// Some ended jobs of a batch, or all of a small one. The sizes come first, which costs no look at values. Then one report after
/// another is read, until there is too much.
pub(crate) fn outcomes_of(connection: &Connection, wanted: &OutcomesWanted) -> Result<OutcomesRead> {
    let batch = wanted.batch;
    let Some(count) = job_count(connection, batch)? else {
        return Ok(OutcomesRead::Unknown);
    };
    let rows = ended_rows(connection, batch)?;
    let all = Positions::all(count);
    let whole_bytes_max = match wanted.positions {
        Some(_) => wanted.whole_bytes_max,
        None => wanted.bytes_max,
    };
    if let Some(reports) = reports_of(connection, &rows, (batch, &all), whole_bytes_max)?
        && let Some(errors) = errors_of(connection, batch, &reports)?
    {
        return Ok(OutcomesRead::ReadWhole(reports.read(count, errors)));
    }
    if let Some(of) = &wanted.positions
        && let Some(reports) = reports_of(connection, &rows, (batch, of), wanted.bytes_max)?
        && let Some(errors) = errors_of(connection, batch, &reports)?
    {
        return Ok(OutcomesRead::Read(reports.read(count, errors)));
    }
    Ok(OutcomesRead::TooLarge)
}

/// A row of reports: its id, its jobs, and the bytes of their values.
type EndedRow = (i64, Positions, usize);

fn ended_rows(connection: &Connection, batch: BatchId) -> Result<Vec<EndedRow>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, positions, coalesce(octet_length(\"values\"), 0) FROM report WHERE id BETWEEN ?1 AND ?2 ORDER BY id",
    )?;
    let mut rows = statement.query(report_ids(batch))?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let positions = in_batch(batch, "report", read_positions(row, 1))?;
        let values_bytes = usize::try_from(row.get::<_, i64>(2)?).unwrap_or(usize::MAX);
        all.push((row.get(0)?, positions, values_bytes));
    }
    Ok(all)
}

/// The reports of these jobs; `None` if they have more bytes. At least as many bytes are wanted as those rows have that are wanted
/// whole.
fn reports_of<'p>(
    connection: &Connection,
    rows: &[EndedRow],
    (batch, of): (BatchId, &'p Positions),
    bytes_max: usize,
) -> Result<Option<WantedReports<'p>>> {
    let needed = rows
        .iter()
        .filter(|(_, positions, _)| !positions.intersection(of).is_empty());
    let needed: Vec<&EndedRow> = needed.collect();
    let whole = needed
        .iter()
        .filter(|(_, positions, _)| of.contains_all(positions));
    let bytes = whole.map(|(_, positions, bytes)| OutcomesWanted::bytes_of(positions.len(), *bytes));
    if bytes.fold(0, usize::saturating_add) > bytes_max {
        return Ok(None);
    }
    let sql = format!("SELECT {REPORT_COLUMNS} FROM reported WHERE row_id = ?1 ORDER BY id");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut reports = WantedReports::new(batch, of, bytes_max);
    for (id, _, _) in needed {
        let mut rows = statement.query([id])?;
        while let Some(row) = in_batch(batch, "report", rows.next().map_err(Failure::from))? {
            if !reports.add(stored_report(batch, row)?) {
                return Ok(None);
            }
        }
    }
    Ok(Some(reports))
}

/// The errors of the dead jobs of these reports; `None` if there are too many bytes with them.
fn errors_of(
    connection: &Connection,
    batch: BatchId,
    reports: &WantedReports<'_>,
) -> Result<Option<Vec<StoredFailure>>> {
    let (dead, bytes_left) = reports.dead();
    last_errors(connection, batch, dead, bytes_left)
}

/// The last failures of these jobs, without logs; `None` if their errors have more bytes.
fn last_errors(
    connection: &Connection,
    batch: BatchId,
    of: &Positions,
    bytes_max: usize,
) -> Result<Option<Vec<StoredFailure>>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {FAILURE_COLUMNS} FROM failure WHERE batch_id = ?1 AND position = ?2 \
         ORDER BY failed_at DESC, attempt DESC, lease_id DESC LIMIT 1"
    ))?;
    let (mut errors, mut bytes) = (Vec::new(), 0);
    for position in of.iter() {
        let mut rows = statement.query(params![batch.0, position])?;
        let Some(row) = rows.next()? else {
            continue;
        };
        let error = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
        bytes += error.len();
        if bytes > bytes_max {
            return Ok(None);
        }
        let log = None;
        errors.push(StoredFailure {
            log,
            ..checked_failure(batch, row)?
        });
    }
    Ok(Some(errors))
}

/// Reads a column of durations.
pub(crate) fn read_durations(row: &rusqlite::Row<'_>, column: usize) -> Result<Vec<u32>> {
    let text = row.get_ref(column)?;
    durations_of(text.as_str_or_null().map_err(rusqlite::Error::from)?)
}

/// The durations of a report.
pub(crate) fn durations_of(text: Option<&str>) -> Result<Vec<u32>> {
    match text {
        None => Ok(Vec::new()),
        Some(text) => Ok(serde_json::from_str(text)?),
    }
}

/// The failed attempts of one job, or of a whole batch, by position and age.
pub(crate) fn failures(
    connection: &Connection,
    batch: BatchId,
    position: Option<u32>,
) -> Result<Vec<StoredFailure>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {FAILURE_COLUMNS} FROM failure \
         WHERE batch_id = ?1 AND position BETWEEN ?2 AND ?3 ORDER BY position, failed_at, attempt, lease_id",
    ))?;
    let mut rows = statement.query(params![
        batch.0,
        position.unwrap_or(0),
        position.unwrap_or(u32::MAX)
    ])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(checked_failure(batch, row)?);
    }
    Ok(all)
}

const FAILURE_COLUMNS: &str = "position, attempt, error, duration_us, log, worker, failed_at, sum";

/// Reads a row of [`FAILURE_COLUMNS`] whose checksum is right.
fn checked_failure(batch: BatchId, row: &rusqlite::Row<'_>) -> Result<StoredFailure> {
    in_batch(batch, "failure", read_failure(batch, row))?.ok_or_else(|| {
        damaged(
            batch,
            "failure",
            "an error or a log has changed since it was stored",
        )
    })
}

/// Reads a failed attempt; `None` if its checksum is wrong.
fn read_failure(batch: BatchId, row: &rusqlite::Row<'_>) -> Result<Option<StoredFailure>> {
    let error = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
    let log: Option<String> = row.get(4)?;
    let (position, attempt) = (row.get(0)?, row.get(1)?);
    if failure_sum(batch, position, attempt, error, log.as_deref()) != row.get::<_, i64>(7)? {
        return Ok(None);
    }
    Ok(Some(StoredFailure {
        position,
        attempt,
        error: serde_json::from_str(error)?,
        duration_us: row.get(3)?,
        log,
        worker: row.get::<_, Option<Arc<str>>>(5)?,
        failed_at: Timestamp(row.get(6)?),
    }))
}

/// The last failure of each of these jobs.
fn last_failures(connection: &Connection, batch: BatchId, of: &Positions) -> Result<Vec<StoredFailure>> {
    let mut last: Vec<StoredFailure> = Vec::new();
    for failure in failures(connection, batch, None)? {
        if !of.contains(failure.position) {
            continue;
        }
        match last.last_mut() {
            Some(earlier) if earlier.position == failure.position => *earlier = failure,
            _ => last.push(failure),
        }
    }
    Ok(last)
}
