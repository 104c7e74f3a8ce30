//! Rows of the tables of open jobs.

use gristmill_model::{BatchId, Positions, Timestamp, WorkerId};
use gristmill_store::rules::deadline::Standing;
use gristmill_store::rules::open::{Blocked, Held};
use tokio_postgres::Row;

use crate::database::columns::{number, read_pauses};
use crate::failure::Result;
use crate::multirange::Multirange;

/// A stored slice. Its key is its batch and its id.
#[derive(Debug, Clone)]
pub(crate) struct Slice {
    pub batch: BatchId,
    pub id: i64,
    pub lane_id: i64,
    /// The negated priority.
    pub rank: i32,
    pub run_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// The next attempt.
    pub attempt: u32,
    pub rescues: u32,
    /// The mean size of the batch's payloads.
    pub job_bytes: u32,
    pub positions: Positions,
    /// Whether other jobs wait for jobs of the batch.
    pub is_awaited: bool,
    /// The family of the parents that the slice finalizes, if it does.
    pub family: Option<i64>,
}

impl Slice {
    /// Reads the [`COLUMNS`](Slice::COLUMNS), beginning with this column.
    pub fn read(row: &Row, first: usize) -> Result<Slice> {
        let count = |column: usize| number(row, first + column);
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

    /// The standing of its jobs.
    pub fn standing(&self) -> Standing {
        Standing {
            attempt: self.attempt,
            rescues: self.rescues,
            expires_at: self.expires_at,
        }
    }
}

/// A slice to insert: positions that become claimable.
#[derive(Debug)]
pub(crate) struct NewSlice<'a> {
    pub positions: &'a Positions,
    /// The negated priority.
    pub rank: i32,
    pub run_at: Timestamp,
    pub attempt: u32,
    pub rescues: u32,
    pub expires_at: Option<Timestamp>,
    /// Whether other jobs wait for jobs of the batch.
    pub is_awaited: bool,
    /// The family of the parents that the slice finalizes, if it does.
    pub family: Option<i64>,
}

/// Reads a row of `held`.
pub(crate) fn read_held(row: &Row) -> Result<Held> {
    Ok(Held {
        lease: row.try_get(0)?,
        batch: BatchId(row.try_get(1)?),
        attempt: number(row, 2)?,
        first_position: number(row, 3)?,
        worker: WorkerId(row.try_get(4)?),
        rescues: number(row, 5)?,
        run_at: Timestamp(row.try_get(6)?),
        expires_at: row.try_get::<_, Option<i64>>(7)?.map(Timestamp),
        positions: row.try_get::<_, Multirange>(8)?.0,
        rank: row.try_get(9)?,
        pauses: read_pauses(row, 10)?,
        is_awaited: row.try_get(11)?,
        family: row.try_get(12)?,
    })
}

/// The part of a slice that a claim takes.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub slice: Slice,
    pub positions: Positions,
}

impl Taken {
    /// The row of `held` for the lease that takes it.
    pub fn held(&self, worker: WorkerId, lease: i64) -> Held {
        Held {
            lease,
            batch: self.slice.batch,
            attempt: self.slice.attempt,
            first_position: self.positions.first().unwrap_or(0),
            worker,
            rescues: self.slice.rescues,
            run_at: self.slice.run_at,
            expires_at: self.slice.expires_at,
            positions: self.positions.clone(),
            rank: Some(self.slice.rank),
            pauses: None,
            is_awaited: self.slice.is_awaited,
            family: self.slice.family,
        }
    }
}

/// Reads a row of `blocked`, except its pauses and its moment.
pub(crate) fn read_blocked(row: &Row) -> Result<Blocked> {
    Ok(Blocked {
        batch: BatchId(row.try_get(0)?),
        part: number(row, 1)?,
        attempt: number(row, 2)?,
        rescues: number(row, 3)?,
        expires_at: row.try_get::<_, Option<i64>>(4)?.map(Timestamp),
        positions: row.try_get::<_, Multirange>(5)?.0,
        rank: row.try_get(6)?,
        run_at: None,
        pauses: None,
        family: row.try_get(7)?,
    })
}
