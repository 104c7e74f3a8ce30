//! The jobs that a run has submitted and that have not ended: bounds reading ahead, and feeds the progress.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gristmill_engine::Observer;
use gristmill_model::{BatchId, Receipt, Report};
use tokio::sync::watch;

/// Batches that may be submitted and not ended: the workers never wait for input, and the store never
/// holds many idle jobs.
const BATCHES_OPEN_MAX: u64 = 64;

/// Jobs that may be, however small the batches are.
const JOBS_OPEN_MIN: u64 = 10_000;

/// Bytes of payloads that may be submitted and not ended.
const BYTES_OPEN_MAX: u64 = 64 << 20;

/// How often the store is asked, in case other processes end jobs of the run (a cancel, a worker).
pub const LOOK_AGAIN_EVERY: Duration = Duration::from_millis(500);

/// A batch with jobs that have not ended.
#[derive(Debug, Default)]
struct OpenBatch {
    ended: u64,
    /// Its jobs and bytes; unknown while only its outcomes have been seen.
    submitted: Option<(u64, u64)>,
}

#[derive(Debug, Default)]
struct Open {
    batches: HashMap<BatchId, OpenBatch>,
    jobs: u64,
    bytes: u64,
}

impl Open {
    /// Counts `ended` more jobs of a batch; a batch whose jobs have all ended is forgotten.
    fn note_ended(&mut self, batch: BatchId, ended: u64) {
        let entry = self.batches.entry(batch).or_default();
        let before = entry.ended;
        entry.ended += ended;
        if let Some((jobs, bytes)) = entry.submitted {
            let after = entry.ended.min(jobs);
            // Shares of the whole, so that the parts add up to it.
            self.jobs -= after - before.min(jobs);
            self.bytes -= bytes * after / jobs - bytes * before.min(jobs) / jobs;
            if after == jobs {
                self.batches.remove(&batch);
            }
        }
    }

    fn note_submitted(&mut self, batch: BatchId, jobs: u64, bytes: u64) {
        if jobs == 0 {
            return;
        }
        // A fast worker may have ended some of them, or all, before the submit was answered here.
        let ended = self.batches.remove(&batch).map_or(0, |entry| entry.ended);
        self.batches.insert(
            batch,
            OpenBatch {
                ended: 0,
                submitted: Some((jobs, bytes)),
            },
        );
        self.jobs += jobs;
        self.bytes += bytes;
        if ended > 0 {
            self.note_ended(batch, ended);
        }
    }
}

/// Watches the run's worker and counts.
#[derive(Debug)]
pub struct Backlog {
    open: Mutex<Open>,
    jobs_open_max: u64,
    changes: watch::Sender<()>,
    counts: Counts,
}

/// The events in this process, for the progress.
#[derive(Debug, Default)]
pub struct Counts {
    /// Jobs submitted.
    pub submitted: AtomicU64,
    /// Bytes of the input that they came from, from its beginning.
    pub input_bytes: AtomicU64,
    /// Jobs submitted of this input, by this process and those before it.
    pub input_jobs: AtomicU64,
    /// Jobs completed.
    pub completed: AtomicU64,
    /// Jobs dead.
    pub failed: AtomicU64,
    /// Items that cannot be read; they count as dead, too.
    pub rejected: AtomicU64,
    /// Failed attempts that are followed by another.
    pub retried: AtomicU64,
}

impl Backlog {
    /// Nothing submitted yet; batches will have `batch_jobs_max` jobs.
    pub fn new(batch_jobs_max: u32) -> Backlog {
        Backlog {
            open: Mutex::default(),
            jobs_open_max: (BATCHES_OPEN_MAX * u64::from(batch_jobs_max)).max(JOBS_OPEN_MIN),
            changes: watch::Sender::new(()),
            counts: Counts::default(),
        }
    }

    /// The events so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Tells of every submit and every commit from now on.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Wakes those who wait for a change.
    pub fn note_change(&self) {
        self.changes.send_replace(());
    }

