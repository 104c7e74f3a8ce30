//! The feeder of runs: submits the packed items of a run's input in order, and moves the run's position with them.

use std::future::ready;

use gristmill_batching::EndReason;
use gristmill_engine::{Engine, EngineError};
use gristmill_model::{BatchId, BatchOptions, NewBatch, PackedArray, Rejected, RunId};
use gristmill_store::run::RunProgress;
use gristmill_store::{RunAdvance, RunState, StoreError};
use tokio::sync::mpsc;

use crate::limits::{BATCHES_FED_MAX, SUBMIT_BYTES_TARGET};

/// Packed items of an input.
#[derive(Debug)]
pub struct InputBatch {
    /// One payload for each item.
    pub payloads: PackedArray,
    /// The items that cannot run.
    pub rejected: Vec<Rejected>,
    /// The place of the input after these items.
    pub progress: RunProgress,
    /// The reason why the batch is not larger.
    pub end_reason: EndReason,
}

/// A submitted batch of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FedBatch {
    /// Its id.
    pub batch: BatchId,
    /// Its number of jobs.
    pub jobs: u32,
    /// How many of them cannot run.
    pub rejected: u32,
    /// The bytes of its payloads.
    pub bytes: usize,
}

/// Follows a feeder, and holds it back while too much work is open.
pub trait FeedFollower: Send + Sync {
    /// Resolves when a further batch may be submitted.
    fn room(&self) -> impl Future<Output = Result<(), StoreError>> + Send {
        ready(Ok(()))
    }

    /// Batches are about to be submitted.
    fn begins(&self) {}

    /// Batches are submitted, up to this position of the input.
    fn submitted(&self, batches: &[FedBatch], progress: RunProgress);
}

/// Why feeding ended before the input did.
#[derive(Debug, thiserror::Error)]
pub enum FeedError<E: std::error::Error + 'static> {
    /// The input cannot be read.
    #[error(transparent)]
    Input(E),
    /// The store refused a batch.
    #[error(transparent)]
    Store(#[from] EngineError),
}

/// Submits the batches of one run.
#[derive(Debug, Clone)]
pub struct Feeder {
    /// The store with its operations.
    pub engine: Engine,
    /// The run.
    pub run: RunId,
    /// How far its input is submitted.
    pub progress: RunProgress,
    /// The kind of the jobs.
    pub kind: String,
    /// Their queue.
    pub queue: String,
    /// Their options.
    pub options: BatchOptions,
}

impl Feeder {
    /// Submits what `batches` brings, until its sender is gone; `false` where `stop` resolves before. It never stops within a submit.
    pub async fn feed<E: std::error::Error + 'static>(
        &mut self,
        mut batches: mpsc::Receiver<Result<InputBatch, E>>,
        follower: &impl FeedFollower,
        stop: impl Future<Output = ()>,
    ) -> Result<bool, FeedError<E>> {
        let mut stop = std::pin::pin!(stop);
        loop {
            let next = async {
                follower.room().await.map_err(EngineError::from)?;
                Ok::<_, EngineError>(batches.recv().await)
            };
            let first = tokio::select! {
                () = &mut stop => return Ok(false),
                first = next => first?,
            };
            let Some(first) = first else { return Ok(true) };
            let mut group = vec![first.map_err(FeedError::Input)?];
            let mut bytes = group[0].payloads.as_str().len();
            let mut failed = None;
            // Batches that have gathered meanwhile share one transaction.
            while bytes < SUBMIT_BYTES_TARGET && group.len() < BATCHES_FED_MAX {
                match batches.try_recv() {
                    Ok(Ok(batch)) => {
                        bytes += batch.payloads.as_str().len();
                        group.push(batch);
                    }
                    Ok(Err(error)) => {
                        failed = Some(error);
                        break;
                    }
                    Err(_) => break,
                }
            }
            self.submit(group, follower).await?;
            if let Some(error) = failed {
                return Err(FeedError::Input(error));
            }
        }
    }

    /// Notes that the whole input is submitted.
    pub async fn end(&self) -> Result<(), EngineError> {
        let advance = Some(self.advance(RunState::Submitted));
        self.engine.submit_step(Vec::new(), advance).await.map(drop)
    }

    fn advance(&self, state: RunState) -> RunAdvance {
        RunAdvance {
            run: self.run,
            progress: self.progress,
            state,
        }
    }

    async fn submit(
        &mut self,
        group: Vec<InputBatch>,
        follower: &impl FeedFollower,
    ) -> Result<(), EngineError> {
        assert!(
            group.len() <= BATCHES_FED_MAX,
            "a step has {} batches",
            group.len()
        );
        if let Some(last) = group.last() {
            assert!(
                last.progress.bytes >= self.progress.bytes && last.progress.jobs >= self.progress.jobs,
                "a run goes on from {:?}, not back to {:?}",
                self.progress,
                last.progress
            );
            assert!(
                group.iter().map(|batch| batch.progress.lines).is_sorted(),
                "in order"
            );
            self.progress = last.progress;
        }
        let sizes = |batch: &InputBatch| FedBatch {
            batch: BatchId(0),
            jobs: batch.payloads.count(),
            rejected: u32::try_from(batch.rejected.len()).unwrap_or(u32::MAX),
            bytes: batch.payloads.as_str().len(),
        };
        let mut fed: Vec<FedBatch> = group.iter().map(sizes).collect();
        let batches = group.into_iter().map(|batch| {
            let new = NewBatch {
                queue: self.queue.clone(),
                options: self.options.clone(),
                rejected: batch.rejected,
                ..NewBatch::new(self.kind.as_str(), batch.payloads)
            };
            (new, batch.end_reason)
        });
        follower.begins();
        let advance = Some(self.advance(RunState::Submitting));
        let ids = self.engine.submit_step(batches.collect(), advance).await?;
        assert_eq!(ids.len(), fed.len(), "each submitted batch has an id");
        for (fed, id) in fed.iter_mut().zip(ids) {
            fed.batch = id;
        }
        follower.submitted(&fed, self.progress);
        Ok(())
    }
}
