//! The jobs that a blocked job waits for, and the failed prerequisite of a cancelled job.

use gristmill_model::limits::{BATCH_JOBS_MAX, SHOWN_PREREQUISITES_MAX};
use gristmill_model::{BatchId, JobId, Positions, Timestamp};
use gristmill_store::rules::piece::count;
use gristmill_store::{FailedPrerequisite, JobCounts, OpenPrerequisite};
use rusqlite::{Connection, OptionalExtension};

use crate::columns::read_positions;
use crate::failure::Result;
use crate::query::piece::pieces;

/// The open prerequisites, with their states: at most [`SHOWN_PREREQUISITES_MAX`].
pub(super) fn prerequisites_of(
    connection: &Connection,
    now: Timestamp,
    id: JobId,
) -> Result<Vec<OpenPrerequisite>> {
    let mut statement = connection.prepare_cached(
        "SELECT w.positions, e.prerequisite_id, e.positions, e.on_failure FROM blocked w \
         JOIN edge e ON e.batch_id = w.batch_id AND e.part = w.part \
         WHERE w.batch_id = ?1 AND e.on_failure NOT IN ('children', 'hook') ORDER BY e.prerequisite_id, e.first_position",
    )?;
    let mut rows = statement.query([id.batch.0])?;
    let mut found = Vec::new();
    while found.len() < SHOWN_PREREQUISITES_MAX
        && let Some(row) = rows.next()?
    {
        if !read_positions(row, 0)?.contains(id.position) {
            continue;
        }
        let batch = BatchId(row.get(1)?);
        let named: Option<String> = row.get(2)?;
        let positions: Option<Positions> = named.map(|named| named.parse()).transpose()?;
        let all = || Positions::all(BATCH_JOBS_MAX);
        let mut counts = JobCounts::default();
        let pieces = pieces(connection, now, batch)?;
        count(&pieces, &[], &positions.clone().unwrap_or_else(all), &mut counts);
        found.push(OpenPrerequisite {
            batch,
            positions: positions.map(|positions| positions.to_string()),
            on_failure: row.get(3)?,
            counts,
        });
    }
    Ok(found)
}

/// The prerequisite whose failure cancelled the jobs of this report.
pub(super) fn cause_of(connection: &Connection, report: i64) -> Result<Option<FailedPrerequisite>> {
    let mut statement = connection.prepare_cached("SELECT cause FROM report WHERE id = ?1")?;
    let cause: Option<Option<String>> = statement.query_row([report], |row| row.get(0)).optional()?;
    Ok(cause
        .flatten()
        .map(|cause| serde_json::from_str(&cause))
        .transpose()?)
}
