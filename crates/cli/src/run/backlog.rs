//! The submitted jobs of a run that have not ended. They limit the feeder, and are shown as progress.
//!
//! Jobs that the run's jobs spawn are counted separately, because they are not items of its input.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gristmill_engine::Observer;
use gristmill_model::{BatchId, Receipt, Report};
use tokio::sync::watch;
use tokio::time::Instant;

/// The number of batches that may be submitted and not ended. The workers never wait for input, and the store never
/// holds many idle jobs.
const BATCHES_OPEN_MAX: u64 = 64;

/// The number of such jobs that is allowed, however small the batches are.
const JOBS_OPEN_MIN: u64 = 10_000;

/// The bytes of payloads that may be submitted and not ended.
const BYTES_OPEN_MAX: u64 = 64 << 20;

/// The interval of reading the store, in case other processes end jobs of the run (a cancel, a worker).
const LOOK_AGAIN_EVERY: Duration = Duration::from_millis(500);

/// A batch of the run with jobs that have not ended.
#[derive(Debug, Default)]
struct OpenBatch {
    ended: Ended,
    /// The numbers of its jobs and bytes, if this process submitted it.
    submitted: Option<(u64, u64)>,
}

impl OpenBatch {
    fn open_jobs(&self) -> u64 {
        let submitted = self.submitted.map_or(0, |(jobs, _)| jobs);
        submitted.saturating_sub(self.ended.total())
    }
}

/// The numbers of ended jobs, from their reports.
#[derive(Debug, Clone, Copy, Default)]
struct Ended {
    completed: u64,
    failed: u64,
}

impl Ended {
    fn total(self) -> u64 {
        self.completed + self.failed
    }
}

#[derive(Debug, Default)]
struct Open {
    batches: HashMap<BatchId, OpenBatch>,
    jobs: u64,
    bytes: u64,
    /// During a submit: ended jobs of batches that may belong to the submit, or to children.
    undecided: Option<HashMap<BatchId, Ended>>,
}

impl Open {
    /// Counts more ended jobs of a batch of the run. Forgets a batch whose jobs have all ended.
    fn note_ended(&mut self, batch: BatchId, ended: Ended) {
        let Some(entry) = self.batches.get_mut(&batch) else {
            return;
        };
        let before = entry.ended.total();
        entry.ended.completed += ended.completed;
        entry.ended.failed += ended.failed;
        if let Some((jobs, bytes)) = entry.submitted {
            let after = entry.ended.total().min(jobs);
            // Each part takes a share of the whole, so that the shares add up to it.
            self.jobs -= after - before.min(jobs);
            self.bytes -= bytes * after / jobs - bytes * before.min(jobs) / jobs;
            if after == jobs {
                self.batches.remove(&batch);
            }
            debug_assert_eq!(
                self.jobs,
                self.batches.values().map(OpenBatch::open_jobs).sum::<u64>(),
                "the open jobs of the batches add up"
            );
        }
    }
}

/// The submits and commits of a run, for a task that also reads the store: no report names a job whose child failed, or
/// a job that another process ended.
#[derive(Debug)]
pub struct Changes {
    changed: watch::Receiver<()>,
    look_at: Instant,
}

impl Changes {
    /// Marks all changes so far as known.
    pub fn mark_known(&mut self) {
        self.changed.mark_unchanged();
    }

