//! Submits within a transaction of the caller.

mod foreign;

pub use foreign::{ForeignConnection, ForeignSubmitter, Row, Value};

use std::path::Path;

use gristmill_model::{BatchId, NewBatch, SplitMix64};
use gristmill_store::StoreError;
use gristmill_store::rules::check::check_batches;

use crate::SqliteStore;
use crate::transaction::{Memory, Transaction};

impl SqliteStore {
    /// Stores batches within a transaction of the caller, on its own connection to the store's file, and returns their
    /// ids. The jobs exist once the caller commits; after a rollback they never existed. So a program that keeps its
    /// tables in the store's file can submit jobs together with its rows. After an error, the caller must roll the
    /// transaction back.
    ///
    /// Begin the transaction with `BEGIN IMMEDIATE`, so that no concurrent write makes it fail. While it is open, no
    /// other process can write. Call [`work_came`](SqliteStore::work_came) after COMMIT.
    ///
    /// # Errors
    ///
    /// Those of [`submit`](gristmill_store::Store::submit), and [`StoreError::InvalidInput`] for a connection to
    /// another file.
    pub fn submit_within(
        &self,
        connection: &rusqlite::Connection,
        batches: &[NewBatch],
    ) -> Result<Vec<BatchId>, StoreError> {
        check_batches(batches)?;
        let canonical = |path: &Path| path.canonicalize().ok();
        let other = connection.path().map(Path::new);
        if other.and_then(canonical) != canonical(&self.path) {
            return Err(StoreError::InvalidInput(format!(
                "the connection is to {}, but the store's file is {}: connect to that file",
                other.map_or_else(|| "no file".into(), |path| path.display().to_string()),
                self.path.display()
            )));
        }
        if connection.is_autocommit() {
            return Err(StoreError::InvalidInput(
                "the connection has no transaction: begin one with BEGIN IMMEDIATE".to_owned(),
            ));
        }
        // The transaction may be rolled back, so this memory is not kept.
        let mut memory = Memory::new(Box::new(SplitMix64::new(0)));
        let mut transaction = Transaction::new(connection, &mut memory, self.clock.now());
        transaction
            .submit(batches, None)
            .map_err(|failure| failure.at(&self.path, 0))
    }

    /// Wakes the waiters for work in this process. Call it after the COMMIT of a transaction that submitted jobs.
    pub fn work_came(&self) {
        self.work.add();
    }
}
