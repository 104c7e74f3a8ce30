//! Columns that several tables have: ids of reports, and types that SQLite lacks.

use gristmill_model::{BatchId, JobState, Positions};
use gristmill_store::rules::pauses::Pauses;

use crate::failure::{Failure, Result};

/// The id of a report is the id of its batch, shifted left by this many bits, plus its first position.
pub(crate) const POSITION_BITS: u32 = 14;
const _: () = assert!(gristmill_model::limits::BATCH_JOBS_MAX <= 1 << POSITION_BITS);

/// The id of the report that begins with `first_position`.
pub(crate) fn report_id(batch: BatchId, first_position: u32) -> i64 {
    (batch.0 << POSITION_BITS) | i64::from(first_position)
}

/// Reads a column of positions.
pub(crate) fn read_positions(row: &rusqlite::Row<'_>, column: usize) -> Result<Positions> {
    let text = row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?;
    Ok(text.parse()?)
}

/// Reads a column of states.
pub(crate) fn read_state(row: &rusqlite::Row<'_>, column: usize) -> Result<JobState> {
    let text = row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?;
    text.parse()
        .map_err(|error: gristmill_model::state::ParseJobStateError| Failure::Damaged(error.to_string()))
}

/// Reads a column of pauses.
pub(crate) fn read_pauses(row: &rusqlite::Row<'_>, column: usize) -> Result<Option<Pauses>> {
    let text = row
        .get_ref(column)?
        .as_str_or_null()
        .map_err(rusqlite::Error::from)?;
    Ok(text.map(serde_json::from_str).transpose()?)
}
