//! Batches, their outcomes, and the workers.

use std::sync::Arc;

use gristmill_model::{BatchId, JobState, PackedArray, Positions, RunId, Timestamp, WorkerId};
use gristmill_store::outcome::{
    BatchOutcomes, OutcomesRead, OutcomesWanted, StoredFailure, StoredReport, WantedReports,
};
use gristmill_store::{BatchRow, NewWorker, WorkerRow};
use tokio_postgres::Row;

use crate::database::columns::{number, read_durations, read_state, sum};
use crate::database::snapshot::Snapshot;
use crate::database::sums::{CheckedReport, REPORT_COLUMNS, batch_columns, in_batch, read_batch};
use crate::failure::Result;
use crate::multirange::Multirange;
use crate::query::filter::following;

fn read_name(row: &Row, column: usize) -> Result<Option<Arc<str>>> {
    Ok(row.try_get::<_, Option<&str>>(column)?.map(Arc::from))
}

fn read_names(row: &Row, column: usize) -> Result<Vec<Arc<str>>> {
    let names: Vec<&str> = row.try_get(column)?;
    Ok(names.into_iter().map(Arc::from).collect())
}

/// The registered workers, by id.
pub(crate) async fn workers(snapshot: &Snapshot) -> Result<Vec<WorkerRow>> {
    let rows = snapshot
        .query(
            "SELECT w.id, w.name, w.host, w.process_id, w.process_started, w.started_at, w.heartbeat_at, \
             coalesce(h.jobs, 0), w.queues, w.kinds, w.drain_at FROM gristmill.worker w \
             LEFT JOIN (SELECT worker_id, sum(count) AS jobs FROM gristmill.held GROUP BY worker_id) h \
             ON h.worker_id = w.id ORDER BY w.id",
            &[],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(WorkerRow {
                id: WorkerId(row.try_get(0)?),
                worker: NewWorker {
                    name: row.try_get(1)?,
                    host: row.try_get(2)?,
                    process_id: u32::try_from(row.try_get::<_, i64>(3)?).unwrap_or(u32::MAX),
                    process_started: row.try_get(4)?,
                    queues: read_names(row, 8)?,
                    kinds: read_names(row, 9)?,
                },
                started_at: Timestamp(row.try_get(5)?),
                heartbeat_at: Timestamp(row.try_get(6)?),
                jobs_held: sum(row, 7)?,
                drain_at: row.try_get::<_, Option<i64>>(10)?.map(Timestamp),
            })
        })
        .collect()
}

/// The batch with the highest id.
pub(crate) async fn newest_batch(snapshot: &Snapshot) -> Result<Option<BatchId>> {
    let row = snapshot
        .query_opt("SELECT max(id) FROM gristmill.batch", &[])
        .await?;
    let id: Option<i64> = row.map(|row| row.try_get(0)).transpose()?.flatten();
    Ok(id.map(BatchId))
}

/// The payloads of a batch as they were submitted.
pub(crate) async fn payloads(snapshot: &Snapshot, batch: BatchId) -> Result<Option<PackedArray>> {
    let rows = snapshot
        .query(
            concat!(
                "SELECT ",
                batch_columns!(),
                " FROM gristmill.batch b WHERE b.id = $1"
            ),
            &[&batch.0],
        )
        .await?;
    match rows.first() {
        Some(row) => Ok(Some(read_batch(row, 0)?.2)),
        None => Ok(None),
    }
}

/// The batches of a run.
pub(crate) async fn run_batches(
    snapshot: &Snapshot,
    run: RunId,
    after: Option<BatchId>,
    limit: u32,
) -> Result<Vec<BatchRow>> {
    let first = after.map_or(0, following);
    let rows = snapshot
        .query(
            "SELECT b.id, l.kind, l.queue, b.count, b.submitted_at FROM gristmill.batch b \
             JOIN gristmill.lane l ON l.id = b.lane_id WHERE b.run_id = $1 AND b.id >= $2 ORDER BY b.id LIMIT $3",
            &[&run.0, &first, &i64::from(limit)],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(BatchRow {
                batch: BatchId(row.try_get(0)?),
                kind: row.try_get::<_, &str>(1)?.into(),
                queue: row.try_get::<_, &str>(2)?.into(),
                count: number(row, 3)?,
                submitted_at: Timestamp(row.try_get(4)?),
            })
        })
        .collect()
}

