//! Live output of running jobs: of one job until it has ended, or of all running jobs that match.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gristmill_model::limits::{FOLLOWED_MAX, LIVE_JOBS_MAX};
use gristmill_model::{Followed, JobId, JobState, KeptOutput, LogEvent};
use gristmill_store::{JobDetails, JobFilter, Page, Store, StoreError};
use tokio::time::{Instant, Interval, MissedTickBehavior};

/// The interval of reading output, and jobs that begin or end.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The interval at which a follower renews its registration.
const FOLLOW_EVERY: Duration = Duration::from_secs(5);

/// Pieces of other workers can appear this long after later ones. Milliseconds.
const LATE_MS_MAX: i64 = 3_000;

/// The number of remembered ended attempts, so that late pieces are not shown after their log.
const OVER_KEPT_MAX: usize = 1_000;

/// The followed jobs.
#[derive(Debug, Clone)]
pub enum FollowedJobs {
    /// One job, with the logs of its earlier attempts, until it has ended.
    Job(JobId),
    /// All running jobs that match, and those that begin later, without an end. The filter's states are ignored.
    Matching(Box<JobFilter>),
}

/// The logs of a job's attempts, oldest first.
pub fn attempt_logs(details: &JobDetails) -> Vec<(u32, &str)> {
    let failed = details.failures.iter();
    let mut logs: Vec<(u32, &str)> = failed
        .filter_map(|failure| Some((failure.attempt, failure.log.as_deref()?)))
        .collect();
    let last = details.log.as_deref().map(|log| (details.row.attempt, log));
    logs.extend(last);
    logs.retain(|(_, log)| !log.is_empty());
    logs
}

/// The followed jobs that one process knows. Workers that exchange with it learn of them before their next heartbeat.
/// Clones are cheap and share their state.
#[derive(Debug, Clone, Default)]
pub struct Interest(Arc<Mutex<(u64, Vec<Followed>)>>);

impl Interest {
    fn lock(&self) -> MutexGuard<'_, (u64, Vec<Followed>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the followed jobs from the store.
    pub fn learn(&self, followed: &[Followed]) {
        let mut known = self.lock();
        if known.1 != followed {
            *known = (known.0 + 1, followed.to_vec());
        }
    }

    /// Adds followed jobs.
    fn add(&self, followed: &[Followed]) {
        let mut known = self.lock();
        let new: Vec<Followed> = followed
            .iter()
            .filter(|followed| !known.1.contains(followed))
            .take(FOLLOWED_MAX.saturating_sub(known.1.len()))
            .cloned()
            .collect();
        if !new.is_empty() {
            known.0 += 1;
            known.1.extend(new);
        }
    }

    /// The followed jobs and their version. `None` if the caller already has this version. Version 0 follows no jobs.
    pub fn newer_than(&self, version: u64) -> Option<(u64, Vec<Followed>)> {
        let known = self.lock();
        (known.0 != version).then(|| known.clone())
    }
}

/// A stream of jobs' output.
#[derive(Debug)]
pub struct LiveLogs {
    store: Arc<dyn Store>,
    follower: String,
    wanted: FollowedJobs,
    interest: Interest,
    /// The followed jobs, with the first attempt whose log was not delivered yet.
    jobs: BTreeMap<JobId, u32>,
    /// Attempts of jobs that are no longer followed.
    over: VecDeque<(JobId, u32)>,
    /// The ids of returned pieces, as long as they may be read again.
    read: BTreeSet<i64>,
    after: i64,
    said: Option<(Instant, Vec<Followed>)>,
    ready: VecDeque<LogEvent>,
    is_left_out: bool,
    has_looked: bool,
    has_ended: bool,
    ticks: Interval,
}

impl LiveLogs {
    /// Follows under a name that no other follower of the store uses. Must be called within a tokio runtime.
    pub fn new(store: Arc<dyn Store>, follower: String, wanted: FollowedJobs, interest: Interest) -> Self {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let jobs = match &wanted {
            FollowedJobs::Job(job) => BTreeMap::from([(*job, 0)]),
            FollowedJobs::Matching(_) => BTreeMap::new(),
        };
        LiveLogs {
            store,
            follower,
            wanted,
            interest,
            jobs,
            over: VecDeque::new(),
            read: BTreeSet::new(),
            after: 0,
            said: None,
            ready: VecDeque::new(),
            is_left_out: false,
            has_looked: false,
            has_ended: false,
            ticks,
        }
    }

