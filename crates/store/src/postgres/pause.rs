//! Pauses of single jobs.
//!
//! What is paused stands in `blocked`, out of the way of claims, as what waits for others does.

use tokio_postgres::Row;

use super::failure::Result;
use super::limits::EXPIRED_SLICES_PER_TRANSACTION;
use super::query::sum;
use super::transaction::Transaction;
use crate::pauses::Pauses;

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

/// A column of pauses, as a text.
pub(super) fn read_pauses(row: &Row, column: usize) -> Result<Option<Pauses>> {
    let text: Option<&str> = row.try_get(column)?;
    Ok(text.map(serde_json::from_str).transpose()?)
}
