//! Slices: claimable positions.

use crate::database::rows::Slice;
use crate::database::transaction::Transaction;
use crate::failure::Result;

impl Transaction {
    /// The slices that nobody started in time, locked, except those that others are claiming or expiring.
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
