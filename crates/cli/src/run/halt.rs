//! `gristmill run --halt`: no job begins after enough jobs have failed.
//!
//! Jobs that run ahead of the count could fail, too. A runner with free slots therefore takes the next job only while
//! the limit is not reached. Jobs queue at a runner only as long as the limit would hold if all of them failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_engine::Handler;
use gristmill_model::{Positions, Progress};
use gristmill_worker::{
    Capacity, JobContext, MicroBatch, MicroBatchJob, OutcomeSink, Outcomes, RunnerListener,
};
use tokio::sync::watch;

use super::backlog::Backlog;
use crate::arguments::run::Halt;

/// The interval at which a waiting job looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The counts of one process's part of a run.
#[derive(Debug, Default)]
struct State {
    /// The number of jobs that failed for good.
    failed: u64,
    /// The number of jobs that ended otherwise.
    completed: u64,
    /// For each runner, the number of its unanswered jobs.
    at_runner: Vec<u64>,
}

/// Counts failures when they are answered, before their commit, and holds jobs back.
#[derive(Debug)]
pub struct HaltGate {
    halt: Halt,
    backlog: Arc<Backlog>,
    state: Mutex<State>,
    changes: watch::Sender<()>,
}

impl HaltGate {
    /// A gate that no job has passed.
    pub fn new(halt: Halt, backlog: Arc<Backlog>) -> HaltGate {
        HaltGate {
            halt,
            backlog,
            state: Mutex::default(),
            changes: watch::Sender::new(()),
        }
    }

    /// Reports whether enough jobs have failed to stop the run. Unreadable items count.
    pub fn is_reached(&self) -> bool {
        self.is_reached_with(&self.state(), 0)
    }

    /// Reports whether the run stops if this many more jobs fail.
    fn is_reached_with(&self, state: &State, failing: u64) -> bool {
        let rejected = self.backlog.counts().rejected.load(Ordering::Relaxed);
        let failed = state.failed + rejected + failing;
        self.halt.is_reached(failed, state.completed + failed)
    }

    /// Lets jobs begin at a runner with this many slots, if they may.
    fn admit(&self, runner: usize, slots: u64, jobs: u64) -> bool {
        let mut state = self.state();
        if state.at_runner.len() <= runner {
            state.at_runner.resize(runner + 1, 0);
        }
        let ahead: u64 = state.at_runner.iter().sum::<u64>() + jobs - 1;
        let may = !self.is_reached_with(&state, 0)
            && (state.at_runner[runner] < slots || !self.is_reached_with(&state, ahead));
        if may {
            state.at_runner[runner] += jobs;
        }
        may
    }

