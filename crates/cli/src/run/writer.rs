//! Writes a run's output: batch by batch in their order, each once all of its jobs have ended.

use std::sync::Arc;

use gristmill_model::{BatchId, RunId};
use gristmill_store::{Store, StoreError};
use tokio::sync::watch;

use super::backlog::{Backlog, LOOK_AGAIN_EVERY};
use crate::output::{Output, OutputError, OutputStatistics};

/// Batches that are asked for at once.
const PAGE_BATCHES: u32 = 256;

/// Why writing stopped.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The written lines.
#[derive(Debug)]
pub struct Written {
    /// Of the batches that were written.
    pub statistics: OutputStatistics,
    /// Whether that was all of the run.
    pub is_whole: bool,
}

/// How far the others are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// No batch will be submitted any more.
    pub all_fed: bool,
    /// No job will be run any more.
    pub all_run: bool,
}

/// The writer of one run.
#[derive(Debug)]
pub struct Writer {
    /// Where from.
    pub store: Arc<dyn Store>,
    /// The run.
    pub run: RunId,
    /// The jobs that have not ended.
    pub backlog: Arc<Backlog>,
    /// How far the others are.
    pub stage: watch::Receiver<Stage>,
}

impl Writer {
    /// Writes until the run's last batch; or, when nothing is run any more, until the first batch with jobs
    /// that have not ended.
    pub async fn write(mut self, mut output: Output) -> Result<Written, WriteError> {
        let mut after: Option<BatchId> = None;
        let mut changes = self.backlog.changes();
        let is_whole = 'batches: loop {
            // Asked before the page, so that a batch submitted in between is not missed.
            let all_fed = self.stage.borrow_and_update().all_fed;
            changes.mark_unchanged();
            let page = self.store.run_batches(self.run, after, PAGE_BATCHES).await?;
            if page.is_empty() {
                if all_fed {
                    break true;
                }
                tokio::task::block_in_place(|| output.flush())?;
                self.wait_for_change(&mut changes).await;
            }
            for row in page {
                if !self.wait_for_end(row.batch, &mut output).await? {
                    break 'batches false;
                }
                if let Some(outcomes) = self.store.outcomes(row.batch).await? {
                    tokio::task::block_in_place(|| output.write_batch(&outcomes))?;
                }
                self.backlog.note_finished(row.batch);
                after = Some(row.batch);
            }
        };
        let statistics = tokio::task::block_in_place(|| output.finish())?;
        Ok(Written { statistics, is_whole })
    }

    /// Waits until all jobs of a batch have ended. `false` where they will not.
    async fn wait_for_end(&mut self, batch: BatchId, output: &mut Output) -> Result<bool, WriteError> {
        let mut changes = self.backlog.changes();
        let mut flushed = false;
        let mut look = false;
        loop {
            let all_run = self.stage.borrow_and_update().all_run;
            changes.mark_unchanged();
            // A batch of this process is known to be open without asking the store; one of an earlier process,
            // or one that another process may have changed, is not.
            if (look || all_run || !self.backlog.is_open(batch)) && self.store.is_finished(batch).await? {
                return Ok(true);
            }
            if all_run {
                return Ok(false);
            }
            if !flushed {
                tokio::task::block_in_place(|| output.flush())?;
                flushed = true;
            }
            look = self.wait_for_change(&mut changes).await;
        }
    }

    /// Returns whether nothing changed for a while.
    async fn wait_for_change(&mut self, changes: &mut watch::Receiver<()>) -> bool {
        tokio::select! {
            _ = changes.changed() => false,
            stage = self.stage.changed() => {
                if stage.is_err() {
                    // The owner of this stage is gone, and so is the waiter.
                    std::future::pending::<()>().await;
                }
                false
            }
            () = tokio::time::sleep(LOOK_AGAIN_EVERY) => true,
        }
    }
}
