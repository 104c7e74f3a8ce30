//! The reference: a row a job, in memory, as plain as can be.

use std::collections::{BTreeMap, BTreeSet};

use gristmill_model::limits::RESCUES_MAX;
use gristmill_model::retry::AfterFailure;
use gristmill_model::{
    After, BatchId, JobError, JobId, JobState, LeaseId, LeasedSlice, NewBatch, OnFailure, Prerequisite,
    Receipt, Report, RetryPolicy, SplitMix64, Timestamp, WorkerId,
};

use crate::JobCounts;

#[derive(Debug, Clone)]
pub struct Job {
    kind: String,
    rank: i16,
    policy: RetryPolicy,
    payload: String,
    run_at: Timestamp,
    expires_at: Option<Timestamp>,
    attempt: u32,
    rescues: u32,
    place: Place,
}

#[derive(Debug, Clone)]
enum Place {
    Blocked,
    Ready,
    Held {
        worker: WorkerId,
        lease: LeaseId,
    },
    Ended {
        state: JobState,
        attempt: u32,
        at: Timestamp,
        value: Option<String>,
    },
}

/// What orders claims: the priority, negated, the moment, the batch.
type ClaimKey = (i16, Timestamp, BatchId);

#[derive(Debug)]
pub struct Reference {
    pub jobs: BTreeMap<JobId, Job>,
    pub workers: BTreeSet<WorkerId>,
    revoked: Vec<(WorkerId, LeaseId, JobId)>,
    /// What batches wait for still, by the batch that waits.
    after: BTreeMap<BatchId, Vec<After>>,
}

impl Reference {
    pub fn new(worker: WorkerId) -> Self {
        Reference {
            jobs: BTreeMap::new(),
            workers: BTreeSet::from([worker]),
            revoked: Vec::new(),
            after: BTreeMap::new(),
        }
    }

    pub fn submit(&mut self, batch: BatchId, new: &NewBatch, now: Timestamp) {
        for (position, payload) in (0..).zip(new.payloads.items()) {
            let job = Job {
                kind: new.kind.clone(),
                rank: -new.options.priority,
                policy: new.options.retry,
                payload: payload.to_owned(),
                run_at: new.options.run_at.unwrap_or(now),
                expires_at: new.options.expires_at,
                attempt: 1,
                rescues: 0,
                place: match new.after.is_empty() {
                    true => Place::Ready,
                    false => Place::Blocked,
                },
            };
            self.jobs.insert(JobId { batch, position }, job);
        }
        if !new.after.is_empty() {
            // What is waited for of one batch counts together.
            let mut merged: Vec<After> = Vec::new();
            for after in &new.after {
                let known = merged
                    .iter_mut()
                    .find(|known| known.prerequisite == after.prerequisite);
                match known {
                    Some(known) => {
                        let both = known.positions.take().zip(after.positions.as_ref());
                        known.positions = both.map(|(positions, more)| positions.union(more));
                    }
                    None => merged.push(after.clone()),
                }
            }
            self.after.insert(batch, merged);
            self.settle(now);
        }
    }

