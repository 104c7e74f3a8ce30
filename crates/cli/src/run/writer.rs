//! Writes a run's output: batch by batch in their order, each once all of its jobs have ended. The first jobs of the next batch are
//! written as soon as they have ended.

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

/// Batches that are asked for at once.
const PAGE_BATCHES: u32 = 256;

/// How often a batch with jobs that have not ended is read for its first ones.
const BEGINNING_EVERY: Duration = Duration::from_millis(50);

/// The least time between two such reads, in times of how long the last one took: it bounds their share of a large batch's work.
const BEGINNING_REST: u32 = 10;

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
    /// Its corrected items, whose results stand in the places of the others.
    pub corrections: Corrections,
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

    /// Waits until all jobs of a batch have ended. `false` where they will not.
    async fn wait_for_end(&mut self, batch: BatchId, output: &mut Output) -> Result<bool, WriteError> {
        let mut changes = self.backlog.changes();
        let mut flushed = false;
        let mut look = false;
        // A batch that ends soon is written whole.
        let mut beginning_at = Instant::now() + BEGINNING_EVERY;
        let mut is_changed = true;
        loop {
            let all_run = self.stage.borrow_and_update().all_run;
            changes.mark_known();
            // A batch of this process is known to be open without asking the store; one of an earlier process,
            // or one that another process may have changed, is not.
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

    /// Fails where nothing else of the run is left than jobs that are paused since their batch is damaged.
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
        // Where the payloads are damaged, this says so.
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

    /// The outcomes of a batch, with those of its corrected jobs, whose ids the output gets.
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

    /// Returns whether the store is to be looked at.
    async fn wait_for_change(&mut self, changes: &mut Changes) -> bool {
        tokio::select! {
            is_look_due = changes.next() => is_look_due,
            stage = self.stage.changed() => {
                if stage.is_err() {
                    // The owner of this stage is gone, and so is the waiter.
                    std::future::pending::<()>().await;
                }
                false
            }
        }
    }
}

/// The jobs of a batch that completed.
fn completed_in(outcomes: &BatchOutcomes) -> u64 {
    let reports = outcomes.reports.iter();
    let completed = reports.filter(|report| report.state == JobState::Completed);
    completed.map(|report| u64::from(report.positions.len())).sum()
}
