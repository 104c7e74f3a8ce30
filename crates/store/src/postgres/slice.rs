//! Slices: claimable positions.

use gristmill_model::{BatchId, Positions, Timestamp};
use tokio_postgres::Row;

use super::failure::Result;
use super::multirange::Multirange;
use super::transaction::Transaction;

/// A stored slice. Its key is its batch and its id.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    pub batch: BatchId,
    pub id: i64,
    pub lane_id: i64,
    /// The priority, negated.
    pub rank: i32,
    pub run_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// The attempt that comes next.
    pub attempt: u32,
    pub rescues: u32,
    /// Of the batch's payloads, in the mean.
    pub job_bytes: u32,
    pub positions: Positions,
    /// Whether others wait for jobs of the batch.
    pub is_awaited: bool,
    /// The family whose parents it finalizes, if it does.
    pub family: Option<i64>,
}

impl Slice {
    /// Reads the [`COLUMNS`](Slice::COLUMNS), from this one on.
    pub fn read(row: &Row, first: usize) -> Result<Slice> {
        let count =
            |column: usize| -> Result<u32> { Ok(row.try_get::<_, i32>(first + column)?.unsigned_abs()) };
        Ok(Slice {
            batch: BatchId(row.try_get(first)?),
            id: row.try_get(first + 1)?,
            lane_id: i64::from(row.try_get::<_, i32>(first + 2)?),
            rank: row.try_get(first + 3)?,
            run_at: Timestamp(row.try_get(first + 4)?),
            expires_at: row.try_get::<_, Option<i64>>(first + 5)?.map(Timestamp),
            attempt: count(6)?,
            rescues: count(7)?,
            job_bytes: count(8)?,
            positions: row.try_get::<_, Multirange>(first + 9)?.0,
            is_awaited: row.try_get(first + 10)?,
            family: row.try_get(first + 11)?,
        })
    }
}

/// Positions that become claimable.
#[derive(Debug)]
pub(super) struct NewSlice<'a> {
    pub positions: &'a Positions,
    /// The priority, negated.
    pub rank: i32,
    pub run_at: Timestamp,
    pub attempt: u32,
    pub rescues: u32,
    pub expires_at: Option<Timestamp>,
    /// Whether others wait for jobs of the batch.
    pub is_awaited: bool,
    /// The family whose parents finalize, if they do.
    pub family: Option<i64>,
}

impl Transaction {
    /// The slices that nobody started in time, locked; but for those that others are claiming or expiring.
    pub async fn expired_slices(&self, slices_max: i64) -> Result<Vec<Slice>> {
        let rows = self
            .query(
                "SELECT batch_id, id, lane_id, rank, run_at, expires_at, attempt, rescues, job_bytes, positions, \
                 awaited, family FROM gristmill.slice WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED",
                &[&self.now.0, &slices_max],
            )
            .await?;
        rows.iter().map(|row| Slice::read(row, 0)).collect()
    }
}
