//! Jobs that wait for others.
//!
//! What waits stands in `blocked`, out of the way of claims; each thing that it waits for is a row of `edge`. An operation
//! that ends jobs of a batch that others wait for settles their edges (`gristmill.settle`) in its transaction.

use std::collections::{BTreeMap, HashMap};

use gristmill_model::{BatchId, NewBatch, Positions, Timestamp};
use tokio_postgres::Row;

use super::failure::Result;
use super::multirange::Multirange;
use super::query::{number, sum};
use super::transaction::Transaction;
use crate::StoreError;
use crate::dependency::{check_stored, stored_prerequisites};

/// The part of a batch that waits to begin: all of it.
pub(super) const WHOLE: u32 = 0;

/// Jobs that wait for others. The key is the batch and the part of it.
#[derive(Debug)]
pub(super) struct Blocked {
    pub batch: BatchId,
    pub part: u32,
    /// The attempt that comes next.
    pub attempt: u32,
    pub rescues: u32,
    pub expires_at: Option<Timestamp>,
    pub positions: Positions,
}

impl Blocked {
    fn read(row: &Row) -> Result<Blocked> {
        Ok(Blocked {
            batch: BatchId(row.try_get(0)?),
            part: number(row, 1)?,
            attempt: number(row, 2)?,
            rescues: number(row, 3)?,
            expires_at: row.try_get::<_, Option<i64>>(4)?.map(Timestamp),
            positions: row.try_get::<_, Multirange>(5)?.0,
        })
    }
}

/// Batches of which jobs have ended, each with the last position that may have.
#[derive(Debug, Default)]
pub(super) struct Ended(BTreeMap<BatchId, u32>);

impl Ended {
    pub fn add(&mut self, batch: BatchId, positions: &Positions) {
        if let Some(last) = positions.last() {
            let known = self.0.entry(batch).or_default();
            *known = (*known).max(last);
        }
    }

    pub fn add_all(&mut self, batch: BatchId) {
        self.0.insert(batch, i32::MAX.cast_unsigned());
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As `gristmill.settle` takes them.
    pub fn into_params(self) -> (Vec<i64>, Vec<i32>) {
        let all = self.0.into_iter();
        all.map(|(batch, last)| (batch.0, last.cast_signed())).unzip()
    }
}

impl Transaction {
    /// Of the stored batches that these wait for: how many jobs each has. Locks what is open of them, so that it stands
    /// still until their edges are stored.
    pub async fn lock_prerequisites(&self, stored: &[i64]) -> Result<HashMap<BatchId, u32>> {
        self.query("SELECT gristmill.lock_batches($1)", &[&stored])
            .await?;
        let rows = self
            .query(
                "SELECT id, count FROM gristmill.batch WHERE id = ANY ($1)",
                &[&stored],
            )
            .await?;
        rows.iter()
            .map(|row| Ok((BatchId(row.try_get(0)?), number(row, 1)?)))
            .collect()
    }

    /// Says of stored batches that others wait for them.
    pub async fn await_batches(&self, stored: &[i64]) -> Result<()> {
        self.query("SELECT gristmill.await($1)", &[&stored]).await?;
        Ok(())
    }

    /// Settles the edges that lead to what has ended. Returns whether jobs can be claimed for that.
    pub async fn settle(&mut self, ended: Ended) -> Result<bool> {
        if ended.is_empty() {
            return Ok(false);
        }
        self.flush().await?;
        let (batches, lasts) = ended.into_params();
        let row = self
            .query_opt(
                "SELECT gristmill.settle($1, $2, $3)",
                &[&batches, &lasts, &self.now.0],
            )
            .await?;
        let claimable = row.map_or(Ok(0), |row| sum(&row, 0))?;
        self.writes.woke |= claimable > 0;
        Ok(claimable > 0)
    }

    /// What waited for longer than it may, locked; but for what others are at.
    pub async fn expired_blocked(&self, rows_max: i64) -> Result<Vec<Blocked>> {
        let rows = self
            .query(
                "SELECT batch_id, part, attempt, rescues, expires_at, positions FROM gristmill.blocked \
                 WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED",
                &[&self.now.0, &rows_max],
            )
            .await?;
        rows.iter().map(Blocked::read).collect()
    }
}

/// Refuses batches that wait for what there is not.
pub(super) fn check_prerequisites<'a>(
    batches: impl Iterator<Item = &'a NewBatch>,
    counts: &HashMap<BatchId, u32>,
) -> std::result::Result<(), StoreError> {
    for (batch, last) in stored_prerequisites(batches) {
        check_stored(batch, counts.get(&batch).copied(), last)?;
    }
    Ok(())
}
