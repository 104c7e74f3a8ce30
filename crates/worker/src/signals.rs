//! What a worker tells the jobs of a running micro-batch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gristmill_model::{BatchId, JobId, Positions};
use tokio::sync::Notify;

/// What was told so far. Asking costs a look at a flag while nothing was.
#[derive(Debug)]
pub struct Signals {
    /// Whether anything was told.
    told: AtomicBool,
    cancelled: Mutex<Cancelled>,
    pausing: AtomicBool,
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
    /// Nothing told yet. What is cancelled may go on for `grace`.
    pub fn new(grace: Duration) -> Self {
        Signals {
            told: AtomicBool::new(false),
            cancelled: Mutex::default(),
            pausing: AtomicBool::new(false),
            given_back: Mutex::default(),
            changed: Notify::new(),
            grace,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Cancelled> {
        self.cancelled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells jobs of a batch that they were cancelled.
    pub fn cancel(&self, batch: BatchId, positions: &Positions) {
        {
            let mut cancelled = self.lock();
            let known = cancelled.jobs.entry(batch).or_default();
            *known = known.union(positions);
        }
        self.tell();
    }

    /// Tells all jobs that nobody waits for them any more.
    pub fn cancel_all(&self) {
        self.lock().all = true;
        self.tell();
    }

    /// Asks the jobs to make room.
    pub fn pause(&self) {
        self.pausing.store(true, Ordering::Release);
        self.tell();
    }

    /// Whether the jobs are to make room.
    pub fn is_pausing(&self) -> bool {
        self.pausing.load(Ordering::Acquire)
    }

    /// A job is to go back uncharged when it ends.
    pub fn give_back(&self, job: JobId) {
        self.given_back().insert(job);
    }

    /// Whether a job that has ended goes back.
    pub fn take_given_back(&self, job: JobId) -> bool {
        self.given_back().remove(&job)
    }

    fn given_back(&self) -> MutexGuard<'_, BTreeSet<JobId>> {
        self.given_back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has those who wait look again, where anything was told.
    pub fn remind(&self) {
        if self.told.load(Ordering::Acquire) {
            self.changed.notify_waiters();
        }
    }

    fn tell(&self) {
        self.told.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Whether a job was cancelled.
    pub fn is_cancelled(&self, job: JobId) -> bool {
        if !self.told.load(Ordering::Acquire) {
            return false;
        }
        let cancelled = self.lock();
        let jobs = cancelled.jobs.get(&job.batch);
        cancelled.all || jobs.is_some_and(|positions| positions.contains(job.position))
    }

    /// Resolves once `is_so` holds. It is asked whenever something is told.
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

    /// Resolves when the time that jobs may go on has passed since the call.
    pub async fn grace(&self) {
        tokio::time::sleep(self.grace).await;
    }
}
