//! Connections for queries. In WAL mode they read snapshots while the writer writes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use gristmill_store::StoreError;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failure::Result;
use crate::limits::READERS_MAX;
use crate::open::place::{Content, OpenFiles};
use crate::open::{open_alone, open_reader};

/// A connection that its holder keeps between queries. Closing the pool waits for it.
#[derive(Debug)]
pub(crate) struct KeptConnection {
    pub connection: Connection,
    pub files: Arc<OpenFiles>,
    _permit: OwnedSemaphorePermit,
}

/// A pool of read-only connections; each is opened when it is first needed.
#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    files: Arc<OpenFiles>,
    /// Whether this process has no writer.
    alone: bool,
    busy_timeout_ms: u32,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    kept_permit: Arc<Semaphore>,
}

impl Readers {
    pub fn new(path: PathBuf, files: Arc<OpenFiles>, alone: bool, busy_timeout_ms: u32) -> Arc<Self> {
        Arc::new(Readers {
            path,
            files,
            alone,
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

    /// The one connection outside of the pool; waits for its last holder.
    pub async fn connect_kept(self: &Arc<Self>) -> std::result::Result<KeptConnection, StoreError> {
        self.blocking(&self.kept_permit, |readers, permit| {
            if readers.alone {
                return Err(StoreError::Database("news of changes need a writer".to_owned()).into());
            }
            Ok(KeptConnection {
                connection: readers.connect()?,
                files: readers.files.clone(),
                _permit: permit,
            })
        })
        .await
    }

    /// Works on a thread where it may block, once it has a permit.
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
        if self.alone {
            return self.read_alone(query);
        }
        let idle = self.lock_idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let answer = on_a_snapshot(&connection, query);
        self.files.check()?;
        let answer = answer?;
        // After an error the connection is closed instead of kept.
        self.lock_idle().push(connection);
        Ok(answer)
    }

    /// Connects, after a check of the path: a connection to another file there would delete the log when it closes.
    fn connect(&self) -> Result<Connection> {
        self.files.check()?;
        open_reader(&self.path, self.busy_timeout_ms)
    }

    /// Reads a file that nobody changes, and checks that afterwards, because others may begin to write to it.
    fn read_alone<T>(&self, query: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let before = Content::of(&self.path);
        let connection = open_alone(&self.path, self.busy_timeout_ms)?;
        let answer = on_a_snapshot(&connection, query);
        self.files.check()?;
        if !before.has_log && Content::of(&self.path) != before {
            return Err(StoreError::Changed {
                path: self.path.clone(),
            }
            .into());
        }
        answer
    }

    /// Refuses later queries, waits for running ones, and closes the connections: then this process does not have the
    /// file open. Another copy of SQLite in the process, such as Python's, must not use the file before: closing one
    /// loses the locks of both.
    pub async fn close(&self) {
        // An error means that they are closed already.
        let queries = self.permits.acquire_many(READERS_MAX as u32).await;
        let kept = self.kept_permit.acquire().await;
        self.refuse();
        drop((queries, kept));
    }

    /// Refuses later queries, and closes the idle connections.
    pub fn refuse(&self) {
        self.permits.close();
        self.kept_permit.close();
        self.lock_idle().clear();
    }

    fn lock_idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn on_a_snapshot<T>(connection: &Connection, query: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
    let snapshot = connection.unchecked_transaction()?;
    let answer = query(&snapshot)?;
    snapshot.finish()?;
    Ok(answer)
}
