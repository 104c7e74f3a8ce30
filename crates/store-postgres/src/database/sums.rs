//! Rows with checksums, which are computed when a row is written and compared when it is read.

use gristmill_model::{BatchId, BatchOptions, PackedArray, Positions, Timestamp};
use gristmill_store::StoreError;
use gristmill_store::integrity::{BatchColumns, ReportColumns, keys_sum};
use gristmill_store::options::is_tagged;
use tokio_postgres::Row;

use crate::database::columns::number;
use crate::database::handle_cache::BatchHead;
use crate::failure::{Failure, Result};
use crate::multirange::Multirange;

/// The columns of a batch `b` for [`read_batch`].
macro_rules! batch_columns {
    () => {
        "b.id, b.lane_id, b.priority, b.submitted_at, b.run_at, b.options, \
         gristmill.batch_bytes(b.id, octet_length(b.payloads), b.options), b.count, b.payloads, b.sum"
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
    read.map_err(|failure| match failure {
        Failure::Damaged(reason) => damaged(batch, table, reason),
        failure => failure,
    })
}

/// The checksum of a batch. It does not include the id, which the database assigns when it stores the batch.
pub(crate) fn batch_sum(head: &BatchHead, options: Option<&str>, payloads: &PackedArray) -> i64 {
    sum_of(head, options, payloads.count(), payloads.as_str())
}

fn sum_of(head: &BatchHead, options: Option<&str>, count: u32, payloads: &str) -> i64 {
    let columns = BatchColumns {
        id: 0,
        run_id: None,
        lane_id: head.lane_id,
        count,
        priority: i64::from(head.priority),
        submitted_at: head.submitted_at.0,
        run_at: head.run_at.0,
        options,
        payloads,
    };
    columns.sum()
}

/// Reads id, lane, priority, submission, moment, options, bytes and count, beginning with this column.
pub(crate) fn read_head(row: &Row, first: usize) -> Result<(BatchId, BatchHead)> {
    let lane: i32 = row.try_get(first + 1)?;
    let priority: i16 = row.try_get(first + 2)?;
    let (bytes, count): (i32, i32) = (row.try_get(first + 6)?, row.try_get(first + 7)?);
    let options: Option<&str> = row.try_get(first + 5)?;
    let head = BatchHead {
        lane_id: i64::from(lane),
        priority,
        submitted_at: Timestamp(row.try_get(first + 3)?),
        run_at: Timestamp(row.try_get(first + 4)?),
        options: read_options(options)?,
        tagged: is_tagged(options)?,
        job_bytes: (bytes / count.max(1)).max(1).unsigned_abs(),
    };
    Ok((BatchId(row.try_get(first)?), head))
}

/// Reads a batch's options: `NULL` if all are default.
fn read_options(text: Option<&str>) -> Result<BatchOptions> {
    match text {
        None => Ok(BatchOptions::default()),
        Some(text) => Ok(serde_json::from_str(text)?),
    }
}

/// Reads the head of a batch and its payloads, beginning with these columns.
pub(crate) fn read_batch(row: &Row, first: usize) -> Result<(BatchId, BatchHead, PackedArray)> {
    read_batch_of(row, first, [first + 8, first + 9])
}

/// Does the same with payloads and checksum in columns elsewhere.
pub(crate) fn read_batch_of(
    row: &Row,
    first: usize,
    [payloads, sum]: [usize; 2],
) -> Result<(BatchId, BatchHead, PackedArray)> {
    let batch = BatchId(row.try_get(first)?);
    let (_, head) = in_batch(batch, "batch", read_head(row, first))?;
    let payloads: &str = row.try_get(payloads)?;
    let (options, sum) = (row.try_get(first + 5)?, row.try_get::<_, Option<i64>>(sum)?);
    // Housekeeping adds the checksums of batches that SQL functions have stored.
    match sum {
        Some(sum) if sum != sum_of(&head, options, number(row, first + 7)?, payloads) => Err(damaged(
            batch,
            "batch",
            "its payloads or options have changed since they were stored",
        )),
        _ => Ok((batch, head, PackedArray::from_stored(payloads))),
    }
}

/// Reads the keys of a batch from its columns scope, sum and keys.
pub(crate) fn read_keys(row: &Row, batch: BatchId, first: usize) -> Result<PackedArray> {
    let (scope, sum): (i32, Option<i64>) = (row.try_get(first)?, row.try_get(first + 1)?);
    let keys: &str = row.try_get(first + 2)?;
    match sum {
        Some(sum) if sum != keys_sum(batch, i64::from(scope), keys) => Err(damaged(
            batch,
            "keyed",
            "its keys have changed since they were stored",
        )),
        _ => Ok(PackedArray::from_stored(keys)),
    }
}

/// The columns of `reported` for [`CheckedReport::read`].
pub(crate) const REPORT_COLUMNS: &str =
    "batch_id, state, attempt, finished_at, sum, worker, positions, durations, logs, \"values\", count";

/// A report whose checksum is right.
pub(crate) struct CheckedReport<'r> {
    pub batch: BatchId,
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
    pub fn read(row: &'r Row) -> Result<CheckedReport<'r>> {
        let report = CheckedReport {
            batch: BatchId(row.try_get(0)?),
            positions: row.try_get::<_, Multirange>(6)?.0,
            attempt: number(row, 2)?,
            finished_at: Timestamp(row.try_get(3)?),
            worker: row.try_get(5)?,
            durations: row.try_get(7)?,
            logs: row.try_get(8)?,
            values: row.try_get(9)?,
        };
        let is_whole = report.positions.len() == number(row, 10)? && report.has_sum(row.try_get(4)?);
        if is_whole {
            Ok(report)
        } else {
            Err(damaged(
                report.batch,
                "report",
                "its values have changed since they were stored",
            ))
        }
    }

    /// Reports whether this is its checksum. Only reports of completed jobs have one.
    fn has_sum(&self, sum: Option<i64>) -> bool {
        let (Some(values), Some(sum)) = (self.values, sum) else {
            return sum.is_none();
        };
        let columns = ReportColumns {
            batch: self.batch,
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
}