    fn leave(&self, runner: usize, jobs: u64, (completed, failed): (u64, u64)) {
        let is_reached = {
            let mut state = self.state();
            state.at_runner[runner] -= jobs;
            state.completed += completed;
            state.failed += failed;
            failed > 0 && self.is_reached_with(&state, 0)
        };
        if is_reached {
            self.backlog.note_change();
        }
        self.changes.send_replace(());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Jobs that wait at one runner.
#[derive(Debug, Default)]
struct Queue {
    /// Only the first job waits at the gate.
    turn: tokio::sync::Mutex<()>,
    /// The number of recalls of the runner's jobs.
    recalls: AtomicU64,
}

/// A handler behind a gate.
pub struct GatedHandler {
    handler: Arc<dyn Handler>,
    gate: Arc<HaltGate>,
    queues: Vec<Queue>,
}

impl GatedHandler {
    /// Lets the handler's jobs begin when the gate admits them.
    pub fn new(handler: Arc<dyn Handler>, gate: Arc<HaltGate>) -> GatedHandler {
        let runners = handler.capacity().runners.unwrap_or(1);
        GatedHandler {
            handler,
            gate,
            queues: (0..runners).map(|_| Queue::default()).collect(),
        }
    }

    /// Waits until the jobs may begin. Returns `false` if they were answered before they began.
    async fn wait(&self, runner: usize, work: &MicroBatch, sink: &dyn OutcomeSink) -> bool {
        let Some(queue) = self.queues.get(runner) else {
            return true;
        };
        let slots = u64::from(self.handler.capacity().concurrency);
        let recalls = queue.recalls.load(Ordering::Relaxed);
        let _turn = queue.turn.lock().await;
        let mut changes = self.gate.changes.subscribe();
        loop {
            changes.mark_unchanged();
            let all = work.indexes();
            if queue.recalls.load(Ordering::Relaxed) != recalls {
                sink.answer(Outcomes {
                    returned: all,
                    ..Outcomes::default()
                });
                return false;
            }
            if sink.is_draining() || sink.cancelled().len() == all.len() {
                sink.answer(Outcomes {
                    released: all,
                    ..Outcomes::default()
                });
                return false;
            }
            if self.gate.admit(runner, slots, work.jobs_count().into()) {
                return true;
            }
            // This wait cannot last forever: the gate lives as long as the handler.
            let _ = tokio::time::timeout(LOOK_EVERY, changes.changed()).await;
        }
    }
}

#[async_trait]
impl Handler for GatedHandler {
    async fn run(&self, runner: usize, work: MicroBatch, sink: &dyn OutcomeSink) {
        if !self.wait(runner, &work, sink).await {
            return;
        }
        let counting = CountingSink {
            sink,
            gate: &self.gate,
            runner,
            work: work.clone(),
            left: AtomicU64::new(work.jobs_count().into()),
        };
        self.handler.run(runner, work, &counting).await;
    }

    fn capacity(&self) -> Capacity {
        self.handler.capacity()
    }

    fn recall(&self, runner: usize) {
        if let Some(queue) = self.queues.get(runner) {
            queue.recalls.fetch_add(1, Ordering::Relaxed);
            self.gate.changes.send_replace(());
        }
        self.handler.recall(runner);
    }

    fn listen(&self, listener: RunnerListener) {
        self.handler.listen(listener);
    }

    fn is_pausable(&self) -> bool {
        self.handler.is_pausable()
    }

    fn keeps_waiting(&self) -> bool {
        self.handler.keeps_waiting()
    }

    async fn shut_down(&self) {
        self.handler.shut_down().await;
    }
}

/// Counts the outcomes on their way to the worker.
struct CountingSink<'a> {
    sink: &'a dyn OutcomeSink,
    gate: &'a HaltGate,
    runner: usize,
    work: MicroBatch,
    /// The number of unanswered jobs.
    left: AtomicU64,
}

impl CountingSink<'_> {
    /// The number of failures after which jobs are dead.
    fn dead(&self, outcomes: &Outcomes) -> u64 {
        let is_dead = |job: &MicroBatchJob<'_>| {
            let mut failed = outcomes.failed.iter();
            failed.any(|failed| failed.position == job.index && job.is_last_attempt(&failed.error))
        };
        if outcomes.failed.is_empty() {
            0
        } else {
            self.work.jobs().filter(is_dead).count() as u64
        }
    }
}

impl OutcomeSink for CountingSink<'_> {
    fn answer(&self, outcomes: Outcomes) {
        let answered = u64::from(outcomes.positions().len()).min(self.left.load(Ordering::Relaxed));
        let completed = outcomes.completed.as_ref();
        let completed = completed.map_or(0, |completed| completed.positions.len().into());
        let dead = self.dead(&outcomes);
        self.left.fetch_sub(answered, Ordering::Relaxed);
        self.gate.leave(self.runner, answered, (completed, dead));
        self.sink.answer(outcomes);
    }

    fn is_draining(&self) -> bool {
        self.sink.is_draining()
    }

    fn cancelled(&self) -> Positions {
        self.sink.cancelled()
    }

    fn progress(&self, progress: Vec<(u32, Progress)>) {
        self.sink.progress(progress);
    }

    fn is_followed(&self) -> bool {
        self.sink.is_followed()
    }

    fn printed(&self, index: u32, bytes: &[u8]) {
        self.sink.printed(index, bytes);
    }

    fn context(&self, job: &MicroBatchJob<'_>) -> JobContext {
        self.sink.context(job)
    }
}

impl Drop for CountingSink<'_> {
    /// The worker answers the jobs that the handler left unanswered.
    fn drop(&mut self) {
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.gate.leave(self.runner, left, (0, left));
        }
    }
}
