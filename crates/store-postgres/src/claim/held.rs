//! The jobs that leases hold.

use gristmill_model::{BatchId, LeaseId, WorkerId};
use gristmill_store::Revoked;
use gristmill_store::rules::open::{Held, add_revoked};
use tokio_postgres::Row;

use crate::database::rows::read_held;
use crate::database::transaction::Transaction;
use crate::failure::Result;
use crate::multirange::Multirange;

/// The columns that [`read_held`] reads.
macro_rules! select_held {
    ($rest:literal) => {
        concat!(
            "SELECT h.lease_id, h.batch_id, h.attempt, h.first_position, h.worker_id, h.rescues, h.run_at, \
             h.expires_at, h.positions, h.rank, h.pauses::text, h.awaited, h.family FROM gristmill.held h ",
            $rest
        )
    };
}

fn read_all(rows: &[Row]) -> Result<Vec<Held>> {
    rows.iter().map(read_held).collect()
}

impl Transaction {
    /// The rows that a worker holds under these leases, batches and attempts, locked. Usually each key has one claimed slice.
    pub async fn held_under(&self, worker: WorkerId, keys: &[(LeaseId, BatchId, u32)]) -> Result<Vec<Held>> {
        let leases: Vec<i64> = keys.iter().map(|key| key.0.0).collect();
        let batches: Vec<i64> = keys.iter().map(|key| key.1.0).collect();
        let attempts: Vec<i32> = keys.iter().map(|key| key.2.cast_signed()).collect();
        let rows = self
            .query(
                select_held!(
                    "JOIN (SELECT DISTINCT * FROM unnest($2::bigint[], $3::bigint[], $4::integer[]) k (lease_id, batch_id, attempt)) k \
                     ON h.lease_id = k.lease_id AND h.batch_id = k.batch_id AND h.attempt = k.attempt \
                     WHERE h.worker_id = $1 ORDER BY h.lease_id, h.batch_id, h.attempt, h.first_position FOR UPDATE OF h"
                ),
                &[&worker.0, &leases, &batches, &attempts],
            )
            .await?;
        read_all(&rows)
    }

    /// The batches of which a worker holds jobs.
    pub async fn batches_held_by(&self, worker: WorkerId) -> Result<Vec<BatchId>> {
        let rows = self
            .query(
                "SELECT DISTINCT batch_id FROM gristmill.held WHERE worker_id = $1 ORDER BY batch_id",
                &[&worker.0],
            )
            .await?;
        rows.iter().map(|row| Ok(BatchId(row.try_get(0)?))).collect()
    }

    /// All rows that a worker holds, locked.
    pub async fn held_by(&self, worker: WorkerId) -> Result<Vec<Held>> {
        let rows = self
            .query(
                select_held!(
                    "WHERE h.worker_id = $1 ORDER BY h.lease_id, h.batch_id, h.attempt, h.first_position FOR UPDATE"
                ),
                &[&worker.0],
            )
            .await?;
        read_all(&rows)
    }

    /// The jobs that a worker lost since its last heartbeat.
    pub async fn take_revoked(&self, worker: WorkerId) -> Result<Vec<Revoked>> {
        let rows = self
            .query(
                "WITH gone AS (DELETE FROM gristmill.revoked WHERE worker_id = $1 RETURNING lease_id, batch_id, id, positions) \
                 SELECT lease_id, batch_id, positions FROM gone ORDER BY lease_id, batch_id, id",
                &[&worker.0],
            )
            .await?;
        let mut revoked: Vec<Revoked> = Vec::new();
        for row in &rows {
            let (lease, batch) = (LeaseId(row.try_get(0)?), BatchId(row.try_get(1)?));
            let positions = row.try_get::<_, Multirange>(2)?.0;
            add_revoked(&mut revoked, lease, batch, positions);
        }
        Ok(revoked)
    }
}
