//! Connections for queries. In WAL mode they read snapshots beside the writer.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use gristmill_store::StoreError;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failure::Result;
use crate::limits::READERS_MAX;
use crate::open::open_reader;

/// A connection that its holder keeps between queries. Closing the pool waits for it.
#[derive(Debug)]
pub(crate) struct KeptConnection {
    pub connection: Connection,
    _permit: OwnedSemaphorePermit,
}

/// A pool of read-only connections; each is opened when it is first needed.
#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    busy_timeout_ms: u32,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    kept_permit: Arc<Semaphore>,
}

impl Readers {
    pub fn new(path: PathBuf, busy_timeout_ms: u32) -> Arc<Self> {
        Arc::new(Readers {
            path,
            busy_timeout_ms,
            idle: Mutex::new(Vec::new()),
            permits: Arc::new(Semaphore::new(READERS_MAX)),
            kept_permit: Arc::new(Semaphore::new(1)),
        })
    }

    /// Runs queries on one snapshot, on a thread where they may block.
    pub async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        query: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> std::result::Result<T, StoreError> {
        self.blocking(&self.permits, move |readers, _permit| readers.read_now(query))
            .await
    }

    /// The one connection beside those of the pool; waits for its last holder.
    pub async fn connect_kept(self: &Arc<Self>) -> std::result::Result<KeptConnection, StoreError> {
        self.blocking(&self.kept_permit, |readers, permit| {
            let connection = readers.connect()?;
            Ok(KeptConnection {
                connection,
                _permit: permit,
            })
        })
        .await
    }

    /// Works on a thread where it may block, once there is a permit.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        permits: &Arc<Semaphore>,
        work: impl FnOnce(&Readers, OwnedSemaphorePermit) -> Result<T> + Send + 'static,
    ) -> std::result::Result<T, StoreError> {
        let permit = permits.clone().acquire_owned().await;
        let permit = permit.map_err(|_| StoreError::Closed)?;
        let readers = self.clone();
        let task = tokio::task::spawn_blocking(move || {
            work(&readers, permit).map_err(|failure| failure.at(&readers.path, readers.busy_timeout_ms))
        });
        match task.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => Err(StoreError::Panicked(gristmill_store::rules::panic_text(
                &*error.into_panic(),
            ))),
            Err(_) => Err(StoreError::Closed),
        }
    }

    fn read_now<T>(&self, query: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let idle = self.lock_idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let snapshot = connection.unchecked_transaction()?;
        let answer = query(&snapshot)?;
        snapshot.finish()?;
        // After an error the connection is closed instead of kept.
        self.lock_idle().push(connection);
        Ok(answer)
    }

    fn connect(&self) -> Result<Connection> {
        open_reader(&self.path, self.busy_timeout_ms)
    }

    /// Refuses later queries, waits for those that run, and closes the connections: then this process does not have the file
    /// open. Another copy of SQLite in it, as Python's, must not use the file before: closing one loses the locks of both.
    pub async fn close(&self) {
        // An error: they are closed already.
        let queries = self.permits.acquire_many(READERS_MAX as u32).await;
        let kept = self.kept_permit.acquire().await;
        self.refuse();
        drop((queries, kept));
    }

    /// Refuses later queries, and closes the connections that are idle.
    pub fn refuse(&self) {
        self.permits.close();
        self.kept_permit.close();
        self.lock_idle().clear();
    }

    fn lock_idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