/// Reports whether all jobs of a batch have ended: none of them waits or is held.
pub(crate) async fn is_finished(snapshot: &Snapshot, batch: BatchId) -> Result<bool> {
    let row = snapshot
        .query_opt(
            "SELECT NOT EXISTS (SELECT FROM gristmill.slice WHERE batch_id = $1) \
             AND NOT EXISTS (SELECT FROM gristmill.held WHERE batch_id = $1) \
             AND NOT EXISTS (SELECT FROM gristmill.blocked WHERE batch_id = $1)",
            &[&batch.0],
        )
        .await?;
    Ok(match row {
        Some(row) => row.try_get(0)?,
        None => true,
    })
}

/// The ended jobs of a batch.
pub(crate) async fn outcomes(snapshot: &Snapshot, batch: BatchId) -> Result<Option<BatchOutcomes>> {
    let id = [&batch.0 as &(dyn tokio_postgres::types::ToSql + Sync)];
    let sql = format!(
        "SELECT {REPORT_COLUMNS} FROM gristmill.reported WHERE batch_id = $1 ORDER BY first_position"
    );
    let (counts, rows) = tokio::try_join!(
        snapshot.query("SELECT count FROM gristmill.batch WHERE id = $1", &id),
        snapshot.query(&sql, &id),
    )?;
    let Some(count) = counts.first() else {
        return Ok(None);
    };
    let reports = rows.iter().map(|row| stored_report(batch, row));
    let reports: Vec<StoredReport> = reports.collect::<Result<_>>()?;
    let errors = if reports.iter().any(|report| report.state == JobState::Dead) {
        last_failures(snapshot, batch).await?
    } else {
        Vec::new()
    };
    Ok(Some(BatchOutcomes {
        batch,
        count: number(count, 0)?,
        reports,
        errors,
    }))
}

/// Reads a row of [`REPORT_COLUMNS`].
fn stored_report(batch: BatchId, row: &Row) -> Result<StoredReport> {
    let stored = CheckedReport::read(row)?;
    Ok(StoredReport {
        state: in_batch(batch, "report", read_state(row, 1))?,
        durations_us: in_batch(batch, "report", read_durations(row, 7))?,
        attempt: stored.attempt,
        worker: stored.worker.map(Arc::from),
        finished_at: stored.finished_at,
        values: stored.values.map(PackedArray::from_stored),
        positions: stored.positions,
    })
}

