//! Writes a run's output, batch by batch in order. Each batch is written after all of its jobs have ended. The first
//! jobs of the next batch are written as soon as they have ended.

use std::sync::Arc;
use std::time::Duration;

use gristmill_model::{BatchId, JobState, RunId};
use gristmill_store::integrity::DAMAGED;
use gristmill_store::{BatchOutcomes, JobFilter, Page, Store, StoreError};
use tokio::sync::watch;
use tokio::time::Instant;

use super::backlog::{Backlog, Changes};
use super::corrections::Corrections;
use crate::output::{Output, OutputError, OutputStatistics};

/// The number of batches in one query.
const PAGE_BATCHES: u32 = 256;

/// The interval of reading the first jobs of a batch that has not ended.
const BEGINNING_EVERY: Duration = Duration::from_millis(50);

/// The least pause between two such reads, as a multiple of the duration of the last one. It bounds their share of the work.
const BEGINNING_REST: u32 = 10;

/// The error that stopped the writer.
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
    /// The statistics of the written batches.
    pub statistics: OutputStatistics,
    /// True if the whole run was written.
    pub is_whole: bool,
}

/// The progress of the other tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// No more batches will be submitted.
    pub all_fed: bool,
    /// No more jobs will run.
    pub all_run: bool,
}

/// The writer of one run.
#[derive(Debug)]
pub struct Writer {
    /// The store of the run.
    pub store: Arc<dyn Store>,
    /// The run.
    pub run: RunId,
    /// Its corrected items. Their results stand in the places of the replaced ones.
    pub corrections: Corrections,
    /// The jobs that have not ended.
    pub backlog: Arc<Backlog>,
    /// The progress of the other tasks.
    pub stage: watch::Receiver<Stage>,
}

impl Writer {
    /// Writes until the run's last batch. If no more jobs run, writes until the first batch with jobs that have not ended.
    pub async fn write(mut self, mut output: Output) -> Result<Written, WriteError> {
        let mut after: Option<BatchId> = None;
        let mut changes = self.backlog.changes();
        let is_whole = 'batches: loop {
            // This is read before the page, so that a batch that is submitted in between is not missed.
            let all_fed = self.stage.borrow_and_update().all_fed;
            changes.mark_known();
            let page = self.store.run_batches(self.run, after, PAGE_BATCHES).await?;
            if page.is_empty() {
                if all_fed {
                    break true;
                }
                tokio::task::block_in_place(|| output.flush())?;
                self.wait_for_change(&mut changes).await;
            }
            for row in page {
                after = Some(row.batch);
                if self.corrections.are_in(row.batch) {
                    continue;
                }
                if !self.wait_for_end(row.batch, &mut output).await? {
                    break 'batches false;
                }
                let mut completed = None;
                if let Some(outcomes) = self.outcomes(row.batch, &mut output).await? {
                    tokio::task::block_in_place(|| output.write_batch(&outcomes))?;
                    completed = Some(completed_in(&outcomes));
                }
                self.backlog.note_finished(row.batch, completed);
            }
        };
        let statistics = tokio::task::block_in_place(|| output.finish())?;
        Ok(Written { statistics, is_whole })
    }

    /// Waits until all jobs of a batch have ended. Returns `false` if they will not.
    async fn wait_for_end(&mut self, batch: BatchId, output: &mut Output) -> Result<bool, WriteError> {
        let mut changes = self.backlog.changes();
        let mut flushed = false;
        let mut look = false;
        // A batch that ends soon is written at once as a whole.
        let mut beginning_at = Instant::now() + BEGINNING_EVERY;
        let mut is_changed = true;
        loop {
            let all_run = self.stage.borrow_and_update().all_run;
            changes.mark_known();
            // The backlog knows whether a batch of this process is open. For a batch of an earlier process, or one that
            // another process may have changed, the store is asked.
            if (look || all_run || !self.backlog.is_open(batch))
                && self.corrections.are_finished(&self.store, batch).await?
            {
                return Ok(true);
            }
            if all_run {
                self.write_beginning(batch, output).await?;
                return Ok(false);
            }
            if look && self.stage.borrow().all_fed {
                self.refuse_damaged(batch).await?;
            }
            if is_changed && Instant::now() >= beginning_at {
                is_changed = false;
                let began = Instant::now();
                self.write_beginning(batch, output).await?;
                beginning_at = Instant::now() + BEGINNING_EVERY.max(began.elapsed() * BEGINNING_REST);
            }
            if !flushed {
                tokio::task::block_in_place(|| output.flush())?;
                flushed = true;
            }
            look = tokio::select! {
                is_look_due = self.wait_for_change(&mut changes) => {
                    is_changed = true;
                    is_look_due
                }
                () = tokio::time::sleep_until(beginning_at), if is_changed => false,
            };
        }
    }

    /// Fails if the rest of the run is only jobs that are paused because their batch is damaged.
    async fn refuse_damaged(&self, batch: BatchId) -> Result<(), StoreError> {
        let in_states = |states: &[JobState]| JobFilter {
            run: Some(self.run),
            states: states.to_vec(),
            ..JobFilter::default()
        };
        let open = in_states(&[
            JobState::Waiting,
            JobState::Scheduled,
            JobState::Running,
            JobState::Blocked,
        ]);
        if self.store.counts(&open).await?.total() > 0 {
            return Ok(());
        }
        let paused = JobFilter {
            batch: Some(batch),
            ..in_states(&[JobState::Paused])
        };
        let page = Page {
            after: None,
            limit: 1,
        };
        let Some(row) = self.store.jobs(&paused, page).await?.into_iter().next() else {
            return Ok(());
        };
        // If the payloads are damaged, this fails and says so.
        let job = self.store.job(row.job).await?;
        if job.is_some_and(|job| job.pauses.iter().any(|pause| pause.reason == DAMAGED)) {
            Err(StoreError::Damaged {
                batch,
                table: "batch",
                what: "rows of it have changed since they were stored".to_owned(),
            })
        } else {
            Ok(())
        }
    }

    /// The outcomes of a batch, including those of its corrected jobs. The output gets the ids of the latter.
    async fn outcomes(
        &self,
        batch: BatchId,
        output: &mut Output,
    ) -> Result<Option<BatchOutcomes>, StoreError> {
        output.stand_for(self.corrections.of_batch(batch));
        self.corrections.outcomes(&self.store, batch).await
    }

    async fn write_beginning(&self, batch: BatchId, output: &mut Output) -> Result<(), WriteError> {
        if let Some(outcomes) = self.outcomes(batch, output).await? {
            tokio::task::block_in_place(|| output.write_beginning(&outcomes))?;
        }
        Ok(())
    }

    /// Returns whether the store should be read.
    async fn wait_for_change(&mut self, changes: &mut Changes) -> bool {
        tokio::select! {
            is_look_due = changes.next() => is_look_due,
            stage = self.stage.changed() => {
                if stage.is_err() {
                    // The owner of this stage is gone, and the waiter is, too.
                    std::future::pending::<()>().await;
                }
                false
            }
        }
    }
}

/// The number of completed jobs of a batch.
fn completed_in(outcomes: &BatchOutcomes) -> u64 {
    let reports = outcomes.reports.iter();
    let completed = reports.filter(|report| report.state == JobState::Completed);
    completed.map(|report| u64::from(report.positions.len())).sum()
}
