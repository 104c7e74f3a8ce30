//! Readers of columns that several tables have.

use gristmill_model::JobState;
use gristmill_store::rules::pauses::Pauses;
use tokio_postgres::Row;

use crate::failure::{Failure, Result};

/// Reads a column of counts, attempts or positions.
pub(crate) fn number(row: &Row, column: usize) -> Result<u32> {
    Ok(row.try_get::<_, i32>(column)?.unsigned_abs())
}

/// Reads a column of sums.
pub(crate) fn sum(row: &Row, column: usize) -> Result<u64> {
    Ok(row.try_get::<_, i64>(column)?.unsigned_abs())
}

/// Reads a column of states.
pub(crate) fn read_state(row: &Row, column: usize) -> Result<JobState> {
    let text: &str = row.try_get(column)?;
    text.parse()
        .map_err(|error: gristmill_model::state::ParseJobStateError| Failure::Damaged(error.to_string()))
}

/// Reads a column of durations.
pub(crate) fn read_durations(row: &Row, column: usize) -> Result<Vec<u32>> {
    match row.try_get::<_, Option<&str>>(column)? {
        None => Ok(Vec::new()),
        Some(text) => Ok(serde_json::from_str(text)?),
    }
}

/// Reads a column of pauses, as a text.
pub(crate) fn read_pauses(row: &Row, column: usize) -> Result<Option<Pauses>> {
    let text: Option<&str> = row.try_get(column)?;
    Ok(text.map(serde_json::from_str).transpose()?)
}