/// Some ended jobs of a batch, or all of a small one. With the sizes come the reports, where all of these together are small enough.
/// Otherwise a few at a time are read, until there is too much.
pub(crate) async fn outcomes_of(snapshot: &Snapshot, wanted: &OutcomesWanted) -> Result<OutcomesRead> {
    // The query also reads the logs and durations of the reports, which the caller does not get.
    const EXTRAS: &str = "coalesce(octet_length(logs), 0) + coalesce(octet_length(durations), 0)";
    const VALUES: &str = "coalesce(octet_length(\"values\"), 0)";
    let bytes = format!(
        "coalesce(sum({VALUES}::bigint + {EXTRAS}), 0)::bigint FROM gristmill.reported WHERE batch_id = $1"
    );
    let batch = wanted.batch;
    let all = Positions::all(i32::MAX.unsigned_abs());
    let of = Multirange(wanted.positions.clone().unwrap_or_else(|| all.clone()));
    let whole_bytes_max = match wanted.positions {
        Some(_) => wanted.whole_bytes_max,
        None => wanted.bytes_max,
    };
    let limit = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
    let (bytes_max, whole_max) = (limit(wanted.bytes_max), limit(whole_bytes_max));
    let sizes = format!(
        "SELECT first_position, positions, {VALUES}::bigint, {VALUES}::bigint + {EXTRAS} FROM gristmill.reported WHERE batch_id = $1"
    );
    let small = format!(
        "SELECT {REPORT_COLUMNS} FROM gristmill.reported WHERE batch_id = $1 AND CASE WHEN (SELECT {bytes}) <= $4 THEN true \
         ELSE positions && $2::int4multirange AND (SELECT {bytes} AND positions && $2::int4multirange) <= $3 END ORDER BY first_position"
    );
    let params = [
        &batch.0 as &(dyn tokio_postgres::types::ToSql + Sync),
        &of,
        &bytes_max,
        &whole_max,
    ];
    let (counts, sizes, rows) = tokio::try_join!(
        snapshot.query("SELECT count FROM gristmill.batch WHERE id = $1", &params[..1]),
        snapshot.query(&sizes, &params[..1]),
        snapshot.query(&small, &params),
    )?;
    let Some(count) = counts.first() else {
        return Ok(OutcomesRead::Unknown);
    };
    let count = number(count, 0)?;
    let mut bytes = 0usize;
    for row in &sizes {
        bytes = bytes.saturating_add(bytes_at(row, 3)?);
    }
    // Otherwise `rows` has the wanted reports alone.
    let has_all = wanted.positions.is_none() || bytes <= whole_bytes_max;
    if has_all
        && let Some((reports, errors)) =
            read_of(snapshot, (batch, &all), &sizes, &rows, whole_bytes_max).await?
    {
        return Ok(OutcomesRead::ReadWhole(reports.read(count, errors)));
    }
    if wanted.positions.is_some()
        && let Some((reports, errors)) =
            read_of(snapshot, (batch, &of.0), &sizes, &rows, wanted.bytes_max).await?
    {
        return Ok(OutcomesRead::Read(reports.read(count, errors)));
    }
    Ok(OutcomesRead::TooLarge)
}

/// The reports of these jobs and the errors of the dead ones; `None` if they have more bytes. `rows` has all reports, or those of
/// these jobs, or none where they are not small together.
async fn read_of<'p>(
    snapshot: &Snapshot,
    (batch, of): (BatchId, &'p Positions),
    sizes: &[Row],
    rows: &[Row],
    bytes_max: usize,
) -> Result<Option<(WantedReports<'p>, Vec<StoredFailure>)>> {
    let Some(portions) = portions(sizes, of, bytes_max)? else {
        return Ok(None);
    };
    let mut reports = WantedReports::new(batch, of, bytes_max);
    for row in rows {
        if !reports.add(stored_report(batch, row)?) {
            return Ok(None);
        }
    }
    let left = if rows.is_empty() { portions } else { Vec::new() };
    for portion in left {
        let sql = format!(
            "SELECT {REPORT_COLUMNS} FROM gristmill.reported WHERE batch_id = $1 AND first_position = ANY ($2) \
             ORDER BY first_position"
        );
        for row in &snapshot.query(&sql, &[&batch.0, &portion]).await? {
            if !reports.add(stored_report(batch, row)?) {
                return Ok(None);
            }
        }
    }
    let (dead, bytes_left) = reports.dead();
    let errors = last_errors(snapshot, batch, dead.clone(), bytes_left).await?;
    Ok(errors.map(|errors| (reports, errors)))
}

/// A number of bytes.
fn bytes_at(row: &Row, column: usize) -> Result<usize> {
    Ok(usize::try_from(row.try_get::<_, i64>(column)?).unwrap_or(usize::MAX))
}

