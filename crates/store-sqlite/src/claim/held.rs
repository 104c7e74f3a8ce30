//! The jobs that leases hold.
//!
//! The table has only running jobs, so it is read as a whole unless it is read by lease: another index would cost each
//! claim a page of the write-ahead log.

use gristmill_model::{BatchId, LeaseId, Positions, Timestamp, WorkerId};
use gristmill_store::Revoked;
use gristmill_store::rules::open::{Held, add_revoked};
use rusqlite::params;

use crate::claim::slice::NewSlice;
use crate::columns::{read_pauses, read_positions};
use crate::failure::{Failure, Result};
use crate::sums::{in_batch, read_counted};
use crate::transaction::Transaction;

/// Rows of `held` that meet a condition, as [`read`] reads them.
macro_rules! select_held {
    ($condition:literal) => {
        concat!(
            "SELECT lease_id, batch_id, attempt, first_position, worker_id, rescues, run_at, expires_at, positions, rank, pauses, \
             EXISTS (SELECT 1 FROM edge WHERE prerequisite_id = held.batch_id), family, count FROM held WHERE ",
            $condition
        )
    };
}

fn read(row: &rusqlite::Row<'_>) -> Result<Held> {
    Ok(Held {
        lease: row.get(0)?,
        batch: BatchId(row.get(1)?),
        attempt: row.get(2)?,
        first_position: row.get(3)?,
        worker: WorkerId(row.get(4)?),
        rescues: row.get(5)?,
        run_at: Timestamp(row.get(6)?),
        expires_at: row.get::<_, Option<i64>>(7)?.map(Timestamp),
        positions: read_counted(row, 8, 13)?,
        rank: row.get(9)?,
        pauses: read_pauses(row, 10)?,
        is_awaited: row.get(11)?,
        family: row.get(12)?,
    })
}

