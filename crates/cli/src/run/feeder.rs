//! Submits a run's input, up to the allowed distance ahead of the workers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gristmill_batching::BatchStats;
use gristmill_model::{BatchOptions, NewBatch};
use gristmill_store::{RunAdvance, RunState, Store, StoreError};
use tokio::sync::mpsc;

use super::backlog::Backlog;
use crate::input::{BatchReader, InputBatch, InputError};
use crate::interrupt::Interrupt;

/// The largest number of batches that are read and not submitted.
const BATCHES_READ_MAX: usize = 4;

/// The bytes of payloads after which a submit takes no further batch.
const SUBMIT_BYTES_TARGET: usize = 4 << 20;

/// The error that stopped the feeder before the end of the input.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The input cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The store refused a batch.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The end of feeding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fed {
    /// The input is submitted to its end, or to the limit of jobs.
    Whole,
    /// The program was asked to end.
    Interrupted,
}

/// The settings that all batches of the run share.
#[derive(Debug, Clone)]
pub struct Feeder {
    /// The store for the batches.
    pub store: Arc<dyn Store>,
    /// The run.
    pub run: gristmill_model::RunId,
    /// The batches' kind.
    pub kind: String,
    /// The batches' queue.
    pub queue: String,
    /// The batches' options.
    pub options: BatchOptions,
    /// The jobs that have not ended.
    pub backlog: Arc<Backlog>,
}

impl Feeder {
    /// Submits batches until the input ends or the program is interrupted.
    pub async fn feed(self, reader: BatchReader, interrupt: Interrupt) -> Result<Fed, FeedError> {
        let mut hops = BatchStats::default();
        let fed = self.feed_all(reader, interrupt, &mut hops).await;
        self.store.record(hops).await?;
        fed
    }

    async fn feed_all(
        &self,
        reader: BatchReader,
        mut interrupt: Interrupt,
        hops: &mut BatchStats,
    ) -> Result<Fed, FeedError> {
        let mut batches = read_in_background(reader);
        loop {
            let batch = tokio::select! {
                _ = interrupt.wait() => return Ok(Fed::Interrupted),
                batch = async { self.wait_for_room().await?; Ok::<_, StoreError>(batches.recv().await) } => batch?,
            };
            let Some(first) = batch else { return Ok(Fed::Whole) };
            let mut group = vec![first?];
            let mut bytes = group[0].payloads.as_str().len();
            let mut failed = None;
            // The batches that were read meanwhile go along: one transaction stores all.
            while bytes < SUBMIT_BYTES_TARGET && group.len() < BATCHES_READ_MAX {
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
            self.submit(group, hops).await?;
            if let Some(error) = failed {
                return Err(error.into());
            }
        }
    }

    async fn wait_for_room(&self) -> Result<(), StoreError> {
        let mut changes = self.backlog.changes();
        loop {
            changes.mark_known();
            if self.backlog.has_room() {
                return Ok(());
            }
            if changes.next().await {
                for batch in self.backlog.open_batches() {
                    if self.store.is_finished(batch).await? {
                        self.backlog.note_finished(batch, None);
                    }
                }
            }
        }
    }

    async fn submit(&self, group: Vec<InputBatch>, hops: &mut BatchStats) -> Result<(), StoreError> {
        let Some(progress) = group.last().map(|batch| batch.progress) else {
            return Ok(());
        };
        let sizes: Vec<(u64, u64)> = group
            .iter()
            .map(|batch| {
                let runnable = batch.payloads.count() as usize - batch.rejected.len();
                (runnable as u64, batch.payloads.as_str().len() as u64)
            })
            .collect();
        let counts = self.backlog.counts();
        let rejected: usize = group.iter().map(|batch| batch.rejected.len()).sum();
        let jobs: u64 = group.iter().map(|batch| u64::from(batch.payloads.count())).sum();
        for batch in &group {
            hops.record("submit", batch.payloads.count() as usize, batch.end_reason);
        }
        let batches = group.into_iter().map(|batch| NewBatch {
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            payloads: batch.payloads,
            options: self.options.clone(),
            rejected: batch.rejected,
            after: Vec::new(),
            tags: Vec::new(),
        });
        let advance = RunAdvance {
            run: self.run,
            progress,
            state: RunState::Submitting,
        };
        self.backlog.submit_begins();
        let ids = self.store.submit(batches.collect(), Some(advance)).await?;
        counts.submitted.fetch_add(jobs, Ordering::Relaxed);
        counts.failed.fetch_add(rejected as u64, Ordering::Relaxed);
        counts.rejected.fetch_add(rejected as u64, Ordering::Relaxed);
        counts.input_bytes.store(progress.bytes, Ordering::Relaxed);
        counts.input_jobs.store(progress.jobs, Ordering::Relaxed);
        for (batch, (jobs, bytes)) in ids.into_iter().zip(sizes) {
            self.backlog.note_submitted(batch, jobs, bytes);
        }
        self.backlog.submit_ended();
        Ok(())
    }
}

/// Reads on a thread of its own, because a file or pipe may make it wait. The thread ends with the input, or when the
/// receiver of its batches is gone.
fn read_in_background(mut reader: BatchReader) -> mpsc::Receiver<Result<InputBatch, InputError>> {
    let (sender, receiver) = mpsc::channel(BATCHES_READ_MAX);
    std::thread::spawn(move || {
        while let Some(next) = reader.next_batch().transpose() {
            let failed = next.is_err();
            if sender.blocking_send(next).is_err() || failed {
                break;
            }
        }
    });
    receiver
}
