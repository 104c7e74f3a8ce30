//! Signals of a worker to the jobs of a running micro-batch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gristmill_model::{BatchId, JobId, Positions};
use tokio::sync::Notify;

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};

/// The signals so far. Without signals, a query costs one read of a flag.
#[derive(Debug)]
pub struct Signals {
    /// There was a signal.
    told: AtomicBool,
    cancelled: Mutex<Cancelled>,
    pausing: AtomicBool,
    releasing: AtomicBool,
    given_back: Mutex<BTreeSet<JobId>>,
    changed: Notify,
    grace: Duration,
}

#[derive(Debug, Default)]
struct Cancelled {
    all: bool,
    jobs: BTreeMap<BatchId, Positions>,
}

impl Signals {
    /// The state without signals. Cancelled jobs may continue for `grace`.
    pub fn new(grace: Duration) -> Self {
        Signals {
            told: AtomicBool::new(false),
            cancelled: Mutex::default(),
            pausing: AtomicBool::new(false),
            releasing: AtomicBool::new(false),
            given_back: Mutex::default(),
            changed: Notify::new(),
            grace,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Cancelled> {
        lock(&self.cancelled)
    }

    /// Signals to jobs of a batch that they were cancelled.
    pub fn cancel(&self, batch: BatchId, positions: &Positions) {
        {
            let mut cancelled = self.lock();
            let known = cancelled.jobs.entry(batch).or_default();
            *known = known.union(positions);
        }
        self.tell();
    }

    /// Signals to all jobs that their outcomes are no longer needed.
    pub fn cancel_all(&self) {
        self.lock().all = true;
        self.tell();
    }

    /// Asks the jobs to make room.
    pub fn pause(&self) {
        self.pausing.store(true, Ordering::Release);
        self.tell();
    }

    /// Takes the jobs back, ended or not.
    pub fn release(&self) {
        self.releasing.store(true, Ordering::Release);
        self.tell();
    }

    /// Reports whether the jobs are taken back.
    pub fn is_releasing(&self) -> bool {
        self.releasing.load(Ordering::Acquire)
    }

    /// Reports whether the jobs should make room.
    pub fn is_pausing(&self) -> bool {
        self.pausing.load(Ordering::Acquire)
    }

    /// Notes that a job goes back without charge when it ends.
    pub fn give_back(&self, job: JobId) {
        self.given_back().insert(job);
    }

    /// Reports whether an ended job goes back, and forgets it.
    pub fn take_given_back(&self, job: JobId) -> bool {
        self.given_back().remove(&job)
    }

    fn given_back(&self) -> MutexGuard<'_, BTreeSet<JobId>> {
        lock(&self.given_back)
    }

    /// Wakes waiters if there was a signal.
    pub fn remind(&self) {
        if self.told.load(Ordering::Acquire) {
            self.changed.notify_waiters();
        }
    }

    fn tell(&self) {
        self.told.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Reports whether a job was cancelled.
    pub fn is_cancelled(&self, job: JobId) -> bool {
        if !self.told.load(Ordering::Acquire) {
            return false;
        }
        let cancelled = self.lock();
        let jobs = cancelled.jobs.get(&job.batch);
        cancelled.all || jobs.is_some_and(|positions| positions.contains(job.position))
    }

    /// Resolves when `is_so` holds. Every signal checks it.
    pub async fn until(&self, is_so: impl Fn(&Signals) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if is_so(self) {
                return;
            }
            changed.await;
        }
    }

    /// Resolves after the grace period of the jobs.
    pub async fn grace(&self) {
        #[cfg(not(all(test, shuttle)))]
        tokio::time::sleep(self.grace).await;
        // There is no clock. Other threads may run first.
        #[cfg(all(test, shuttle))]
        shuttle::future::yield_now().await;
    }
}
