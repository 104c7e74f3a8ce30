//! Notifies the watches of outcomes. Commits of this store wake them at once. SQLite has no notifications of other
//! processes, so the store polls the file for changes while there are watches.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gristmill_model::BatchId;
use gristmill_store::awaited::{Awaited, OutcomeWatch};
use rusqlite::Connection;
use tokio::task::AbortHandle;

use crate::failure::Result;
use crate::limits::{LOOK_FOR_CHANGES_EVERY, WATCHES_PER_LOOK};
use crate::readers::Readers;

/// Notifies the watches of one handle.
#[derive(Debug, Default)]
pub(crate) struct EndedLookout {
    awaited: Arc<Awaited>,
    looking: Mutex<Option<AbortHandle>>,
}

impl EndedLookout {
    /// Begins to wait for a batch, and to look for changes unless a task already does. Needs a Tokio runtime.
    pub fn watch(&self, batch: BatchId, readers: &Arc<Readers>) -> OutcomeWatch {
        let watch = self.awaited.watch(batch);
        self.lock_looking().get_or_insert_with(|| {
            let (awaited, readers) = (self.awaited.clone(), readers.clone());
            tokio::spawn(async move { look(&awaited, &readers).await }).abort_handle()
        });
        watch
    }

    /// Wakes the watches of these batches, whose reports this store has committed.
    pub fn wake(&self, reported: impl IntoIterator<Item = BatchId>) {
        self.awaited.wake(reported);
    }

    /// Stops looking.
    pub fn close(&self) {
        if let Some(looking) = &*self.lock_looking() {
            looking.abort();
        }
    }

    fn lock_looking(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        self.looking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks for changes while batches are awaited.
async fn look(awaited: &Awaited, readers: &Arc<Readers>) {
    loop {
        while awaited.is_empty() {
            awaited.changed().await;
        }
        if let Err(reason) = look_while_awaited(awaited, readers).await {
            tracing::debug!(reason, "the store is looked at without news of its changes");
            awaited.wake_all();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

async fn look_while_awaited(awaited: &Awaited, readers: &Arc<Readers>) -> std::result::Result<(), String> {
    let mut kept = readers.connect_kept().await.map_err(|error| error.to_string())?;
    let mut seen = None;
    loop {
        let watches = awaited.len();
        if watches == 0 {
            return Ok(());
        }
        let version;
        (kept, version) = blocking(move || {
            let version = data_version(&kept.connection)?;
            kept.files.check()?;
            Ok((kept, version))
        })
        .await?;
        if seen.replace(version) != Some(version) {
            awaited.wake_all();
        }
        // Each watch then makes a query: with more watches, looks are rarer.
        let factor = 1 + u32::try_from(watches / WATCHES_PER_LOOK).unwrap_or(u32::MAX - 1);
        tokio::time::sleep(LOOK_FOR_CHANGES_EVERY.saturating_mul(factor)).await;
    }
}

/// A number that changes with each COMMIT of another connection.
pub(crate) fn data_version(connection: &Connection) -> Result<i64> {
    let mut statement = connection.prepare_cached("PRAGMA data_version")?;
    Ok(statement.query_row([], |row| row.get(0))?)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> std::result::Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|failure| format!("{failure:?}")),
        Err(error) => Err(error.to_string()),
    }
}