/// The first positions of the reports of these jobs, by their sizes with logs in portions of about the wanted bytes. `None` if the
/// values of the reports that are wanted whole have more.
fn portions(sizes: &[Row], of: &Positions, bytes_max: usize) -> Result<Option<Vec<Vec<i32>>>> {
    let (mut portions, mut portion_bytes, mut least) = (Vec::new(), 0usize, 0usize);
    for row in sizes {
        let positions = row.try_get::<_, Multirange>(1)?.0;
        if positions.intersection(of).is_empty() {
            continue;
        }
        let (values_bytes, row_bytes) = (bytes_at(row, 2)?, bytes_at(row, 3)?);
        if of.contains_all(&positions) {
            least = least.saturating_add(OutcomesWanted::bytes_of(positions.len(), values_bytes));
        }
        if portions.is_empty() || portion_bytes.saturating_add(row_bytes) > bytes_max {
            portions.push(Vec::new());
            portion_bytes = 0;
        }
        portion_bytes = portion_bytes.saturating_add(row_bytes);
        if let Some(last) = portions.last_mut() {
            last.push(row.try_get(0)?);
        }
    }
    Ok((least <= bytes_max).then_some(portions))
}

/// The last failures of these jobs, without logs; `None` if their errors have more bytes.
async fn last_errors(
    snapshot: &Snapshot,
    batch: BatchId,
    dead: Positions,
    bytes_max: usize,
) -> Result<Option<Vec<StoredFailure>>> {
    if dead.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let of = "FROM gristmill.failure f WHERE f.batch_id = $1 AND f.position <@ $2::int4multirange \
              ORDER BY f.position, f.lease_id DESC, f.attempt DESC";
    let sizes = format!(
        "SELECT coalesce(sum(octet_length(e.error)), 0)::bigint FROM (SELECT DISTINCT ON (f.position) f.error {of}) e"
    );
    let dead = Multirange(dead);
    let row = snapshot.query_opt(&sizes, &[&batch.0, &dead]).await?;
    let bytes: i64 = row.map_or(Ok(0), |row| row.try_get(0))?;
    if usize::try_from(bytes).unwrap_or(usize::MAX) > bytes_max {
        return Ok(None);
    }
    let columns = FAILURE_COLUMNS.replace("f.log", "NULL::text");
    let sql = format!("SELECT DISTINCT ON (f.position) {columns} {of}");
    let rows = snapshot.query(&sql, &[&batch.0, &dead]).await?;
    rows.iter().map(read_failure).collect::<Result<_>>().map(Some)
}

const FAILURE_COLUMNS: &str = "f.position, f.attempt, f.error, f.duration_us, f.log, f.worker, f.failed_at";

/// Reads a row of [`FAILURE_COLUMNS`].
fn read_failure(row: &Row) -> Result<StoredFailure> {
    Ok(StoredFailure {
        position: number(row, 0)?,
        attempt: number(row, 1)?,
        error: serde_json::from_str(row.try_get(2)?)?,
        duration_us: u32::try_from(row.try_get::<_, i64>(3)?).unwrap_or(u32::MAX),
        log: row.try_get(4)?,
        worker: read_name(row, 5)?,
        failed_at: Timestamp(row.try_get(6)?),
    })
}

/// The failed attempts of one job, oldest first.
pub(super) async fn failures(
    snapshot: &Snapshot,
    batch: BatchId,
    position: i32,
) -> Result<Vec<StoredFailure>> {
    let sql = format!(
        "SELECT {FAILURE_COLUMNS} FROM gristmill.failure f WHERE f.batch_id = $1 AND f.position = $2 ORDER BY f.lease_id, f.attempt"
    );
    let rows = snapshot.query(&sql, &[&batch.0, &position]).await?;
    rows.iter().map(read_failure).collect()
}

/// The last failure of each dead job of a batch.
async fn last_failures(snapshot: &Snapshot, batch: BatchId) -> Result<Vec<StoredFailure>> {
    let sql = format!(
        "SELECT DISTINCT ON (f.position) {FAILURE_COLUMNS} FROM gristmill.failure f WHERE f.batch_id = $1 \
         AND EXISTS (SELECT FROM gristmill.report r WHERE r.batch_id = f.batch_id AND r.state = 'dead' \
         AND f.position <@ r.positions) ORDER BY f.position, f.lease_id DESC, f.attempt DESC"
    );
    let rows = snapshot.query(&sql, &[&batch.0]).await?;
    rows.iter().map(read_failure).collect()
}
