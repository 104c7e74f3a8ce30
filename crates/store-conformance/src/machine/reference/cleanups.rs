//! Instances of the reference that clean up after cancelled flows.

use std::collections::{BTreeMap, BTreeSet};

use gristmill_model::limits::CLEANUP_WAITS_MS_MAX;
use gristmill_model::{BatchId, JobId, NewBatch, Timestamp};
use gristmill_store::rules::family::flow::next_cleanup_look;

use crate::machine::reference::{Place, Reference};

#[derive(Debug, Default)]
pub(super) struct Cleanups {
    /// Cancelled flows.
    due: BTreeMap<JobId, Due>,
    /// Cancelled flows whose cleanup has begun.
    begun: BTreeSet<JobId>,
    /// The instances, until they have been ended.
    instances: BTreeMap<JobId, Instance>,
}

#[derive(Debug)]
struct Due {
    cancelled_at: Timestamp,
    /// Whether a worker ran it or a step of it then.
    was_running: bool,
    within_ms: u64,
}

#[derive(Debug)]
struct Instance {
    submitted_at: Timestamp,
    /// When it is cancelled, or looked at.
    ends_at: Timestamp,
    has_begun: bool,
    within_ms: u64,
    /// The family with which it began.
    family: usize,
}

impl Cleanups {
    /// Reports whether a cleanup after flows of a batch has not begun.
    pub fn are_due_for(&self, batch: BatchId) -> bool {
        self.due.keys().any(|flow| flow.batch == batch)
    }

    /// Reports whether the jobs of a batch clean up.
    fn has_batch(&self, batch: BatchId) -> bool {
        self.instances.keys().any(|one| one.batch == batch)
    }

    /// Reports whether a cleanup after a flow has begun, or will.
    pub fn are_for(&self, flow: JobId) -> bool {
        self.due.contains_key(&flow) || self.begun.contains(&flow)
    }
}

impl Reference {
    /// Notes the jobs that are about to be cancelled together and are to be cleaned up after.
    pub(super) fn note_cleanups(&mut self, jobs: &[JobId], now: Timestamp) {
        let jobs: BTreeSet<JobId> = jobs.iter().copied().collect();
        let mut running = Vec::new();
        for id in jobs {
            let Some(job) = self.jobs.get(&id) else {
                continue;
            };
            let was_running = match job.place {
                Place::Blocked | Place::Ready => false,
                Place::Held { .. } => true,
                Place::Ended { .. } => continue,
            };
            if was_running {
                running.push(id);
            }
            let family = job.parenthood.as_ref().map(|own| &self.families[own.family]);
            let within_ms = family.and_then(|family| family.cleanup_ms);
            if let Some(within_ms) = within_ms.filter(|_| !self.cleanups.has_batch(id.batch)) {
                let due = Due {
                    cancelled_at: now,
                    was_running,
                    within_ms,
                };
                let before = self.cleanups.due.insert(id, due);
                assert!(before.is_none(), "{id} is cancelled once");
            }
        }
        // A worker runs steps of these flows, or of steps of them.
        for id in running {
            let above = std::iter::successors(Some(id.batch), |batch| self.parent_batch(*batch));
            let above: BTreeSet<BatchId> = above.skip(1).collect();
            let due = self.cleanups.due.iter_mut();
            for (_, due) in due.filter(|(flow, _)| above.contains(&flow.batch)) {
                due.was_running |= due.cancelled_at == now;
            }
        }
    }

    /// The jobs that a cancel by conditions cancels: it spares cleanups and their steps.
    pub fn without_cleanups(&self, mut jobs: Vec<JobId>) -> Vec<JobId> {
        jobs.retain(|job| {
            let mut above = std::iter::successors(Some(job.batch), |batch| self.parent_batch(*batch));
            !above.any(|batch| self.cleanups.has_batch(batch))
        });
        jobs
    }

    /// Reports whether a retry that names a job is refused.
    pub fn refuses_retry(&self, job: JobId) -> bool {
        self.is_ended_step(job) || self.cleanups.are_for(job)
    }

    /// The batch whose jobs have the jobs of a batch as children.
    fn parent_batch(&self, batch: BatchId) -> Option<BatchId> {
        let mut jobs = self.jobs.iter().filter(|(id, _)| id.batch == batch);
        let family = jobs.find_map(|(_, job)| job.child_of)?;
        let parent = self.families[family].parent().batch;
        Some(parent).filter(|_| self.has_owners(batch))
    }

    /// The cancelled flows whose cleanup can begin, and how long it may take.
    pub fn cleanups_due(&self, ran_before: Timestamp) -> BTreeMap<JobId, u64> {
        let due = self.cleanups.due.iter();
        let due = due.filter(|(_, due)| !due.was_running || due.cancelled_at <= ran_before);
        due.map(|(flow, due)| (*flow, due.within_ms)).collect()
    }

    /// Begins the cleanup after flows.
    pub fn begin_cleanups(&mut self, flows: &[JobId], cleanup: Option<(BatchId, &NewBatch)>, now: Timestamp) {
        let mut within_ms = 0;
        for flow in flows {
            within_ms = self.cleanups.due.remove(flow).unwrap().within_ms;
            if cleanup.is_some() {
                self.cleanups.begun.insert(*flow);
            }
        }
        if let Some((batch, new)) = cleanup {
            self.submit(batch, new, now);
            for (id, job) in self.jobs.iter().filter(|(id, _)| id.batch == batch) {
                let instance = Instance {
                    submitted_at: now,
                    ends_at: next_cleanup_look(within_ms as i64, now, now),
                    has_begun: false,
                    within_ms,
                    family: job.parenthood.as_ref().unwrap().family,
                };
                self.cleanups.instances.insert(*id, instance);
            }
        }
    }

    /// Cancels the instances that have cleaned up for as long as they may. Returns how many. The time of those that have begun since the
    /// last look begins; those that no worker begins wait on.
    pub(super) fn end_late_cleanups(&mut self, now: Timestamp) -> u64 {
        let mut late = Vec::new();
        for (id, instance) in &mut self.cleanups.instances {
            if instance.ends_at > now {
                continue;
            }
            let is_new = self.jobs.get(id).is_some_and(|job| {
                let family = job.parenthood.as_ref().map(|own| own.family);
                let is_claimable = matches!(job.place, Place::Ready | Place::Blocked);
                is_claimable && family == Some(instance.family) && job.attempt == 1
            });
            let within_ms = instance.within_ms as i64;
            if is_new && now < instance.submitted_at.plus_ms(CLEANUP_WAITS_MS_MAX) {
                instance.has_begun = false;
                instance.ends_at = next_cleanup_look(within_ms, instance.submitted_at, now);
            } else if is_new || instance.has_begun {
                late.push(*id);
            } else {
                instance.has_begun = true;
                instance.ends_at = now.plus_ms(within_ms);
            }
        }
        for job in &late {
            self.cleanups.instances.remove(job);
        }
        self.cancel(late, now)
    }

    /// Forgets the flows and instances that are gone.
    pub(super) fn forget_cleanups(&mut self) {
        let jobs = &self.jobs;
        self.cleanups.begun.retain(|flow| jobs.contains_key(flow));
        self.cleanups.instances.retain(|job, _| jobs.contains_key(job));
    }
}
