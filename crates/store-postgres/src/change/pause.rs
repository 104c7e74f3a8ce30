//! Pauses of single jobs.
//!
//! What is paused stands in `blocked`, out of the way of claims, as what waits for others does.

use crate::database::columns::sum;
use crate::database::transaction::Transaction;
use crate::failure::Result;
use crate::limits::EXPIRED_SLICES_PER_TRANSACTION;

impl Transaction {
    /// Ends some pauses that are over.
    pub async fn end_pauses(&mut self) -> Result<()> {
        let row = self
            .query_opt(
                "SELECT gristmill.end_pauses($1, $2)",
                &[&self.now.0, &EXPIRED_SLICES_PER_TRANSACTION],
            )
            .await?;
        self.writes.woke |= row.map_or(Ok(0), |row| sum(&row, 0))? > 0;
        Ok(())
    }
}
