//! Rows with checksums, which are compared when a row is read.

use gristmill_model::{BatchId, PackedArray, Positions, Timestamp};
use gristmill_store::StoreError;
use gristmill_store::integrity::{BatchColumns, ReportColumns};
use rusqlite::Row;

use crate::columns::{POSITION_BITS, read_positions};
use crate::failure::{Failure, Result};

/// The columns of a batch `b` for [`checked_payloads`].
macro_rules! batch_columns {
    () => {
        "b.id, b.run_id, b.lane_id, b.count, b.priority, b.submitted_at, b.run_at, b.sum, b.options, b.payloads"
    };
}

pub(crate) use batch_columns;

/// The failure for damaged rows of one batch.
pub(crate) fn damaged(batch: BatchId, table: &'static str, what: impl Into<String>) -> Failure {
    Failure::Refused(StoreError::Damaged {
        batch,
        table,
        what: what.into(),
    })
}

/// Turns a fault in a batch's rows into damage of this batch alone.
pub(crate) fn in_batch<T>(batch: BatchId, table: &'static str, read: Result<T>) -> Result<T> {
    read.map_err(|failure| match failure.of_row() {
        Ok(reason) => damaged(batch, table, reason),
        Err(failure) => failure,
    })
}

/// The payloads of a batch, beginning with these columns, if their checksum is right.
pub(crate) fn checked_payloads(batch: BatchId, row: &Row<'_>, first: usize) -> Result<PackedArray> {
    let read = || -> Result<Option<PackedArray>> {
        let text = |column| row.get_ref(first + column);
        let payloads = text(9)?.as_str().map_err(rusqlite::Error::from)?;
        let columns = BatchColumns {
            id: row.get(first)?,
            run_id: row.get(first + 1)?,
            lane_id: row.get(first + 2)?,
            count: row.get(first + 3)?,
            priority: row.get(first + 4)?,
            submitted_at: row.get(first + 5)?,
            run_at: row.get(first + 6)?,
            options: text(8)?.as_str_or_null().map_err(rusqlite::Error::from)?,
            payloads,
        };
        let is_whole = columns.id == batch.0 && columns.sum() == row.get::<_, i64>(first + 7)?;
        Ok(is_whole.then(|| PackedArray::from_stored(payloads)))
    };
    in_batch(batch, "batch", read())?.ok_or_else(|| {
        damaged(
            batch,
            "batch",
            "its payloads or options have changed since they were stored",
        )
    })
}

/// The columns of `reported` for [`CheckedReport::read`].
pub(crate) const REPORT_COLUMNS: &str =
    "id, state, attempt, count, finished_at, sum, worker, positions, durations, logs, \"values\"";

/// A report whose checksum is right.
pub(crate) struct CheckedReport<'r> {
    pub state: &'r str,
    pub positions: Positions,
    pub attempt: u32,
    pub finished_at: Timestamp,
    pub worker: Option<&'r str>,
    pub durations: Option<&'r str>,
    pub logs: Option<&'r str>,
    pub values: Option<&'r str>,
}

impl<'r> CheckedReport<'r> {
    /// Reads a row of [`REPORT_COLUMNS`].
    pub fn read(batch: BatchId, row: &'r Row<'_>) -> Result<CheckedReport<'r>> {
        let read = || -> Result<Option<CheckedReport<'r>>> {
            let text = |column| -> Result<Option<&'r str>> {
                Ok(row
                    .get_ref(column)?
                    .as_str_or_null()
                    .map_err(rusqlite::Error::from)?)
            };
            let report = CheckedReport {
                state: text(1)?.unwrap_or_default(),
                positions: read_counted(row, 7, 3)?,
                attempt: row.get(2)?,
                finished_at: Timestamp(row.get(4)?),
                worker: text(6)?,
                durations: text(8)?,
                logs: text(9)?,
                values: text(10)?,
            };
            let id: i64 = row.get(0)?;
            let is_whole = is_report_of(id, batch, &report.positions) && report.has_sum(batch, row.get(5)?);
            Ok(is_whole.then_some(report))
        };
        in_batch(batch, "report", read())?
            .ok_or_else(|| damaged(batch, "report", "its values have changed since they were stored"))
    }

    /// Reports whether this is its checksum. Only reports of completed jobs have one.
    fn has_sum(&self, batch: BatchId, sum: Option<i64>) -> bool {
        match (self.values, sum) {
            (None, None) => self.state != "completed",
            (Some(values), Some(sum)) if self.state == "completed" => {
                let columns = ReportColumns {
                    batch,
                    positions: &self.positions,
                    attempt: self.attempt,
                    finished_at: self.finished_at.0,
                    worker: self.worker,
                    durations: self.durations,
                    logs: self.logs,
                    values,
                };
                columns.sum() == sum
            }
            _ => false,
        }
    }
}

/// Reports whether a report of these positions has this id.
pub(crate) fn is_report_of(id: i64, batch: BatchId, positions: &Positions) -> bool {
    let first = id & ((1 << POSITION_BITS) - 1);
    id >> POSITION_BITS == batch.0 && positions.first().map(i64::from) == Some(first)
}

/// Reads a column of positions, and one with their number.
pub(crate) fn read_counted(row: &Row<'_>, column: usize, count: usize) -> Result<Positions> {
    let positions = read_positions(row, column)?;
    let count: u32 = row.get(count)?;
    if count == positions.len() && count > 0 {
        Ok(positions)
    } else {
        Err(Failure::Damaged(format!(
            "a row counts {count} jobs, and its positions are `{positions}`"
        )))
    }
}

/// Reads a column of ranks, which are negated priorities.
pub(crate) fn read_rank(row: &Row<'_>, column: usize) -> Result<i64> {
    let rank: i64 = row.get(column)?;
    match rank.checked_neg().map(i16::try_from) {
        Some(Ok(_)) => Ok(rank),
        _ => Err(Failure::Damaged(format!("a slice has the rank {rank}"))),
    }
}