    /// A batch was submitted: so many of its jobs can run.
    pub fn note_submitted(&self, batch: BatchId, jobs: u64, bytes: u64) {
        self.open().note_submitted(batch, jobs, bytes);
        self.changes.send_replace(());
    }

    /// The store says that all jobs of the batch have ended.
    pub fn note_finished(&self, batch: BatchId) {
        let mut open = self.open();
        let left = open
            .batches
            .get(&batch)
            .map(|entry| (entry.submitted, entry.ended));
        match left {
            Some((Some((jobs, _)), ended)) => open.note_ended(batch, jobs.saturating_sub(ended)),
            Some((None, _)) => drop(open.batches.remove(&batch)),
            None => return,
        }
        drop(open);
        self.changes.send_replace(());
    }

    /// Whether the batch was submitted here and is known to have jobs that have not ended.
    pub fn is_open(&self, batch: BatchId) -> bool {
        self.open()
            .batches
            .get(&batch)
            .is_some_and(|entry| entry.submitted.is_some())
    }

    /// The batches that have not ended.
    pub fn open_batches(&self) -> Vec<BatchId> {
        self.open().batches.keys().copied().collect()
    }

    /// Whether another batch may be submitted.
    pub fn has_room(&self) -> bool {
        let open = self.open();
        open.jobs < self.jobs_open_max && open.bytes < BYTES_OPEN_MAX
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Backlog {
    fn committed(&self, report: &Report, receipt: &Receipt) {
        let completed = report.completed.as_ref().map_or(0, |completed| {
            completed.positions.len() - completed.positions.intersection(&receipt.refused).len()
        });
        let dead = receipt.dead.len();
        let failed = report
            .failed
            .iter()
            .filter(|failed| receipt.accepted.contains(failed.position))
            .count();
        let counts = &self.counts;
        counts.completed.fetch_add(completed.into(), Ordering::Relaxed);
        counts.failed.fetch_add(dead.into(), Ordering::Relaxed);
        counts
            .retried
            .fetch_add((failed as u64).saturating_sub(dead.into()), Ordering::Relaxed);
        let ended = u64::from(completed) + u64::from(dead);
        if ended > 0 {
            self.open().note_ended(report.batch, ended);
            self.changes.send_replace(());
        }
    }
}

#[cfg(test)]
mod tests {
    use gristmill_model::{Completed, LeaseId, PackedArray, Positions};

    use super::*;

    fn report(batch: i64, positions: Positions) -> (Report, Receipt) {
        let mut report = Report::new(LeaseId(1), BatchId(batch), 1);
        let count = positions.len();
        report.completed = Some(Completed {
            positions: positions.clone(),
            values: PackedArray::repeat("1", count).unwrap(),
            durations_us: vec![1; count as usize],
        });
        (
            report,
            Receipt {
                accepted: positions,
                ..Receipt::default()
            },
        )
    }

    #[test]
    fn outcomes_may_be_seen_before_their_submit() {
        let backlog = Backlog::new(10);
        let (early, receipt) = report(1, Positions::from(0..4));
        backlog.committed(&early, &receipt);
        backlog.note_submitted(BatchId(1), 10, 1_001);
        assert!(backlog.is_open(BatchId(1)));
        let (late, receipt) = report(1, Positions::from(4..10));
        backlog.committed(&late, &receipt);
        assert!(!backlog.is_open(BatchId(1)));
        let open = backlog.open();
        assert_eq!((open.jobs, open.bytes, open.batches.len()), (0, 0, 0));
    }

    #[test]
    fn room_is_bounded_by_jobs_and_by_bytes_and_comes_back() {
        let backlog = Backlog::new(1_000);
        for batch in 0..64 {
            assert!(backlog.has_room());
            backlog.note_submitted(BatchId(batch), 1_000, 10);
        }
        assert!(!backlog.has_room());
        let (some, receipt) = report(3, Positions::from(0..1));
        backlog.committed(&some, &receipt);
        assert!(backlog.has_room());
        backlog.note_submitted(BatchId(64), 1, 64 << 20);
        assert!(!backlog.has_room());
        backlog.note_finished(BatchId(64));
        assert!(backlog.has_room());
    }
}
