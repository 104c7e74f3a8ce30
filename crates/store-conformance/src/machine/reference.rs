//! The reference: one row for each job, in memory, as simple as possible.

mod changes;
mod cleanups;
mod debounce;
mod families;
mod flows;
mod keys;

use std::collections::{BTreeMap, BTreeSet};

use gristmill_model::limits::RESCUES_MAX;
use gristmill_model::retry::AfterFailure;
use gristmill_model::{
    After, BatchId, Debounce, JobError, JobId, JobState, LeaseId, LeasedSlice, NewBatch, OnFailure,
    Prerequisite, Receipt, Report, RetryPolicy, Signal, SplitMix64, Timestamp, WorkerId,
};
use gristmill_store::JobCounts;

pub use families::Created;
use families::{Family, Parenthood, siblings_of, suspended_of};

#[derive(Debug, Clone)]
pub struct Job {
    kind: String,
    rank: i16,
    /// The rank of its batch. A retry by hand restores it.
    batch_rank: i16,
    policy: RetryPolicy,
    payload: String,
    run_at: Timestamp,
    /// The run time of its batch. A parent finalizes with it.
    batch_run_at: Timestamp,
    /// The time by which its next attempt must begin.
    expires_at: Option<Timestamp>,
    /// The time limit for all attempts together.
    within_ms: Option<u64>,
    cached_ms: Option<u64>,
    attempt: u32,
    rescues: u32,
    key: Option<String>,
    /// The value of its tag: its own key or its parent's.
    tag: Option<String>,
    debounce: Option<Debounce>,
    submitted_at: Timestamp,
    /// The end of each of its pauses, by reason.
    pauses: BTreeMap<&'static str, Option<Timestamp>>,
    /// The number of the family in which it is a child.
    child_of: Option<usize>,
    /// Whether it is told together with the others of its parent in its batch.
    together: bool,
    /// Whether the event that it got has gone back.
    is_returned: bool,
    /// The family that it waits for, or finalizes with.
    parenthood: Option<Parenthood>,
    /// The families of the steps that it has taken as a flow.
    steps: Vec<usize>,
    /// The signal that ends it. Nothing runs it.
    signal: Option<Signal>,
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

/// The order of claims: the negative priority, the time, the batch.
type ClaimKey = (i16, Timestamp, BatchId);

#[derive(Debug)]
pub struct Reference {
    pub jobs: BTreeMap<JobId, Job>,
    pub workers: BTreeSet<WorkerId>,
    revoked: Vec<(WorkerId, LeaseId, JobId)>,
    /// The jobs that still wait for others. The jobs of one entry wait for the same ones.
    waiting: Vec<Waiting>,
    /// The owner of each key, by kind and key.
    keys: BTreeMap<(String, String), keys::Owner>,
    /// The time when the value of a kind and payload was last stored, and the time until which it is kept.
    cached: BTreeMap<(String, String), (Timestamp, Timestamp)>,
    /// The kinds that are not claimed.
    paused: BTreeSet<String>,
    /// The largest number of running jobs of each limited kind.
    limits: BTreeMap<String, usize>,
    /// All families, including ended ones.
    families: Vec<Family>,
    /// The jobs that run once more after jobs that this step completed.
    again: Vec<keys::Behind>,
    /// The events that their flows do not await yet, the oldest first.
    kept: Vec<flows::KeptEvent>,
    cleanups: cleanups::Cleanups,
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
            cached: BTreeMap::new(),
            paused: BTreeSet::new(),
            limits: BTreeMap::new(),
            families: Vec::new(),
            again: Vec::new(),
            kept: Vec::new(),
            cleanups: cleanups::Cleanups::default(),
        }
    }

    /// Reports whether the reference has a job.
    pub fn was_stored(&self, id: JobId) -> bool {
        self.jobs.contains_key(&id)
    }

    pub fn submit(&mut self, batch: BatchId, new: &NewBatch, now: Timestamp) {
        let none = vec![None; new.payloads.count() as usize];
        self.insert(batch, new, none, Vec::new(), now);
        self.begin_with_memos(batch, new);
        self.settle(now);
    }

    /// Adds the jobs of a batch. The jobs at `inherited` positions wait for more than the batch names.
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
            self.insert_job(JobId { batch, position }, new, payload, key, after, now);
        }
    }

    /// Adds a job of a batch.
    fn insert_job(
        &mut self,
        id: JobId,
        new: &NewBatch,
        payload: &str,
        key: Option<String>,
        after: Vec<After>,
        now: Timestamp,
    ) {
        let run_at = new.options.run_at.unwrap_or(now);
        let debounce = new.options.unique.and_then(|unique| unique.debounce);
        let mut job = Job {
            kind: new.kind.clone(),
            rank: -new.options.priority,
            batch_rank: -new.options.priority,
            policy: new.options.retry,
            payload: payload.to_owned(),
            run_at,
            batch_run_at: run_at,
            expires_at: new.options.expires_at,
            within_ms: new.options.complete_within_ms,
            cached_ms: new.options.cached_ms,
            attempt: 1,
            rescues: 0,
            tag: key.clone().filter(|_| debounce.is_none()),
            key,
            debounce,
            submitted_at: now,
            pauses: BTreeMap::new(),
            child_of: None,
            together: false,
            is_returned: false,
            parenthood: None,
            steps: Vec::new(),
            signal: new.options.signal.clone(),
            place: if after.is_empty() && new.options.signal.is_none() {
                Place::Ready
            } else {
                Place::Blocked
            },
        };
        if self.is_cached(&job, now) {
            job.attempt = 0;
            job.end(JobState::Completed, now);
        }
        self.jobs.insert(id, job);
        if after.is_empty() {
            return;
        }
        let mut known = self.waiting.iter_mut();
        match known.find(|waiting| waiting.is_of(id.batch) && waiting.after == after) {
            Some(waiting) => {
                waiting.jobs.insert(id);
            }
            None => self.waiting.push(Waiting {
                jobs: BTreeSet::from([id]),
                after,
            }),
        }
    }

    /// Reports whether a job that is submitted now has a cached value.
    fn is_cached(&self, job: &Job, now: Timestamp) -> bool {
        let kept = self.cached.get(&(job.kind.clone(), job.payload.clone()));
        job.cached_ms
            .zip(kept)
            .is_some_and(|(cached_ms, (stored_at, _))| *stored_at > now.plus_ms(-(cached_ms as i64)))
    }

    /// The jobs of a prerequisite.
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

    /// Reports whether all prerequisites exist.
    pub fn has_all(&self, after: &[After]) -> bool {
        after.iter().all(|after| {
            let count = self.meant(after).count();
            match &after.positions {
                Some(positions) => count == positions.len() as usize,
                None => count > 0,
            }
        })
    }

    /// Continues or ends the jobs whose prerequisites have all ended.
    fn settle(&mut self, now: Timestamp) {
        loop {
            self.cancel_left_open(now);
            self.release_keys(now);
            let ended = self.waiting.iter().enumerate().find_map(|(group, waiting)| {
                let met = |after: &After| self.meant(after).all(|(_, job)| job.ended_at().is_some());
                Some((group, waiting.after.iter().position(met)?))
            });
            let Some((group, index)) = ended else {
                if self.settle_family(now) {
                    continue;
                }
                return;
            };
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
                if !in_vain {
                    job.place = Place::Ready;
                } else if after.on_failure == OnFailure::Fail {
                    job.end(JobState::Dead, now);
                } else {
                    job.attempt -= 1;
                    job.end(JobState::Cancelled, now);
                }
            }
        }
    }

    pub fn claim_key(&self, id: JobId) -> ClaimKey {
        let job = &self.jobs[&id];
        (job.rank, job.run_at, id.batch)
    }

    /// The claimable jobs, in the order of claims.
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

    /// The number of jobs of a kind that may be claimed.
    fn room(&self, kind: &str) -> usize {
        let is_held = |job: &&Job| job.kind == kind && matches!(job.place, Place::Held { .. });
        match self.limits.get(kind) {
            _ if self.paused.contains(kind) => 0,
            Some(limit) => limit.saturating_sub(self.jobs.values().filter(is_held).count()),
            None => usize::MAX,
        }
    }

    /// Reports whether jobs wait for others to end because of a limit.
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
            job.is_claimable() && (kinds.is_empty() || kinds.contains(&job.kind.as_str()))
        })
    }

    pub fn claim(&mut self, worker: WorkerId, slice: &LeasedSlice, now: Timestamp) {
        for (place, (position, payload)) in slice.positions.iter().zip(slice.payloads.items()).enumerate() {
            let id = JobId {
                batch: slice.batch,
                position,
            };
            let expected = self.memo_of(id);
            let job = self.jobs.get_mut(&id).unwrap();
            assert!(job.is_claimable() && job.run_at <= now, "{id} is not claimable");
            assert_eq!((slice.attempt, slice.rescues), (job.attempt, job.rescues), "{id}");
            assert_eq!(
                (payload, &*slice.kind),
                (job.payload.as_str(), job.kind.as_str()),
                "{id}"
            );
            let memo = slice.memos.as_ref().and_then(|memos| memos.items().nth(place));
            assert_eq!(memo, expected.as_deref(), "{id}");
            job.place = Place::Held {
                worker,
                lease: slice.lease,
            };
        }
    }

    /// Applies a report. `created` are the jobs that the store made with it.
    pub fn report(
        &mut self,
        worker: WorkerId,
        report: &Report,
        created: &mut Created,
        now: Timestamp,
    ) -> Receipt {
        let mut receipt = Receipt::default();
        let mut spread = Vec::new();
        for position in report.positions().iter() {
            let id = JobId {
                batch: report.batch,
                position,
            };
            let siblings = siblings_of(report, position);
            let is_orphan = siblings.is_some() && !self.has_parent(id);
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
                job.come_back(now);
            } else if let Some(suspended) = suspended_of(report, position) {
                self.suspend(id, &suspended, created, now);
            } else if is_orphan {
                job.end(JobState::Dead, now);
                receipt.dead.insert(position);
                receipt.failed.insert(position);
            } else if let Some(failed) = report.failed.iter().find(|failed| failed.position == position) {
                if job.fail(&failed.error, now) {
                    receipt.dead.insert(position);
                }
            } else {
                job.end(JobState::Completed, now);
                let key = (job.kind.clone(), job.payload.clone());
                if let Some(cached_ms) = job.cached_ms {
                    let until = now.plus_ms(cached_ms as i64);
                    let kept = self.cached.entry(key).or_insert((now, until));
                    *kept = (now, until.max(kept.1));
                }
                spread.extend(siblings.map(|siblings| (id, siblings)));
            }
        }
        for (id, siblings) in spread {
            self.spread(id, &siblings, created, now);
        }
        self.settle(now);
        self.run_again(created, now);
        receipt
    }

    pub fn take_revoked(&mut self, worker: WorkerId) -> Vec<(LeaseId, JobId)> {
        let mine = self.revoked.extract_if(.., |(by, ..)| *by == worker);
        let mut mine: Vec<_> = mine.map(|(_, lease, job)| (lease, job)).collect();
        mine.sort_unstable();
        mine
    }

    /// Reports whether a claim still holds some of its jobs.
    pub fn is_held(&self, slice: &LeasedSlice) -> bool {
        let batch = slice.batch;
        let jobs = slice.positions.iter().map(|position| JobId { batch, position });
        jobs.filter_map(|id| self.jobs.get(&id))
            .any(|job| matches!(job.place, Place::Held { lease, .. } if lease == slice.lease))
    }

    fn held_by(&mut self, worker: WorkerId) -> impl Iterator<Item = &mut Job> {
        self.jobs
            .values_mut()
            .filter(move |job| matches!(job.place, Place::Held { worker: by, .. } if by == worker))
    }

    pub fn leave(&mut self, worker: WorkerId, now: Timestamp) {
        self.held_by(worker).for_each(|job| job.come_back(now));
        self.workers.remove(&worker);
        self.take_revoked(worker);
    }

    /// Returns the number of jobs that are claimable again, and the number of dead ones.
    pub fn rescue(&mut self, worker: WorkerId, now: Timestamp) -> (u64, u64) {
        let (mut rescued, mut dead) = (0, 0);
        for job in self.held_by(worker) {
            if job.rescues < RESCUES_MAX {
                job.begin_deadline(now);
                job.rescues += 1;
                job.come_back(now);
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

    pub fn states(&self, now: Timestamp) -> Vec<(JobId, JobState, u32)> {
        let states = self.jobs.iter().map(|(id, job)| match job.place {
            Place::Blocked | Place::Ready if !job.pauses.is_empty() => (*id, JobState::Paused, job.attempt),
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

/// Merges prerequisites of one batch with one policy.
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
        self.pauses.clear();
        self.place = Place::Ended {
            state,
            attempt: self.attempt,
            at,
            value,
        };
    }

    fn is_claimable(&self) -> bool {
        matches!(self.place, Place::Ready) && self.pauses.is_empty()
    }

    /// Puts the job back. No worker holds it any more.
    fn come_back(&mut self, now: Timestamp) {
        self.place = Place::Ready;
        self.end_pauses(now);
    }

    /// Reports whether the job is neither claimable nor running: it waits for others, or is paused.
    fn is_kept_back(&self) -> bool {
        match self.place {
            Place::Blocked => true,
            Place::Ready => !self.pauses.is_empty(),
            Place::Held { .. } | Place::Ended { .. } => false,
        }
    }

    fn has_begun(&self) -> bool {
        self.attempt > 1 || self.rescues > 0
    }

    /// Notes the end of an attempt that began at this time. The first attempt starts the time limit of all attempts.
    fn begin_deadline(&mut self, began_at: Timestamp) {
        self.expires_at = match self.within_ms {
            Some(_) if self.has_begun() && self.expires_at.is_some() => self.expires_at,
            Some(within_ms) => Some(began_at.plus_ms(within_ms as i64)),
            None => None,
        };
    }

    /// Ends the pauses of the job after the last one is over.
    fn end_pauses(&mut self, now: Timestamp) {
        if self
            .pauses
            .values()
            .all(|until| until.is_some_and(|until| until <= now))
        {
            self.pauses.clear();
        }
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

    fn is_cancelled(&self) -> bool {
        matches!(
            self.place,
            Place::Ended {
                state: JobState::Cancelled,
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

    /// Notes a failed attempt. Returns whether the job is dead.
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
                self.begin_deadline(now);
                self.attempt += 1;
                self.run_at = now.plus_ms(delay_ms as i64);
                self.come_back(now);
                false
            }
        }
    }
}
