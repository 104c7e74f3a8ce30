//! Deduplication keys of the reference.

use std::collections::BTreeMap;

use gristmill_model::{After, BatchId, JobId, KeyedBatch, NewBatch, OnDuplicate, Positions, Timestamp};

use crate::machine::reference::{Job, Place, Reference, merged};

/// The owner of a key.
#[derive(Debug, Clone)]
pub(super) struct Owner {
    pub job: JobId,
    pub is_open: bool,
    until: Option<Timestamp>,
    /// The payload that waits behind the owner.
    pub behind: Option<Behind>,
}

/// A payload that waits behind the owner of its key.
#[derive(Debug, Clone)]
pub(super) struct Behind {
    pub key: String,
    pub new: NewBatch,
    pub payload: String,
    pub first_at: Timestamp,
}

impl Owner {
    pub(super) fn of(job: JobId, until: Option<Timestamp>) -> Self {
        Owner {
            job,
            is_open: true,
            until,
            behind: None,
        }
    }
}

/// The plan for a submitted batch of jobs with keys.
pub struct KeyedPlan {
    /// The result for each job: its position if it is stored, or the job that replaces it.
    pub jobs: Vec<Result<u32, JobId>>,
    /// The stored jobs, by their places in the batch.
    pub stored: Positions,
    /// The open jobs that stored jobs replace, by position.
    replaced: Vec<(u32, JobId)>,
    /// Open jobs that stand for submitted ones.
    skipped: Vec<JobId>,
}

impl Reference {
    /// The plan for a batch. `None` if the batch is refused.
    pub fn plan(&self, batch: &KeyedBatch, keys: &[Option<String>], now: Timestamp) -> Option<KeyedPlan> {
        let on_duplicate = batch.unique().on_duplicate;
        let mut plan = KeyedPlan {
            jobs: Vec::new(),
            stored: Positions::new(),
            replaced: Vec::new(),
            skipped: Vec::new(),
        };
        let last: BTreeMap<&String, usize> = keys
            .iter()
            .enumerate()
            .filter_map(|(index, key)| Some((key.as_ref()?, index)))
            .collect();
        for (index, key) in keys.iter().enumerate() {
            let Some(key) = key else {
                plan.store(index);
                continue;
            };
            if last[key] != index {
                if on_duplicate == OnDuplicate::Reject {
                    return None;
                }
                // A later step sets the position.
                plan.jobs.push(Ok(u32::MAX));
                continue;
            }
            match self.owner(&batch.batch.kind, key, now) {
                None => plan.store(index),
                Some(owner) => match on_duplicate {
                    OnDuplicate::Reject => return None,
                    OnDuplicate::Replace if owner.is_open => {
                        plan.replaced.push((plan.stored.len(), owner.job));
                        plan.store(index);
                    }
                    _ => {
                        plan.skipped.extend(owner.is_open.then_some(owner.job));
                        plan.jobs.push(Err(owner.job));
                    }
                },
            }
        }
        for (index, key) in keys.iter().enumerate() {
            if let Some(key) = key {
                plan.jobs[index] = plan.jobs[last[key]];
            }
        }
        Some(plan)
    }

    /// The jobs with a matching key.
    pub fn with_key(&self, is_meant: impl Fn(&str) -> bool) -> Vec<JobId> {
        let jobs = self.jobs.iter();
        let jobs = jobs.filter(|(_, job)| job.key.as_deref().is_some_and(&is_meant));
        jobs.map(|(id, _)| *id).collect()
    }

    /// The jobs with this value of the tag.
    pub fn with_tag(&self, value: &str) -> Vec<JobId> {
        let jobs = self.jobs.iter();
        let jobs = jobs.filter(|(_, job)| job.tag.as_deref() == Some(value));
        jobs.map(|(id, _)| *id).collect()
    }

    fn owner(&self, kind: &str, key: &str, now: Timestamp) -> Option<Owner> {
        let owner = self.keys.get(&(kind.to_owned(), key.to_owned())).cloned();
        owner.filter(|owner| {
            owner.is_open || owner.behind.is_some() || owner.until.is_some_and(|until| until > now)
        })
    }