impl Transaction<'_> {
    /// The rows that a worker holds of a batch's attempt under a lease; usually one claimed slice.
    pub fn held_under(
        &self,
        worker: WorkerId,
        lease: LeaseId,
        batch: BatchId,
        attempt: u32,
    ) -> Result<Vec<Held>> {
        self.held(
            select_held!("lease_id = ?1 AND batch_id = ?2 AND attempt = ?3 AND worker_id = ?4"),
            params![lease.0, batch.0, attempt, worker.0],
        )
    }

    /// All rows that a worker holds.
    pub fn held_by(&self, worker: WorkerId) -> Result<Vec<Held>> {
        self.held(select_held!("worker_id = ?1"), [worker.0])
    }

    /// All rows held of a batch.
    pub fn held_of(&self, batch: BatchId) -> Result<Vec<Held>> {
        self.held(select_held!("batch_id = ?1"), [batch.0])
    }

    fn held(&self, sql: &str, params: impl rusqlite::Params) -> Result<Vec<Held>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            all.push(in_batch(BatchId(row.get(1)?), "held", read(row))?);
        }
        Ok(all)
    }

    /// Takes positions out of a lease.
    pub fn let_go(&mut self, held: &Held, positions: &Positions) -> Result<()> {
        let rest = held.without(positions);
        let changed = if rest.is_empty() {
            self.execute(
                "DELETE FROM held WHERE lease_id = ?1 AND batch_id = ?2 AND attempt = ?3 AND first_position = ?4",
                params![held.lease, held.batch.0, held.attempt, held.first_position],
            )?
        } else {
            self.execute(
                "UPDATE held SET positions = ?5, count = ?6 \
                 WHERE lease_id = ?1 AND batch_id = ?2 AND attempt = ?3 AND first_position = ?4",
                params![
                    held.lease,
                    held.batch.0,
                    held.attempt,
                    held.first_position,
                    rest.to_string(),
                    rest.len()
                ],
            )?
        };
        if changed == 1 {
            self.freed();
            Ok(())
        } else {
            Err(Failure::Damaged(format!(
                "lease {} changed {changed} rows of batch {}",
                held.lease, held.batch
            )))
        }
    }

    /// Splits some positions of a lease off into a row of their own, and returns that row.
    pub fn split_held(&self, held: &Held, positions: &Positions) -> Result<Held> {
        let rest = held.without(positions);
        let mut split = Held {
            positions: positions.clone(),
            ..held.clone()
        };
        let Some(first) = rest.first() else {
            return Ok(split);
        };
        // The old row keeps the positions among which its key is.
        let (kept, moved, number) = if positions.contains(held.first_position) {
            (positions, &rest, first)
        } else {
            (&rest, positions, positions.first().unwrap_or(first))
        };
        assert_eq!(kept.len() + moved.len(), held.positions.len());
        assert!(!moved.contains(held.first_position), "the old row keeps its key");
        self.execute(
            "INSERT INTO held (lease_id, batch_id, attempt, first_position, worker_id, rescues, run_at, count, expires_at, \
             positions, lane_id, rank, pauses, family, claimed_at) SELECT lease_id, batch_id, attempt, ?5, worker_id, rescues, run_at, \
             ?6, expires_at, ?7, lane_id, rank, pauses, family, claimed_at FROM held \
             WHERE lease_id = ?1 AND batch_id = ?2 AND attempt = ?3 AND first_position = ?4",
            params![
                held.lease,
                held.batch.0,
                held.attempt,
                held.first_position,
                number,
                moved.len(),
                moved.to_string()
            ],
        )?;
        self.execute(
            "UPDATE held SET positions = ?5, count = ?6 \
             WHERE lease_id = ?1 AND batch_id = ?2 AND attempt = ?3 AND first_position = ?4",
            params![
                held.lease,
                held.batch.0,
                held.attempt,
                held.first_position,
                kept.to_string(),
                kept.len()
            ],
        )?;
        if !positions.contains(held.first_position) {
            split.first_position = number;
        }
        Ok(split)
    }

    /// Gives held jobs another place in line, for when they come back.
    pub fn rank_held(&self, held: &Held, rank: i32) -> Result<()> {
        self.execute(
            "UPDATE held SET rank = ?5 \
             WHERE lease_id = ?1 AND batch_id = ?2 AND attempt = ?3 AND first_position = ?4",
            params![held.lease, held.batch.0, held.attempt, held.first_position, rank],
        )?;
        Ok(())
    }

    /// Makes positions claimable again, on the same attempt and in their old place in line.
    pub fn give_back(
        &mut self,
        held: &Held,
        positions: &Positions,
        rescues: u32,
        expires_at: Option<Timestamp>,
    ) -> Result<()> {
        assert!(held.positions.contains_all(positions));
        let head = self.head(held.batch)?;
        let slice = NewSlice {
            rescues,
            expires_at,
            ..NewSlice::back(held, &head, positions)
        };
        self.bring_back(held, &head, &slice)
    }

    /// Stores that a worker lost positions, until its next heartbeat.
    pub fn revoke(&self, held: &Held, positions: &Positions) -> Result<()> {
        assert!(!positions.is_empty() && held.positions.contains_all(positions));
        self.execute(
            "INSERT INTO revoked (worker_id, lease_id, batch_id, number, positions) \
             SELECT ?1, ?2, ?3, coalesce(max(number) + 1, 0), ?4 FROM revoked \
             WHERE worker_id = ?1 AND lease_id = ?2 AND batch_id = ?3",
            params![held.worker.0, held.lease, held.batch.0, positions.to_string()],
        )?;
        Ok(())
    }

    /// The jobs that a worker lost since its last heartbeat.
    pub fn take_revoked(&self, worker: WorkerId) -> Result<Vec<Revoked>> {
        let mut revoked: Vec<Revoked> = Vec::new();
        {
            let mut statement = self.connection.prepare_cached(
                "SELECT lease_id, batch_id, positions FROM revoked WHERE worker_id = ?1 \
                 ORDER BY lease_id, batch_id, number",
            )?;
            let mut rows = statement.query([worker.0])?;
            while let Some(row) = rows.next()? {
                let (lease, batch) = (LeaseId(row.get(0)?), BatchId(row.get(1)?));
                let positions = read_positions(row, 2)?;
                add_revoked(&mut revoked, lease, batch, positions);
            }
        }
        if !revoked.is_empty() {
            self.execute("DELETE FROM revoked WHERE worker_id = ?1", [worker.0])?;
        }
        Ok(revoked)
    }
}
