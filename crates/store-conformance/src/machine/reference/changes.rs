//! Changes of jobs in the reference.

use std::collections::{BTreeMap, BTreeSet};

use gristmill_model::{BatchId, JobId, JobState, Timestamp};

use crate::machine::reference::families::Parenthood;
use crate::machine::reference::{Created, Job, Place, Reference};

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
        self.note_cleanups(&jobs, now);
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
            let may_run = !self.is_step(id) && !self.cleanups.are_for(id) && self.may_retry(id, now);
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
        let mut expired = self.end_late_cleanups(now);
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

    /// Keeps the latest ended batch, batches with dead jobs, and batches that ended at `before` or later.
    pub fn prune(&mut self, before: Timestamp) -> (u64, u64) {
        let mut batches: BTreeMap<BatchId, Vec<&Job>> = BTreeMap::new();
        for (id, job) in &self.jobs {
            batches.entry(id.batch).or_default().push(job);
        }
        let is_over = |batch: &BatchId| {
            if self.cleanups.are_due_for(*batch) {
                return false;
            }
            let jobs = batches.get(batch);
            jobs.is_none_or(|jobs| jobs.iter().all(|job| job.ended_at().is_some()))
        };
        let ended = batches.iter().filter_map(|(id, jobs)| {
            if !is_over(id) {
                return None;
            }
            // Its parents still need it.
            let families = jobs.iter().filter_map(|job| Some(&self.families[job.child_of?]));
            let mut parents = families.filter(|family| !family.is_left);
            if parents.any(|family| !is_over(&family.parent().batch)) {
                return None;
            }
            let moments: Option<Vec<Timestamp>> = jobs.iter().map(|job| job.ended_at()).collect();
            let is_dead = |job: &&Job| {
                matches!(
                    job.place,
                    Place::Ended {
                        state: JobState::Dead,
                        ..
                    }
                )
            };
            Some((moments?.into_iter().max()?, *id, jobs.iter().any(is_dead)))
        });
        let mut ended: Vec<(Timestamp, BatchId, bool)> = ended.collect();
        ended.sort_unstable();
        ended.pop();
        let gone: BTreeSet<BatchId> = ended
            .into_iter()
            .filter(|(at, _, has_dead)| *at < before && !has_dead)
            .map(|(_, id, _)| id)
            .collect();
        let jobs_before = self.jobs.len();
        self.jobs.retain(|id, _| !gone.contains(&id.batch));
        self.forget_events();
        self.forget_cleanups();
        (gone.len() as u64, (jobs_before - self.jobs.len()) as u64)
    }
}
