//! Queries on one snapshot, concurrent with the writers.

use std::sync::Mutex;
use std::sync::PoisonError;

use gristmill_store::StoreError;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::database::answers::Pending;
use crate::database::connection::{Param, Pooled, close};
use crate::failure::Result;

/// A read-only transaction: all of its queries see the same moment. If it is dropped before its end, its connection is
/// closed with it.
#[derive(Debug)]
pub(crate) struct Snapshot {
    connection: Option<Pooled>,
    begin: Mutex<Option<Pending<()>>>,
}

impl Snapshot {
    /// Begins the transaction; the answer is awaited with that of the first query.
    pub fn begin(connection: Pooled) -> Snapshot {
        let begin = connection.begin("REPEATABLE READ READ ONLY");
        Snapshot {
            connection: Some(connection),
            begin: Mutex::new(Some(begin)),
        }
    }

    /// Returns all rows of a query.
    pub async fn query(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let Some(connection) = &self.connection else {
            return Ok(Vec::new());
        };
        let rows = connection.rows(sql, params).await;
        self.begun().await?;
        rows
    }

    /// Sends a query without waiting for its answer.
    pub async fn send(&self, sql: &str, params: Vec<Param>) -> Result<Pending<Vec<Row>>> {
        let Some(connection) = &self.connection else {
            return Err(StoreError::Closed.into());
        };
        let rows = connection.send(sql, params).await;
        self.begun().await?;
        rows
    }

    /// Waits for the begin, once.
    async fn begun(&self) -> Result<()> {
        let begin = self.begin.lock().unwrap_or_else(PoisonError::into_inner).take();
        match begin {
            Some(begin) => begin.await,
            None => Ok(()),
        }
    }

    /// Returns the first row of a query.
    pub async fn query_opt(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// Ends the transaction, and gives the connection back if all went well.
    pub fn end(mut self, went_well: bool) {
        if let Some(connection) = self.connection.take() {
            if went_well {
                // The next user of the connection sends after this commit; nothing depends on its answer.
                drop(connection.commit())
            } else {
                close(connection)
            }
        }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            close(connection);
        }
    }
}
