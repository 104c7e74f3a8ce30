//! Reads a run's input in the background, and counts what the feeder submits of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gristmill_operations::feeder::{FedBatch, FeedFollower, InputBatch};
use gristmill_operations::limits::BATCHES_FED_MAX;
use gristmill_store::run::RunProgress;
use gristmill_store::{Store, StoreError};
use tokio::sync::mpsc;

use super::backlog::Backlog;
use crate::input::{BatchReader, InputError};

/// The error that stopped the feeder before the end of the input.
pub type FeedError = gristmill_operations::feeder::FeedError<InputError>;

/// Holds the feeder back while the backlog is full.
#[derive(Debug)]
pub struct Held {
    /// The store of the run.
    pub store: Arc<dyn Store>,
    /// The jobs that have not ended.
    pub backlog: Arc<Backlog>,
}

impl FeedFollower for Held {
    async fn room(&self) -> Result<(), StoreError> {
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

    fn begins(&self) {
        self.backlog.submit_begins();
    }

    fn submitted(&self, batches: &[FedBatch], progress: RunProgress) {
        let counts = self.backlog.counts();
        counts.input_bytes.store(progress.bytes, Ordering::Relaxed);
        counts.input_jobs.store(progress.jobs, Ordering::Relaxed);
        for fed in batches {
            let (jobs, rejected) = (u64::from(fed.jobs), u64::from(fed.rejected));
            assert!(rejected <= jobs, "only jobs of a batch are rejected");
            counts.submitted.fetch_add(jobs, Ordering::Relaxed);
            counts.failed.fetch_add(rejected, Ordering::Relaxed);
            counts.rejected.fetch_add(rejected, Ordering::Relaxed);
            self.backlog
                .note_submitted(fed.batch, jobs - rejected, fed.bytes as u64);
        }
        self.backlog.submit_ended();
    }
}

/// Reads on a thread of its own, because a file or pipe may make it wait. The thread ends with the input, or when the
/// receiver of its batches is gone.
pub fn read_in_background(mut reader: BatchReader) -> mpsc::Receiver<Result<InputBatch, InputError>> {
    let (sender, receiver) = mpsc::channel(BATCHES_FED_MAX);
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
