//! The progress that handlers report. The worker's heartbeat passes it to the source about once a second.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use gristmill_model::limits::PROGRESS_JOBS_MAX;
use gristmill_model::{BatchId, JobId, JobProgress, Positions, Progress, RateMeter};
use tokio::sync::Notify;

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};

/// The last progress of the running jobs of a worker. It costs nothing without progress. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct ProgressBoard(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// A job has reported progress.
    used: AtomicBool,
    jobs: Mutex<Jobs>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Jobs {
    said: HashMap<JobId, Said>,
    /// Progress was reported since the last take.
    changed: bool,
}

#[derive(Debug)]
struct Said {
    attempt: u32,
    progress: Progress,
    at: Instant,
    begun: Instant,
    meter: RateMeter,
}

impl ProgressBoard {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        lock(&self.0.jobs)
    }

    /// Notes the progress of a job. Beyond [`PROGRESS_JOBS_MAX`] jobs at once, further jobs are ignored.
    pub fn say(&self, job: JobId, attempt: u32, progress: Progress) {
        self.0.used.store(true, Ordering::Relaxed);
        let mut jobs = self.jobs();
        let is_full = jobs.said.len() >= PROGRESS_JOBS_MAX;
        let now = Instant::now();
        match jobs.said.get_mut(&job) {
            Some(said) if said.attempt == attempt => {
                said.progress = progress.cleaned();
                said.at = now;
            }
            None if is_full => return,
            _ => {
                let said = Said {
                    attempt,
                    progress: progress.cleaned(),
                    at: now,
                    begun: now,
                    meter: RateMeter::default(),
                };
                jobs.said.insert(job, said);
            }
        }
        assert!(
            jobs.said.len() <= PROGRESS_JOBS_MAX,
            "the board keeps the progress of at most {PROGRESS_JOBS_MAX} jobs"
        );
        jobs.changed = true;
        drop(jobs);
        self.0.changed.notify_one();
    }

    /// Reports whether any job ever reported progress.
    pub fn is_used(&self) -> bool {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Drops jobs that no longer run.
    pub fn forget(&self, batch: BatchId, positions: &Positions) {
        let mut jobs = self.jobs();
        if !jobs.said.is_empty() {
            jobs.said
                .retain(|job, _| job.batch != batch || !positions.contains(job.position));
        }
    }

    /// Resolves when progress was reported since the last take.
    pub async fn changed(&self) {
        while !self.jobs().changed {
            self.0.changed.notified().await;
        }
    }

    /// Takes the progress of all jobs. `None` without news since the last call.
    pub fn take(&self) -> Option<Vec<JobProgress>> {
        if !self.is_used() {
            return None;
        }
        let mut jobs = self.jobs();
        if !std::mem::take(&mut jobs.changed) {
            return None;
        }
        let told = jobs.said.iter_mut().map(|(job, said)| {
            let at_s = (said.at - said.begun).as_secs_f64();
            let amount = said.progress.amount();
            JobProgress {
                job: *job,
                attempt: said.attempt,
                progress: said.progress.clone(),
                rate_per_s: amount.and_then(|amount| said.meter.measure(amount, at_s)),
            }
        });
        Some(told.collect())
    }

    /// Makes the taken progress news again, because it did not arrive.
    pub fn give_back(&self) {
        self.jobs().changed = true;
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(position: u32) -> JobId {
        JobId {
            batch: BatchId(1),
            position,
        }
    }

    #[tokio::test]
    async fn the_last_progress_of_all_jobs_is_taken_once() {
        let board = ProgressBoard::default();
        assert_eq!(board.take(), None);
        board.say(job(1), 1, Progress::of(1, 10));
        board.say(job(1), 1, Progress::of(2, 10));
        board.say(job(2), 1, Progress::fraction(0.5).message("half"));
        board.changed().await;
        let mut told = board.take().unwrap();
        told.sort_by_key(|told| told.job);
        assert_eq!(told.len(), 2);
        assert_eq!(told[0].progress, Progress::of(2, 10));
        assert_eq!(told[1].progress.message.as_deref(), Some("half"));
        assert_eq!(board.take(), None, "nothing is new");
        board.give_back();
        assert_eq!(board.take().map(|told| told.len()), Some(2));
        board.say(job(1), 1, Progress::of(3, 10));
        board.forget(BatchId(1), &"2-5".parse().unwrap());
        let told = board.take().unwrap();
        assert_eq!((told.len(), told[0].job), (1, job(1)));
        assert!(told[0].rate_per_s.is_some_and(|rate| rate > 0.0));
    }

    #[test]
    fn the_number_of_jobs_has_a_limit() {
        let board = ProgressBoard::default();
        for position in 0..PROGRESS_JOBS_MAX as u32 + 5 {
            board.say(job(position), 1, Progress::of(1, 2));
        }
        assert_eq!(board.take().unwrap().len(), PROGRESS_JOBS_MAX);
    }
}