    /// The next event. `None` when the only followed job has ended or does not exist.
    pub async fn next(&mut self) -> Result<Option<LogEvent>, StoreError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.has_ended {
                return Ok(None);
            }
            self.ticks.tick().await;
            self.look().await?;
        }
    }

    /// Stops following. Without this, output is kept for some more seconds.
    pub async fn leave(&self) -> Result<(), StoreError> {
        self.store.unfollow(&self.follower).await
    }

    /// The followed jobs in the form for workers.
    fn followed(&self) -> Vec<Followed> {
        match &self.wanted {
            FollowedJobs::Matching(filter) if is_kind_alone(filter) => filter
                .kind
                .iter()
                .map(|kind| Followed::Kind(kind.as_str().into()))
                .collect(),
            _ => self.jobs.keys().copied().map(Followed::Job).collect(),
        }
    }

    /// Makes the store keep the output of followed jobs.
    async fn say(&mut self, followed: &[Followed]) -> Result<(), StoreError> {
        let is_said = self
            .said
            .as_ref()
            .is_some_and(|(at, said)| said == followed && at.elapsed() < FOLLOW_EVERY);
        if is_said {
            return Ok(());
        }
        if followed.is_empty() {
            if self.said.take().is_some() {
                self.leave().await?;
            }
            return Ok(());
        }
        self.store.follow(&self.follower, followed.to_vec()).await?;
        self.interest.add(followed);
        self.said = Some((Instant::now(), followed.to_vec()));
        Ok(())
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        // Jobs are read before their output, so that no output falls in between.
        let (stirred, gone) = match &self.wanted {
            FollowedJobs::Job(job) => match self.store.job(*job).await? {
                Some(details) => (vec![details], false),
                None => (Vec::new(), true),
            },
            FollowedJobs::Matching(filter) => (self.look_at_matching((**filter).clone()).await?, false),
        };
        let followed = self.followed();
        self.say(&followed).await?;
        if !followed.is_empty() {
            self.read_output(followed).await?;
        }
        for details in &stirred {
            self.take_ended(details);
        }
        self.has_looked = true;
        self.has_ended |= gone;
        Ok(())
    }

    /// Follows running jobs, and returns jobs with an ended attempt.
    async fn look_at_matching(&mut self, filter: JobFilter) -> Result<Vec<JobDetails>, StoreError> {
        let filter = JobFilter {
            states: vec![JobState::Running],
            ..filter
        };
        let page = Page {
            after: None,
            limit: LIVE_JOBS_MAX as u32 + 1,
        };
        let running: BTreeMap<JobId, u32> = self
            .store
            .jobs(&filter, page)
            .await?
            .iter()
            .map(|row| (row.job, row.attempt))
            .collect();
        let stirred = self
            .jobs
            .iter()
            .filter(|(job, attempt)| running.get(job).is_none_or(|now| now > attempt));
        let stirred: Vec<JobId> = stirred.map(|(job, _)| *job).collect();
        let mut details = Vec::with_capacity(stirred.len());
        for job in stirred {
            match self.store.job(job).await? {
                Some(of_job) => details.push(of_job),
                None => {
                    self.jobs.remove(&job);
                }
            }
        }
        for (job, attempt) in &running {
            if self.jobs.len() < LIVE_JOBS_MAX && !self.jobs.contains_key(job) {
                self.jobs.insert(*job, *attempt);
                self.over.retain(|(over, _)| over != job);
            }
        }
        let is_left_out = running.keys().any(|job| !self.jobs.contains_key(job));
        if is_left_out && !self.is_left_out {
            let counts = self.store.counts(&filter).await?;
            let jobs = counts.running.saturating_sub(self.jobs.len() as u64).max(1);
            self.ready.push_back(LogEvent::LeftOut { jobs });
        }
        self.is_left_out = is_left_out;
        assert!(
            self.jobs.len() <= LIVE_JOBS_MAX,
            "{} followed jobs exceed their limit",
            self.jobs.len()
        );
        Ok(details)
    }

    async fn read_output(&mut self, followed: Vec<Followed>) -> Result<(), StoreError> {
        let before = self.after;
        let page = self.store.live_output(followed, self.after).await?;
        let settled = self.store.now().plus_ms(-LATE_MS_MAX);
        for piece in page.pieces {
            if piece.at < settled {
                self.after = self.after.max(piece.id);
            }
            if self.read.insert(piece.id) && self.is_wanted(&piece) {
                self.ready.push_back(LogEvent::Printed(piece));
            }
        }
        self.read = self.read.split_off(&(self.after + 1));
        assert!(
            self.after >= before,
            "the place in the live output moves from {before} only forward"
        );
        Ok(())
    }

    /// Reports whether a piece is returned. A job that has just begun joins if there is room.
    fn is_wanted(&mut self, piece: &KeptOutput) -> bool {
        let (job, attempt) = (piece.printed.job, piece.printed.attempt);
        if let Some(first) = self.jobs.get(&job) {
            return attempt >= *first;
        }
        if !self.has_looked {
            // Jobs that do not run when following begins do not matter.
            self.forget(job, attempt);
            return false;
        }
        let mut over = self.over.iter();
        let is_over = over.any(|(over, last)| *over == job && attempt <= *last);
        if is_over || self.jobs.len() >= LIVE_JOBS_MAX {
            return false;
        }
        self.jobs.insert(job, attempt);
        true
    }

    /// Returns the logs of ended attempts, and the job's end.
    fn take_ended(&mut self, details: &JobDetails) {
        let (job, state) = (details.row.job, details.row.state);
        let Some(first) = self.jobs.get(&job).copied() else {
            return;
        };
        let mut next = first;
        for (attempt, log) in attempt_logs(details) {
            if attempt >= first {
                next = next.max(attempt + 1);
                self.ready.push_back(LogEvent::AttemptEnded {
                    job,
                    attempt,
                    log: log.to_owned(),
                });
            }
        }
        if state.is_final() {
            self.ready.push_back(LogEvent::Ended { job, state });
        }
        match (&self.wanted, state) {
            (FollowedJobs::Job(_), _) => self.has_ended = state.is_final(),
            (FollowedJobs::Matching(_), JobState::Running) => next = next.max(details.row.attempt),
            (FollowedJobs::Matching(_), _) => {
                // A job that is tried again joins again. The attempt of a waiting job is its next one.
                self.jobs.remove(&job);
                let last = details.row.attempt - u32::from(!state.is_final() && details.row.attempt > 0);
                self.forget(job, last.max(next.saturating_sub(1)));
                return;
            }
        }
        self.jobs.insert(job, next);
    }

    fn forget(&mut self, job: JobId, attempt: u32) {
        if !self.over.contains(&(job, attempt)) {
            self.over.push_back((job, attempt));
        }
        if self.over.len() > OVER_KEPT_MAX {
            self.over.pop_front();
        }
        assert!(
            self.over.len() <= OVER_KEPT_MAX,
            "at most {OVER_KEPT_MAX} ended attempts are remembered"
        );
    }
}

/// Reports whether a filter has a kind and no other condition. The kind can then be followed without reading its jobs.
fn is_kind_alone(filter: &JobFilter) -> bool {
    let JobFilter {
        states: _,
        kind,
        queue,
        group,
        run,
        batch,
        submitted_since,
        submitted_until,
        key,
        key_prefix,
        tags,
        parent,
        no_steps,
    } = filter;
    let others = [
        queue.is_some(),
        group.is_some(),
        run.is_some(),
        batch.is_some(),
        submitted_since.is_some(),
        submitted_until.is_some(),
        key.is_some(),
        key_prefix.is_some(),
        !tags.is_empty(),
        parent.is_some(),
        *no_steps,
    ];
    kind.is_some() && others.iter().all(|named| !named)
}
