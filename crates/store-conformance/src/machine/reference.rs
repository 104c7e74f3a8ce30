//! The reference: a row a job, in memory, as plain as can be.

mod keys;

use std::collections::{BTreeMap, BTreeSet};

use gristmill_model::limits::RESCUES_MAX;
use gristmill_model::retry::AfterFailure;
use gristmill_model::{
    After, BatchId, JobError, JobId, JobState, LeaseId, LeasedSlice, NewBatch, OnFailure, Prerequisite,
    Receipt, Report, RetryPolicy, SplitMix64, Timestamp, WorkerId,
};
use gristmill_store::JobCounts;

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
    key: Option<String>,
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
    /// Who waits for what still. The jobs of a group wait for the same.
    waiting: Vec<Waiting>,
    /// Who has which key, by kind and key.
    keys: BTreeMap<(String, String), keys::Owner>,
    /// Kinds of which nothing is claimed.
    paused: BTreeSet<String>,
    /// How many jobs of a kind may run at once.
    limits: BTreeMap<String, usize>,
}

/// Jobs that wait together.
#[derive(Debug)]
struct Waiting {
    jobs: BTreeSet<JobId>,
    after: Vec<After>,
}

impl Reference {
    pub fn new(worker: WorkerId) -> Self {
        Reference {
            jobs: BTreeMap::new(),
            workers: BTreeSet::from([worker]),
            revoked: Vec::new(),
            waiting: Vec::new(),
            keys: BTreeMap::new(),
            paused: BTreeSet::new(),
            limits: BTreeMap::new(),
        }
    }

    pub fn submit(&mut self, batch: BatchId, new: &NewBatch, now: Timestamp) {
        let none = vec![None; new.payloads.count() as usize];
        self.insert(batch, new, none, Vec::new(), now);
        self.settle(now);
    }

