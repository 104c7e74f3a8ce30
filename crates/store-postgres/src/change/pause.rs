//! Pauses of single jobs.
//!
//! Paused jobs are rows of `blocked`, which claims do not read, like jobs that wait for other jobs.

use crate::database::columns::sum;
use crate::database::transaction::Transaction;
use crate::failure::Result;
use crate::limits::EXPIRED_SLICES_PER_TRANSACTION;

impl Transaction {
    /// Ends some expired pauses.
    pub async fn end_pauses(&mut self) -> Result<()> {
        let row = self
            .query_opt(
                "SELECT gristmill.end_pauses($1, $2)",
                &[&self.now.0, &EXPIRED_SLICES_PER_TRANSACTION],
            )
            .await?;
        self.writes.news.woke |= row.map_or(Ok(0), |row| sum(&row, 0))? > 0;
        Ok(())
    }
}
