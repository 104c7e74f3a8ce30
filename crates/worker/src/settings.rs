//! The settings of a worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gristmill_model::limits::{CANCEL_GRACE_MS, HEARTBEAT_EVERY_MS};
use gristmill_store::rules::admission::held_back::HELD_BACK_AFTER_MS;

use crate::io::IoRate;
use crate::pressure::Backpressure;

/// The settings of a worker: how it claims and runs jobs.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// The queues from which the worker claims.
    pub queues: Vec<Arc<str>>,
    /// The largest number of busy runners over all kinds. A runner is a process, or a task of this process.
    pub concurrency: usize,
    /// The number of jobs to run in total. `None` means no limit.
    pub jobs_limit: Option<u64>,
    /// The amount of work to hold beyond the free slots, as the time to run it.
    pub buffer_target: Duration,
    /// The amount of work that a runner holds beyond its running jobs, as the time to run it.
    pub window_target: Duration,
    /// The largest number of jobs in a micro-batch. With 1, a runner holds only running jobs.
    pub micro_batch_jobs_max: u32,
    /// The time between two looks of an idle worker for jobs of other processes.
    pub poll_every: Duration,
    /// The time between two heartbeats, if the source does not set it.
    pub heartbeat_every: Duration,
    /// The time for which an idle worker's claims get no jobs before it asks its source what holds due jobs back.
    pub asks_why_after: Duration,
    /// The time for which running jobs may continue after the worker was asked to stop. Then the worker releases them
    /// without charge, and ends. With `None` it waits for their end.
    pub grace: Option<Duration>,
    /// The worker ends when nothing is left to claim, now or later.
    pub until_empty: bool,
    /// The worker ends when nothing can be claimed now, even if jobs become claimable later.
    pub until_idle: bool,
    /// The time for which a cancelled job may continue. Then the worker abandons it, and its slot is free.
    pub cancel_grace: Duration,
    /// The backpressure while the machine is busy.
    pub backpressure: Backpressure,
    /// The bytes that running jobs may move together. A micro-batch that would exceed the budget waits until others
    /// have ended. A single micro-batch may exceed it.
    pub io_budget: Option<IoRate>,
    /// Jobs of this priority and above do not wait for a slot: pausable jobs of lower priority make room. With `None`
    /// no job does.
    pub preempt_from: Option<i16>,
    /// The kinds whose jobs can be paused, whatever their handlers report.
    pub pausable: BTreeSet<Arc<str>>,
    /// The bytes that a micro-batch of a kind moves, until its jobs report them.
    pub io_rates: BTreeMap<Arc<str>, IoRate>,
}

/// The bytes of outcomes that wait for their commit. Above this number no further micro-batch begins.
pub const REPORTS_PENDING_BYTES_MAX: usize = 64 << 20;

/// The bytes of gathered outcomes above which an exchange begins at once.
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
