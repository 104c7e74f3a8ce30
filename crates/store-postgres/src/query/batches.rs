//! Batches, their outcomes, and the workers.

use std::sync::Arc;

use gristmill_model::{BatchId, JobState, PackedArray, RunId, Timestamp, WorkerId};
use gristmill_store::outcome::{BatchOutcomes, StoredFailure, StoredReport};
use gristmill_store::{BatchRow, NewWorker, WorkerRow};
use tokio_postgres::Row;

use crate::database::columns::{number, read_durations, read_state, sum};
use crate::database::snapshot::Snapshot;
use crate::database::sums::{CheckedReport, REPORT_COLUMNS, batch_columns, in_batch, read_batch};
use crate::failure::Result;
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
    let reports: Vec<StoredReport> = rows
        .iter()
        .map(|row| {
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
        })
        .collect::<Result<_>>()?;
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
