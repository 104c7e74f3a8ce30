//! The end of a store: its queue is written out, and its files are closed.

use std::sync::PoisonError;
use std::thread::JoinHandle;

use gristmill_batching::BatchStats;
use gristmill_store::{Store, StoreError};

use crate::SqliteStore;
use crate::writer::operation::Operation;

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.ended.close();
        self.readers.refuse();
        // Without submitters, the writer completes its queue and ends.
        self.hand_over = None;
        if let Some(writer) = self.take_writer()
            && writer.join().is_err()
        {
            tracing::error!(path = %self.path.display(), "the store's writer panicked");
        }
    }
}

impl SqliteStore {
    fn take_writer(&self) -> Option<JoinHandle<()>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Writes the queue out, and closes all connections.
    pub(crate) async fn end(&self) -> Result<(), StoreError> {
        if self.read_only.is_some() {
            self.ended.close();
            self.readers.close().await;
            return Ok(());
        }
        // The counts that only the writer has would be lost with it.
        let recorded = self.record(BatchStats::default()).await;
        self.ended.close();
        // The writer's connection is closed last: SQLite then moves the log into the file and removes it.
        self.readers.close().await;
        let closed = self.hand_over(Operation::Close, 0).await;
        if let Some(writer) = self.take_writer() {
            // The thread has replied and has nothing left to do; joining it makes sure that the file is closed.
            let joined = tokio::task::spawn_blocking(move || writer.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                return Err(StoreError::Database("the store's writer panicked".to_owned()));
            }
        }
        match recorded.and(closed.map(|_| ())) {
            Ok(()) | Err(StoreError::Closed) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
