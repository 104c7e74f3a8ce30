//! The jobs that a blocked job waits for, and the failed prerequisite of a cancelled job.

use gristmill_model::limits::{BATCH_JOBS_MAX, SHOWN_PREREQUISITES_MAX};
use gristmill_model::{BatchId, JobId, Positions, Timestamp};
use gristmill_store::rules::piece::count;
use gristmill_store::{FailedPrerequisite, JobCounts, OpenPrerequisite};

use crate::database::snapshot::Snapshot;
use crate::failure::Result;
use crate::multirange::Multirange;
use crate::query::piece::pieces;

/// The open prerequisites, with their states: at most [`SHOWN_PREREQUISITES_MAX`].
pub(super) async fn prerequisites_of(
    snapshot: &Snapshot,
    now: Timestamp,
    id: JobId,
) -> Result<Vec<OpenPrerequisite>> {
    // A position that no batch can have is in no part.
    let position = i32::try_from(id.position).unwrap_or(i32::MAX);
    let rows = snapshot
        .query(
            "SELECT e.prerequisite_id, e.positions, e.on_failure FROM gristmill.blocked w \
             JOIN gristmill.edge e ON e.batch_id = w.batch_id AND e.part = w.part \
             WHERE w.batch_id = $1 AND w.positions @> $2::integer AND e.on_failure NOT IN ('children', 'hook') \
             ORDER BY e.prerequisite_id, e.first_position LIMIT $3",
            &[&id.batch.0, &position, &(SHOWN_PREREQUISITES_MAX as i64)],
        )
        .await?;
    let mut found = Vec::new();
    for row in &rows {
        let named: Option<Multirange> = row.try_get(1)?;
        let positions = named.map(|named| named.0);
        found.push((BatchId(row.try_get(0)?), positions, row.try_get(2)?));
    }
    let batches: Vec<i64> = found.iter().map(|(batch, ..)| batch.0).collect();
    let pieces = pieces(snapshot, now, &batches).await?;
    let described = found.into_iter().map(|(batch, positions, on_failure)| {
        let all = || Positions::all(BATCH_JOBS_MAX);
        let mut counts = JobCounts::default();
        let of_batch = pieces.get(&batch).map_or(&[][..], Vec::as_slice);
        count(of_batch, &[], &positions.clone().unwrap_or_else(all), &mut counts);
        OpenPrerequisite {
            batch,
            positions: positions.map(|positions: Positions| positions.to_string()),
            on_failure,
            counts,
        }
    });
    Ok(described.collect())
}

/// The prerequisite whose failure cancelled the jobs of this report.
pub(super) async fn cause_of(
    snapshot: &Snapshot,
    batch: BatchId,
    report: i64,
) -> Result<Option<FailedPrerequisite>> {
    // No report begins at a position beyond this range.
    let first_position = i32::try_from(report).unwrap_or(i32::MAX);
    let row = snapshot
        .query_opt(
            "SELECT cause FROM gristmill.report WHERE batch_id = $1 AND first_position = $2",
            &[&batch.0, &first_position],
        )
        .await?;
    let cause: Option<String> = match row {
        Some(row) => row.try_get(0)?,
        None => None,
    };
    Ok(cause.map(|cause| serde_json::from_str(&cause)).transpose()?)
}