    /// Waits for the next change, or until the store should be read. Returns whether it should. From time to time this
    /// also happens while changes come.
    pub async fn next(&mut self) -> bool {
        // The sender lives as long as the backlog.
        let _ = tokio::time::timeout_at(self.look_at, self.changed.changed()).await;
        let now = Instant::now();
        let is_due = now >= self.look_at;
        if is_due {
            self.look_at = now + LOOK_AGAIN_EVERY;
        }
        is_due
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

/// The counts of this process, for the progress.
#[derive(Debug, Default)]
pub struct Counts {
    /// Submitted jobs.
    pub submitted: AtomicU64,
    /// Bytes of the input before the end of the last submitted job, from the start of the input.
    pub input_bytes: AtomicU64,
    /// Jobs of this input that this process and earlier ones submitted.
    pub input_jobs: AtomicU64,
    /// Completed items.
    pub completed: AtomicU64,
    /// Dead items.
    pub failed: AtomicU64,
    /// Ended children of items, and how many of them are dead.
    pub children: AtomicU64,
    pub children_failed: AtomicU64,
    /// Items that cannot be read. They also count as dead.
    pub rejected: AtomicU64,
    /// Failed attempts that another one follows.
    pub retried: AtomicU64,
}

impl Backlog {
    /// Starts without submitted jobs. Batches will have `batch_jobs_max` jobs.
    pub fn new(batch_jobs_max: u32) -> Backlog {
        Backlog {
            open: Mutex::default(),
            jobs_open_max: (BATCHES_OPEN_MAX * u64::from(batch_jobs_max)).max(JOBS_OPEN_MIN),
            changes: watch::Sender::new(()),
            counts: Counts::default(),
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Reports every submit and every commit from now on.
    pub fn changes(&self) -> Changes {
        Changes {
            changed: self.changes.subscribe(),
            look_at: Instant::now() + LOOK_AGAIN_EVERY,
        }
    }

    /// Wakes the tasks that wait for a change.
    pub fn note_change(&self) {
        self.changes.send_replace(());
    }

    /// Notes the batches that earlier processes of the run submitted and that may have jobs that have not ended.
    pub fn note_earlier(&self, batches: impl Iterator<Item = BatchId>) {
        let known = batches.map(|batch| (batch, OpenBatch::default()));
        self.open().batches.extend(known);
    }

    /// Notes the start of a submit. Its jobs may end before their batches are known here.
    pub fn submit_begins(&self) {
        self.open().undecided.get_or_insert_default();
    }

    /// Notes the end of a submit. Undecided batches that it did not name belong to children.
    pub fn submit_ended(&self) {
        self.open().undecided = None;
        self.changes.send_replace(());
    }

    /// Notes a submitted batch and the number of its jobs that can run.
    pub fn note_submitted(&self, batch: BatchId, jobs: u64, bytes: u64) {
        let mut open = self.open();
        let early = open
            .undecided
            .as_mut()
            .and_then(|undecided| undecided.remove(&batch));
        // A fast worker may already have ended some or all of them.
        let early = early.unwrap_or_default();
        self.counts.uncount_child(early);
        self.counts.count_item(early);
        if jobs == 0 {
            return;
        }
        let entry = OpenBatch {
            ended: Ended::default(),
            submitted: Some((jobs, bytes)),
        };
        open.batches.insert(batch, entry);
        open.jobs += jobs;
        open.bytes += bytes;
        open.note_ended(batch, early);
    }

    /// Notes that all jobs of the batch have ended. `completed` is the number of completed jobs, if known.
    pub fn note_finished(&self, batch: BatchId, completed: Option<u64>) {
        let mut open = self.open();
        let Some(entry) = open.batches.get(&batch) else {
            return;
        };
        let (ended, submitted) = (entry.ended, entry.submitted);
        match submitted {
            Some((jobs, _)) => {
                // No report named these jobs: their children failed, or another process ended them.
                let silent = jobs.saturating_sub(ended.total());
                let completed = completed.map_or(0, |completed| completed.saturating_sub(ended.completed));
                let rest = Ended {
                    completed: completed.min(silent),
                    failed: silent - completed.min(silent),
                };
                self.counts.count_item(rest);
                open.note_ended(batch, rest);
            }
            None => drop(open.batches.remove(&batch)),
        }
        drop(open);
        self.changes.send_replace(());
    }

    /// Reports whether this process submitted the batch and knows of jobs in it that have not ended.
    pub fn is_open(&self, batch: BatchId) -> bool {
        self.open()
            .batches
            .get(&batch)
            .is_some_and(|entry| entry.submitted.is_some())
    }

    /// The batches that this process submitted and that have not ended.
    pub fn open_batches(&self) -> Vec<BatchId> {
        let open = self.open();
        let submitted = open.batches.iter().filter(|(_, entry)| entry.submitted.is_some());
        submitted.map(|(batch, _)| *batch).collect()
    }

    /// Reports whether another batch may be submitted.
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
        let retried = (failed as u64).saturating_sub(dead.into());
        self.counts.retried.fetch_add(retried, Ordering::Relaxed);
        let ended = Ended {
            completed: completed.into(),
            failed: dead.into(),
        };
        if ended.total() == 0 {
            return;
        }
        let mut open = self.open();
        if open.batches.contains_key(&report.batch) {
            self.counts.count_item(ended);
            open.note_ended(report.batch, ended);
        } else {
            self.counts.count_child(ended);
            if let Some(undecided) = &mut open.undecided {
                let known = undecided.entry(report.batch).or_default();
                known.completed += ended.completed;
                known.failed += ended.failed;
            }
        }
        drop(open);
        self.changes.send_replace(());
    }
}

impl Counts {
    fn count_item(&self, ended: Ended) {
        self.completed.fetch_add(ended.completed, Ordering::Relaxed);
        self.failed.fetch_add(ended.failed, Ordering::Relaxed);
    }

    fn count_child(&self, ended: Ended) {
        self.children.fetch_add(ended.total(), Ordering::Relaxed);
        self.children_failed.fetch_add(ended.failed, Ordering::Relaxed);
    }

    /// Takes back outcomes that were counted as outcomes of children.
    fn uncount_child(&self, ended: Ended) {
        self.children.fetch_sub(ended.total(), Ordering::Relaxed);
        self.children_failed.fetch_sub(ended.failed, Ordering::Relaxed);
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
    fn outcomes_may_arrive_before_the_end_of_their_submit() {
        let backlog = Backlog::new(10);
        backlog.submit_begins();
        let (early, receipt) = report(1, Positions::from(0..4));
        backlog.committed(&early, &receipt);
        backlog.note_submitted(BatchId(1), 10, 1_001);
        backlog.submit_ended();
        assert!(backlog.is_open(BatchId(1)));
        let (late, receipt) = report(1, Positions::from(4..10));
        backlog.committed(&late, &receipt);
        assert!(!backlog.is_open(BatchId(1)));
        let open = backlog.open();
        assert_eq!((open.jobs, open.bytes, open.batches.len()), (0, 0, 0));
    }

    #[test]
    fn the_room_is_limited_by_jobs_and_bytes_and_comes_back() {
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
        backlog.note_finished(BatchId(64), None);
        assert!(backlog.has_room());
    }

    #[test]
    fn children_are_not_items_but_items_without_a_report_count() {
        let backlog = Backlog::new(10);
        let counted = || {
            let counts = backlog.counts();
            [&counts.completed, &counts.failed, &counts.children].map(|count| count.load(Ordering::Relaxed))
        };
        let commit = |batch, positions| {
            let (report, receipt) = report(batch, Positions::from(positions));
            backlog.committed(&report, &receipt);
        };
        backlog.note_earlier([BatchId(1)].into_iter());
        backlog.submit_begins();
        commit(2, 0..3);
        commit(3, 0..5);
        backlog.note_submitted(BatchId(2), 10, 100);
        backlog.submit_ended();
        assert_eq!(counted(), [3, 0, 5]);
        // Batches of children are not kept, and the store is not read for them.
        commit(4, 0..7);
        commit(1, 0..2);
        assert_eq!(counted(), [5, 0, 12]);
        assert_eq!(backlog.open_batches(), [BatchId(2)]);
        // A child's failure has ended three of the items.
        commit(2, 3..7);
        backlog.note_finished(BatchId(2), Some(7));
        assert_eq!(counted(), [9, 3, 12]);
        let open = backlog.open();
        assert_eq!((open.jobs, open.bytes), (0, 0));
    }
}
