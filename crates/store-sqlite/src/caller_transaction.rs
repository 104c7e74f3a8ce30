//! Submitting within a transaction of the caller's.

mod foreign;

pub use foreign::{ForeignConnection, ForeignSubmitter, Row, Value};

use std::path::Path;

use gristmill_model::{BatchId, NewBatch, SplitMix64};
use gristmill_store::StoreError;
use gristmill_store::rules::check::check_batches;

use crate::SqliteStore;
use crate::transaction::{Memory, Transaction};

impl SqliteStore {
    /// Stores batches within a transaction of the caller's, on a connection of its own to the store's file, and returns
    /// their ids: they are there once the caller commits, and if it rolls back they never were. So a program that keeps
    /// its tables in the store's file submits jobs together with its rows. An error leaves the transaction to be rolled
    /// back.
    ///
    /// Begin it with `BEGIN IMMEDIATE`, so that no concurrent write makes it fail. While it is open, no
    /// other process writes. Call [`work_came`](SqliteStore::work_came) after COMMIT.
    ///
    /// # Errors
    ///
    /// As [`submit`](gristmill_store::Store::submit), and [`StoreError::InvalidInput`] for a connection to another file.
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
        // What it would remember may be rolled back, so it remembers nothing.
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