    /// The jobs that something waits for.
    fn meant<'a>(&'a self, after: &'a After) -> impl Iterator<Item = (JobId, &'a Job)> {
        let Prerequisite::Batch(batch) = after.prerequisite else {
            panic!("{after:?} was not submitted")
        };
        let of_batch = self.jobs.iter().filter(move |(id, _)| id.batch == batch);
        let is_meant = |id: &JobId| {
            let positions = after.positions.as_ref();
            positions.is_none_or(|positions| positions.contains(id.position))
        };
        of_batch
            .filter(move |(id, _)| is_meant(id))
            .map(|(id, job)| (*id, job))
    }

    /// Whether there is all that is to be waited for.
    pub fn has_all(&self, after: &[After]) -> bool {
        after.iter().all(|after| {
            let count = self.meant(after).count();
            match &after.positions {
                Some(positions) => count == positions.len() as usize,
                None => count > 0,
            }
        })
    }

    /// Lets go on, or ends, what waits for jobs that have all ended.
    fn settle(&mut self, now: Timestamp) {
        loop {
            let ended = self.after.iter().find_map(|(batch, all)| {
                let met = |after: &After| self.meant(after).all(|(_, job)| job.ended_at().is_some());
                Some((*batch, all.iter().position(met)?))
            });
            let Some((batch, index)) = ended else { return };
            let all = self.after.get_mut(&batch).unwrap();
            let after = all.remove(index);
            let is_last = all.is_empty();
            let in_vain = after.on_failure != OnFailure::Ignore
                && self.meant(&after).any(|(_, job)| !job.has_completed());
            if in_vain || is_last {
                self.after.remove(&batch);
            }
            let waiting = self.jobs.iter_mut().filter(|(id, _)| id.batch == batch);
            for job in waiting.map(|(_, job)| job) {
                match job.place {
                    Place::Blocked if !in_vain && is_last => job.place = Place::Ready,
                    Place::Blocked if in_vain && after.on_failure == OnFailure::Fail => {
                        job.end(JobState::Dead, now);
                    }
                    Place::Blocked if in_vain => {
                        job.attempt -= 1;
                        job.end(JobState::Cancelled, now);
                    }
                    _ => {}
                }
            }
        }
    }

    pub fn claim_key(&self, id: JobId) -> ClaimKey {
        let job = &self.jobs[&id];
        (job.rank, job.run_at, id.batch)
    }

    /// The claimable jobs in the order of claims.
    pub fn due(&self, kinds: &[&str], now: Timestamp) -> Vec<JobId> {
        let mut due: Vec<JobId> = self
            .ready(kinds)
            .filter(|(_, job)| job.run_at <= now && job.expires_at.is_none_or(|moment| moment > now))
            .map(|(id, _)| *id)
            .collect();
        due.sort_by_key(|id| self.claim_key(*id));
        due
    }

    pub fn next_run_at(&self, kinds: &[&str], now: Timestamp) -> Option<Timestamp> {
        self.ready(kinds)
            .map(|(_, job)| job.run_at)
            .filter(|run_at| *run_at > now)
            .min()
    }

    fn ready<'a>(&'a self, kinds: &'a [&str]) -> impl Iterator<Item = (&'a JobId, &'a Job)> {
        self.jobs.iter().filter(move |(_, job)| {
            matches!(job.place, Place::Ready) && (kinds.is_empty() || kinds.contains(&job.kind.as_str()))
        })
    }

    pub fn claim(&mut self, worker: WorkerId, slice: &LeasedSlice, now: Timestamp) {
        for (position, payload) in slice.positions.iter().zip(slice.payloads.items()) {
            let id = JobId {
                batch: slice.batch,
                position,
            };
            let job = self.jobs.get_mut(&id).unwrap();
            assert!(
                matches!(job.place, Place::Ready) && job.run_at <= now,
                "{id} was not to be claimed"
            );
            assert_eq!((slice.attempt, slice.rescues), (job.attempt, job.rescues), "{id}");
            assert_eq!(
                (payload, &*slice.kind),
                (job.payload.as_str(), job.kind.as_str()),
                "{id}"
            );
            job.place = Place::Held {
                worker,
                lease: slice.lease,
            };
        }
    }

    pub fn report(&mut self, worker: WorkerId, report: &Report, now: Timestamp) -> Receipt {
        let mut receipt = Receipt::default();
        for position in report.positions().iter() {
            let id = JobId {
                batch: report.batch,
                position,
            };
            let held = self.jobs.get_mut(&id).filter(|job| {
                job.attempt == report.attempt
                    && matches!(job.place, Place::Held { worker: by, lease } if by == worker && lease == report.lease)
            });
            let Some(job) = held else {
                receipt.refused.insert(position);
                continue;
            };
            receipt.accepted.insert(position);
            if report.released.contains(position) {
                job.place = Place::Ready;
            } else if let Some(failed) = report.failed.iter().find(|failed| failed.position == position) {
                if job.fail(&failed.error, now) {
                    receipt.dead.insert(position);
                }
            } else {
                job.end(JobState::Completed, now);
            }
        }
        self.settle(now);
        receipt
    }

    pub fn take_revoked(&mut self, worker: WorkerId) -> Vec<(LeaseId, JobId)> {
        let mine = self.revoked.extract_if(.., |(by, ..)| *by == worker);
        let mut mine: Vec<_> = mine.map(|(_, lease, job)| (lease, job)).collect();
        mine.sort_unstable();
        mine
    }

    fn held_by(&mut self, worker: WorkerId) -> impl Iterator<Item = &mut Job> {
        self.jobs
            .values_mut()
            .filter(move |job| matches!(job.place, Place::Held { worker: by, .. } if by == worker))
    }

    pub fn leave(&mut self, worker: WorkerId) {
        self.held_by(worker).for_each(|job| job.place = Place::Ready);
        self.workers.remove(&worker);
        self.take_revoked(worker);
    }

    /// How many jobs are claimable again, and how many dead.
    pub fn rescue(&mut self, worker: WorkerId, now: Timestamp) -> (u64, u64) {
        let (mut rescued, mut dead) = (0, 0);
        for job in self.held_by(worker) {
            if job.rescues < RESCUES_MAX {
                job.rescues += 1;
                job.expires_at = None;
                job.place = Place::Ready;
                rescued += 1;
            } else {
                job.end(JobState::Dead, now);
                dead += 1;
            }
        }
        self.workers.remove(&worker);
        self.take_revoked(worker);
        self.settle(now);
        (rescued, dead)
    }

    pub fn of_kind(&self, kind: &str) -> Vec<JobId> {
        let jobs = self.jobs.iter().filter(|(_, job)| job.kind == kind);
        jobs.map(|(id, _)| *id).collect()
    }

    pub fn cancel(&mut self, jobs: Vec<JobId>, now: Timestamp) -> u64 {
        let mut changed = 0;
        for id in jobs {
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
            changed += 1;
        }
        self.settle(now);
        changed
    }

    pub fn retry(&mut self, jobs: Vec<JobId>, now: Timestamp) -> u64 {
        let mut changed = 0;
        for id in jobs {
            let Some(job) = self.jobs.get_mut(&id) else {
                continue;
            };
            if matches!(job.place, Place::Ended { state, .. } if state != JobState::Completed) {
                (job.attempt, job.rescues, job.run_at, job.expires_at) = (1, 0, now, None);
                job.place = Place::Ready;
                changed += 1;
            }
        }
        changed
    }

    pub fn expire(&mut self, now: Timestamp) -> u64 {
        let mut expired = 0;
        for job in self.jobs.values_mut() {
            if matches!(job.place, Place::Blocked | Place::Ready)
                && job.expires_at.is_some_and(|moment| moment <= now)
            {
                job.attempt -= 1;
                job.end(JobState::Expired, now);
                expired += 1;
            }
        }
        self.settle(now);
        expired
    }

    /// Keeps the latest ended batch, those with dead jobs, and those that ended at `before` or later.
    pub fn prune(&mut self, before: Timestamp) -> (u64, u64) {
        let mut batches: BTreeMap<BatchId, Vec<&Job>> = BTreeMap::new();
        for (id, job) in &self.jobs {
            batches.entry(id.batch).or_default().push(job);
        }
        let ended = batches.iter().filter_map(|(id, jobs)| {
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
        (gone.len() as u64, (jobs_before - self.jobs.len()) as u64)
    }

    pub fn states(&self, now: Timestamp) -> Vec<(JobId, JobState, u32)> {
        let states = self.jobs.iter().map(|(id, job)| match job.place {
            Place::Blocked => (*id, JobState::Blocked, job.attempt),
            Place::Ready if job.run_at <= now => (*id, JobState::Waiting, job.attempt),
            Place::Ready => (*id, JobState::Scheduled, job.attempt),
            Place::Held { .. } => (*id, JobState::Running, job.attempt),
            Place::Ended { state, attempt, .. } => (*id, state, attempt),
        });
        states.collect()
    }

    pub fn counts(&self, now: Timestamp) -> JobCounts {
        let mut counts = JobCounts::default();
        for (_, state, _) in self.states(now) {
            *counts.get_mut(state) += 1;
        }
        counts
    }

    pub fn values(&self) -> BTreeMap<JobId, String> {
        let values = self.jobs.iter().filter_map(|(id, job)| match &job.place {
            Place::Ended { value, .. } => Some((*id, value.clone()?)),
            _ => None,
        });
        values.collect()
    }
}

impl Job {
    fn end(&mut self, state: JobState, at: Timestamp) {
        let value = (state == JobState::Completed).then(|| self.payload.clone());
        self.place = Place::Ended {
            state,
            attempt: self.attempt,
            at,
            value,
        };
    }

    fn has_completed(&self) -> bool {
        matches!(
            self.place,
            Place::Ended {
                state: JobState::Completed,
                ..
            }
        )
    }

    fn ended_at(&self) -> Option<Timestamp> {
        match self.place {
            Place::Ended { at, .. } => Some(at),
            _ => None,
        }
    }

    /// One failed attempt. Whether the job is dead.
    fn fail(&mut self, error: &JobError, now: Timestamp) -> bool {
        match self
            .policy
            .after_failure(self.attempt, error, &mut SplitMix64::new(0))
        {
            AfterFailure::Dead => {
                self.end(JobState::Dead, now);
                true
            }
            AfterFailure::Retry { delay_ms } => {
                self.attempt += 1;
                self.run_at = now.plus_ms(delay_ms as i64);
                self.expires_at = None;
                self.place = Place::Ready;
                false
            }
        }
    }
}
