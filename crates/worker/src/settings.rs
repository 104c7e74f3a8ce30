//! The settings of a worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gristmill_model::limits::{CANCEL_GRACE_MS, HEARTBEAT_EVERY_MS};
use gristmill_store::rules::admission::held_back::HELD_BACK_AFTER_MS;

use crate::io::IoRate;
use crate::pressure::Backpressure;

/// How a worker claims and runs.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// The queues that it claims from.
    pub queues: Vec<Arc<str>>,
    /// Runners that have work at once, over all kinds: processes, or tasks of this process.
    pub concurrency: usize,
    /// How many jobs to run in all; no bound where `None`.
    pub jobs_limit: Option<u64>,
    /// The work that it wants to hold beyond its free slots, as the time it takes to run it.
    pub buffer_target: Duration,
    /// The work that a runner holds beyond the jobs that it can run now, as the time it takes.
    pub window_target: Duration,
    /// Jobs in a micro-batch at most. Where it is 1, a runner holds no more than it can run now.
    pub micro_batch_jobs_max: u32,
    /// How often an idle worker looks for work that other processes submitted.
    pub poll_every: Duration,
    /// How often it says that it lives, where its source does not say.
    pub heartbeat_every: Duration,
    /// How long it claims in vain and runs nothing before it asks its source what holds due jobs back.
    pub asks_why_after: Duration,
    /// How long running jobs may continue when the worker stops. Then it releases them uncharged, and ends. Until their own ends,
    /// where `None`.
    pub grace: Option<Duration>,
    /// Whether it ends when nothing is left to claim, now or later.
    pub until_empty: bool,
    /// Ends when nothing can be claimed now, whatever can be later.
    pub until_idle: bool,
    /// How long a cancelled job may continue. Then the worker abandons it, and its slot is free.
    pub cancel_grace: Duration,
    /// Backpressure while its machine is busy.
    pub backpressure: Backpressure,
    /// What the jobs that run may move together. A micro-batch that would be over it waits until others have ended; one
    /// alone may be over it.
    pub io_budget: Option<IoRate>,
    /// Jobs of this priority and above do not wait for a slot: lower ones that can be paused make room. None do, where
    /// `None`.
    pub preempt_from: Option<i16>,
    /// Kinds whose jobs can be paused, regardless of their handlers.
    pub pausable: BTreeSet<Arc<str>>,
    /// The bytes that a micro-batch of a kind moves, until its jobs report them.
    pub io_rates: BTreeMap<Arc<str>, IoRate>,
}

/// Bytes of outcomes that wait for their commit, above which no further micro-batch is begun.
pub const REPORTS_PENDING_BYTES_MAX: usize = 64 << 20;

/// Bytes of outcomes that an exchange is not held back for.
pub const REPORTS_GATHERED_BYTES_MAX: usize = 4 << 20;

impl Default for WorkerSettings {
    fn default() -> Self {
        WorkerSettings {
            queues: vec![Arc::from(gristmill_model::batch::DEFAULT_QUEUE)],
            concurrency: std::thread::available_parallelism().map_or(1, usize::from),
            jobs_limit: None,
            buffer_target: Duration::from_millis(100),
            window_target: Duration::from_millis(10),
            micro_batch_jobs_max: 1_000,
            poll_every: Duration::from_millis(100),
            heartbeat_every: Duration::from_millis(HEARTBEAT_EVERY_MS as u64),
            asks_why_after: Duration::from_millis(HELD_BACK_AFTER_MS.unsigned_abs()),
            grace: None,
            until_empty: false,
            until_idle: false,
            cancel_grace: Duration::from_millis(CANCEL_GRACE_MS),
            backpressure: Backpressure::default(),
            io_budget: None,
            preempt_from: None,
            pausable: BTreeSet::new(),
            io_rates: BTreeMap::new(),
        }
    }
}
