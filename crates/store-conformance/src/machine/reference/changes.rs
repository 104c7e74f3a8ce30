//! Changes of jobs in the reference.

use gristmill_model::{JobId, JobState, Timestamp};

use crate::machine::reference::families::Parenthood;
use crate::machine::reference::{Created, Place, Reference};

impl Reference {
    pub fn cancel(&mut self, jobs: Vec<JobId>, now: Timestamp) -> u64 {
        let changed = self.cancel_with_descendants(jobs, now);
        self.settle(now);
        changed
    }

    /// Cancels jobs. The children of waiting parents are cancelled with them. Returns the number of the former.
    pub(super) fn cancel_with_descendants(&mut self, jobs: Vec<JobId>, now: Timestamp) -> u64 {
        let mut changed = 0;
        let mut descendants = Vec::new();
        for id in jobs {
            let children = self.children_of(id);
            let Some(job) = self.jobs.get_mut(&id) else {
                continue;
            };
            match job.place {
                Place::Blocked | Place::Ready => {
                    job.attempt -= 1;
                    job.end(JobState::Cancelled, now);
                }
                Place::Held { worker, lease } => {
                    self.revoked.push((worker, lease, id));
                    job.end(JobState::Cancelled, now);
                }
                Place::Ended { .. } => continue,
            }
            descendants.extend(children);
            changed += 1;
        }
        if !descendants.is_empty() {
            self.cancel_with_descendants(descendants, now);
        }
        changed
    }

    /// Retries jobs. Of several jobs with one key, only the first is retried.
    pub fn retry(&mut self, mut jobs: Vec<JobId>, now: Timestamp) -> u64 {
        jobs.sort_unstable();
        let mut changed = 0;
        for id in jobs {
            // A flow may have used the outcomes of its steps.
            let may_run = !self.is_step(id) && self.may_retry(id, now);
            let Some(job) = self.jobs.get_mut(&id).filter(|_| may_run) else {
                continue;
            };
            let is_over = matches!(job.place, Place::Ended { state, .. } if state != JobState::Completed);
            if is_over && job.signal.is_none() {
                (job.attempt, job.rescues, job.run_at, job.expires_at) = (1, 0, now, None);
                job.rank = job.batch_rank;
                // A flow goes on after its last step.
                job.parenthood = job.steps.last().map(|family| Parenthood {
                    family: *family,
                    told_before: 0,
                });
                job.place = Place::Ready;
                changed += 1;
                self.take_key_again(id);
            }
        }
        changed
    }

    pub fn expire(&mut self, created: &mut Created, now: Timestamp) -> u64 {
        let mut expired = 0;
        for job in self.jobs.values_mut() {
            if !matches!(job.place, Place::Held { .. }) {
                job.end_pauses(now);
            }
            if matches!(job.place, Place::Blocked | Place::Ready)
                && job.expires_at.is_some_and(|moment| moment <= now)
            {
                let has_begun = job.has_begun();
                job.attempt -= 1;
                if has_begun {
                    job.attempt = job.attempt.max(1);
                    job.end(JobState::Dead, now);
                } else {
                    job.end(JobState::Expired, now);
                }
                expired += 1;
            }
        }
        self.settle(now);
        self.forget_keys(now);
        self.run_again(created, now);
        self.cached.retain(|_, (_, until)| *until > now);
        expired
    }

    /// Turns dead jobs into cancelled ones, with the time of their death.
    pub fn discard(&mut self, jobs: &[JobId]) -> u64 {
        let mut changed = 0;
        for id in jobs {
            if let Some(job) = self.jobs.get_mut(id)
                && let Place::Ended { state, .. } = &mut job.place
                && *state == JobState::Dead
            {
                *state = JobState::Cancelled;
                changed += 1;
            }
        }
        changed
    }

    pub fn prioritise(&mut self, jobs: &[JobId], priority: i16) -> u64 {
        let mut changed = 0;
        for id in jobs {
            if let Some(job) = self.jobs.get_mut(id).filter(|job| job.ended_at().is_none()) {
                job.rank = -priority;
                changed += 1;
            }
        }
        changed
    }

    pub fn pause_jobs(&mut self, jobs: &[JobId], reason: &'static str, until: Option<Timestamp>) -> u64 {
        let mut changed = 0;
        for id in jobs {
            if let Some(job) = self.jobs.get_mut(id).filter(|job| job.ended_at().is_none()) {
                job.pauses.insert(reason, until);
                changed += 1;
            }
        }
        changed
    }

    /// Ends these pauses, and all pauses whose time is over.
    pub fn resume_jobs(&mut self, jobs: &[JobId], reason: Option<&str>, now: Timestamp) -> u64 {
        let mut changed = 0;
        for id in jobs {
            let Some(job) = self.jobs.get_mut(id) else {
                continue;
            };
            match reason {
                None if job.pauses.is_empty() => continue,
                None => job.pauses.clear(),
                Some(reason) => {
                    if job.pauses.remove(reason).is_none() {
                        continue;
                    }
                    job.pauses
                        .retain(|_, until| until.is_none_or(|until| until > now));
                }
            }
            changed += 1;
        }
        changed
    }
}