    /// Adds the jobs of a batch. `inherited` are positions that wait for more than the batch says.
    fn insert(
        &mut self,
        batch: BatchId,
        new: &NewBatch,
        keys: Vec<Option<String>>,
        inherited: Vec<(u32, Vec<After>)>,
        now: Timestamp,
    ) {
        for ((position, payload), key) in (0..).zip(new.payloads.items()).zip(keys) {
            let waits = inherited.iter().find(|(of, _)| *of == position);
            let after = merged(new.after.iter().chain(waits.iter().flat_map(|(_, after)| after)));
            let id = JobId { batch, position };
            let job = Job {
                kind: new.kind.clone(),
                rank: -new.options.priority,
                policy: new.options.retry,
                payload: payload.to_owned(),
                run_at: new.options.run_at.unwrap_or(now),
                expires_at: new.options.expires_at,
                attempt: 1,
                rescues: 0,
                key,
                place: match after.is_empty() {
                    true => Place::Ready,
                    false => Place::Blocked,
                },
            };
            self.jobs.insert(id, job);
            if after.is_empty() {
                continue;
            }
            match self
                .waiting
                .iter_mut()
                .find(|waiting| waiting.is_of(batch) && waiting.after == after)
            {
                Some(waiting) => {
                    waiting.jobs.insert(id);
                }
                None => self.waiting.push(Waiting {
                    jobs: BTreeSet::from([id]),
                    after,
                }),
            }
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
        self.release_keys(now);
        loop {
            let ended = self.waiting.iter().enumerate().find_map(|(group, waiting)| {
                let met = |after: &After| self.meant(after).all(|(_, job)| job.ended_at().is_some());
                Some((group, waiting.after.iter().position(met)?))
            });
            let Some((group, index)) = ended else { return };
            let after = self.waiting[group].after.remove(index);
            let is_last = self.waiting[group].after.is_empty();
            let in_vain = after.on_failure != OnFailure::Ignore
                && self.meant(&after).any(|(_, job)| !job.has_completed());
            if !in_vain && !is_last {
                continue;
            }
            for id in self.waiting.remove(group).jobs {
                let Some(job) = self
                    .jobs
                    .get_mut(&id)
                    .filter(|job| matches!(job.place, Place::Blocked))
                else {
                    continue;
                };
                match in_vain {
                    false => {
                        job.place = Place::Ready;
                        continue;
                    }
                    true if after.on_failure == OnFailure::Fail => job.end(JobState::Dead, now),
                    true => {
                        job.attempt -= 1;
                        job.end(JobState::Cancelled, now);
                    }
                }
            }
            self.release_keys(now);
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
        let mut rooms: BTreeMap<&str, usize> = BTreeMap::new();
        due.retain(|id| {
            let kind = self.jobs[id].kind.as_str();
            let room = rooms.entry(kind).or_insert_with(|| self.room(kind));
            let is_admitted = *room > 0;
            *room = room.saturating_sub(1);
            is_admitted
        });
        due
    }

    /// How many jobs of a kind may be claimed.
    fn room(&self, kind: &str) -> usize {
        let is_held = |job: &&Job| job.kind == kind && matches!(job.place, Place::Held { .. });
        match self.limits.get(kind) {
            _ if self.paused.contains(kind) => 0,
            Some(limit) => limit.saturating_sub(self.jobs.values().filter(is_held).count()),
            None => usize::MAX,
        }
    }

    /// Whether jobs wait for others to be over, for a limit's sake.
    pub fn is_limited(&self, kinds: &[&str]) -> bool {
        let waiting = self.ready(kinds).map(|(_, job)| job.kind.as_str());
        let mut waiting = waiting.filter(|kind| !self.paused.contains(*kind));
        waiting.any(|kind| self.room(kind) == 0)
    }

    pub fn pause(&mut self, kind: &str) {
        self.paused.insert(kind.to_owned());
    }

    pub fn resume(&mut self, kind: &str) -> u64 {
        u64::from(self.paused.remove(kind))
    }

    pub fn limit(&mut self, kind: &str, jobs_max: Option<u32>) {
        match jobs_max {
            Some(jobs_max) => self.limits.insert(kind.to_owned(), jobs_max as usize),
            None => self.limits.remove(kind),
        };
    }

    pub fn next_run_at(&self, kinds: &[&str], now: Timestamp) -> Option<Timestamp> {
        let open = self.ready(kinds).filter(|(_, job)| self.room(&job.kind) > 0);
        open.map(|(_, job)| job.run_at)
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

    /// Of several jobs with one key, the first one is retried.
    pub fn retry(&mut self, mut jobs: Vec<JobId>, now: Timestamp) -> u64 {
        jobs.sort_unstable();
        let mut changed = 0;
        for id in jobs {
            let has_key = self.may_retry(id, now);
            let Some(job) = self.jobs.get_mut(&id).filter(|_| has_key) else {
                continue;
            };
            if matches!(job.place, Place::Ended { state, .. } if state != JobState::Completed) {
                (job.attempt, job.rescues, job.run_at, job.expires_at) = (1, 0, now, None);
                job.place = Place::Ready;
                changed += 1;
                self.take_key_again(id);
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

impl Waiting {
    fn is_of(&self, batch: BatchId) -> bool {
        self.jobs.first().is_some_and(|job| job.batch == batch)
    }
}

/// What is waited for of one batch with one policy counts together.
fn merged<'a>(all: impl Iterator<Item = &'a After>) -> Vec<After> {
    let mut merged: Vec<After> = Vec::new();
    for after in all {
        let known = merged
            .iter_mut()
            .find(|known| (known.prerequisite, known.on_failure) == (after.prerequisite, after.on_failure));
        match known {
            Some(known) => {
                let both = known.positions.take().zip(after.positions.as_ref());
                known.positions = both.map(|(positions, more)| positions.union(more));
            }
            None => merged.push(after.clone()),
        }
    }
    merged
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