    /// Cancels the replaced jobs, and stores the new ones.
    pub fn submit_keyed(
        &mut self,
        id: Option<BatchId>,
        batch: &KeyedBatch,
        keys: &[Option<String>],
        plan: &KeyedPlan,
        now: Timestamp,
    ) {
        let inherited: Vec<(u32, Vec<After>)> = plan
            .replaced
            .iter()
            .map(|(position, of)| (*position, self.awaited_by(*of)))
            .collect();
        self.cancel(plan.replaced.iter().map(|(_, of)| *of).collect(), now);
        for id in &plan.skipped {
            if let Some(job) = self.jobs.get_mut(id).filter(|job| job.is_claimable()) {
                job.rank = job.rank.min(-batch.batch.options.priority);
            }
        }
        let Some(id) = id else {
            return;
        };
        let keys: Vec<Option<String>> = plan
            .stored
            .iter()
            .map(|index| keys[index as usize].clone())
            .collect();
        for (key, position) in keys.iter().zip(0..) {
            if let Some(key) = key {
                let period_ms = batch.unique().period_ms;
                let until = period_ms.map(|period_ms| now.plus_ms(period_ms as i64));
                let owner = Owner::of(JobId { batch: id, position }, until);
                self.keys.insert((batch.batch.kind.clone(), key.clone()), owner);
            }
        }
        let mut new = batch.batch.clone();
        new.payloads = new.payloads.select(&plan.stored);
        self.insert(id, &new, keys, inherited, now);
        self.settle(now);
    }

    /// The prerequisites of a job that has not begun.
    fn awaited_by(&self, id: JobId) -> Vec<After> {
        match self.jobs.get(&id) {
            Some(job) if matches!(job.place, Place::Blocked) => {
                let groups = self.waiting.iter().filter(|waiting| waiting.jobs.contains(&id));
                merged(groups.flat_map(|waiting| &waiting.after))
            }
            _ => Vec::new(),
        }
    }

    /// Releases the keys of ended jobs whose periods are over. A payload behind a completed job runs at once. A cancel drops the
    /// payload behind the cancelled job. A payload behind a dead or expired job is due at the next `expire`.
    pub(super) fn release_keys(&mut self, now: Timestamp) {
        let (jobs, again) = (&self.jobs, &mut self.again);
        self.keys.retain(|_, owner| {
            let job = jobs.get(&owner.job);
            if !owner.is_open || job.is_some_and(|job| job.ended_at().is_none()) {
                return true;
            }
            owner.is_open = false;
            let (completed, cancelled) = (
                job.is_some_and(Job::has_completed),
                job.is_some_and(Job::is_cancelled),
            );
            if completed && owner.behind.is_some() {
                again.extend(owner.behind.take());
                return false;
            }
            if cancelled {
                owner.behind = None;
            }
            if owner.behind.is_some() {
                owner.until = Some(now);
                return true;
            }
            owner.until.is_some_and(|until| until > now)
        });
    }

    /// Forgets the keys of ended jobs. The payloads behind them are due.
    pub(super) fn forget_keys(&mut self, now: Timestamp) {
        let again = &mut self.again;
        self.keys.retain(|_, owner| {
            let is_over = !owner.is_open && owner.until.is_none_or(|until| until <= now);
            if is_over {
                again.extend(owner.behind.take());
            }
            !is_over
        });
    }

    /// Reports whether no other job has the key of this one.
    pub(super) fn may_retry(&self, id: JobId, now: Timestamp) -> bool {
        let Some((kind, key)) = self.key_of(id) else {
            return true;
        };
        self.owner(&kind, &key, now)
            .is_none_or(|owner| owner.job.batch == id.batch)
    }

    fn key_of(&self, id: JobId) -> Option<(String, String)> {
        let job = self.jobs.get(&id)?;
        Some((job.kind.clone(), job.key.clone()?))
    }

    /// Gives a reopened job its key back.
    pub(super) fn take_key_again(&mut self, id: JobId) {
        let Some(key) = self.key_of(id) else {
            return;
        };
        let own = self.keys.remove(&key).filter(|owner| owner.job.batch == id.batch);
        let mut owner = own.unwrap_or_else(|| Owner::of(id, None));
        (owner.job, owner.is_open) = (id, true);
        self.keys.insert(key, owner);
    }
}

impl KeyedPlan {
    fn store(&mut self, index: usize) {
        self.jobs.push(Ok(self.stored.len()));
        self.stored.insert(index as u32);
    }
}
