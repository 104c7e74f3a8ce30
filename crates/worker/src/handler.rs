//! Handlers: a [`Handler`] runs jobs in micro-batches, and answers job by job.

mod answers;
pub mod context;
pub mod family;
pub mod flow;
pub mod function;
pub mod micro_batch;
mod outcomes;
pub mod runners;
mod turns;

use std::time::Duration;

use async_trait::async_trait;
use gristmill_model::{Positions, Progress};

use crate::handler::context::JobContext;
use crate::handler::micro_batch::{MicroBatch, MicroBatchJob};
use crate::handler::runners::RunnerListener;

pub use crate::handler::outcomes::Outcomes;

/// The receiver of a micro-batch's outcomes.
///
/// A handler must answer every job of a micro-batch exactly once. A job that is unanswered when the handler returns
/// counts as failed.
pub trait OutcomeSink: Send + Sync {
    /// Takes the outcomes of some jobs. Never blocks. A handler may call it often.
    fn answer(&self, outcomes: Outcomes);

    /// Reports whether the worker wants the rest of this micro-batch back, because it stops or lost its lease. The
    /// handler then finishes the jobs that have begun, and answers the others as released.
    fn is_draining(&self) -> bool;

    /// The places of the held jobs that were cancelled. Running them is useless, because their outcomes will be refused.
    fn cancelled(&self) -> Positions;

    /// Takes the progress of jobs, by their places. It is meant for handlers whose jobs run elsewhere. Other handlers
    /// use a [`context`](OutcomeSink::context).
    fn progress(&self, progress: Vec<(u32, Progress)>) {
        let _ = progress;
    }

    /// Reports whether anyone follows the output of a job of this micro-batch. Handlers check it from time to time.
    fn is_followed(&self) -> bool {
        false
    }

    /// Takes the output of a running job as it arrives: bytes of the job in this place, in their order. It is called
    /// only while the micro-batch [is followed](OutcomeSink::is_followed). The whole log comes with the outcome in any
    /// case. Never blocks.
    fn printed(&self, index: u32, bytes: &[u8]) {
        let _ = (index, bytes);
    }

    /// The channel from a job of the micro-batch to the worker.
    fn context(&self, job: &MicroBatchJob<'_>) -> JobContext {
        JobContext::detached(job)
    }
}

/// The number of jobs that a handler runs at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// The number of runners: processes, or tasks of this process. `None` stands for the worker's own limit.
    pub runners: Option<usize>,
    /// The number of jobs that one runner runs at once, at least 1.
    pub concurrency: u32,
    /// A runner takes one micro-batch at a time, and runs all of its jobs together.
    pub whole_batches: bool,
    /// The time for which a runner may gather outcomes before it answers them.
    pub gathers_for: Duration,
}

impl Default for Capacity {
    /// As many runners as the worker allows, with one job at a time.
    fn default() -> Self {
        Capacity {
            runners: None,
            concurrency: 1,
            whole_batches: false,
            gathers_for: Duration::ZERO,
        }
    }
}

/// Runs jobs of one kind on its runners.
///
/// A runner takes a stream of micro-batches: the worker calls [`Handler::run`] again before earlier calls for the
/// runner return. The runner begins jobs in the order of the calls and of their places. Over all calls it runs at most
/// [`Capacity::concurrency`] jobs at once. It begins a job as soon as one of its slots is free.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Runs one micro-batch on a runner, whose number counts from 0. The outcomes go to `sink` as they arrive.
    async fn run(&self, runner: usize, work: MicroBatch, sink: &dyn OutcomeSink);

    /// The number of jobs that the handler runs at once. It never changes.
    fn capacity(&self) -> Capacity {
        Capacity::default()
    }

    /// Asks a runner for its unbegun jobs. The handler answers them as [`Outcomes::returned`] within milliseconds, even
    /// while jobs run. It may return none, and it finishes the jobs that have begun. Never blocks.
    fn recall(&self, runner: usize) {
        let _ = runner;
    }

    /// Takes the listener for changes of the runners. The worker calls it once, before the first micro-batch. A handler
    /// whose runners can always take jobs needs no listener.
    fn listen(&self, listener: RunnerListener) {
        let _ = listener;
    }

    /// Reports whether running jobs can be paused for more urgent ones. A paused handler ends the jobs that have begun
    /// or gives them back, and releases the others as under a drain.
    fn is_pausable(&self) -> bool {
        false
    }

    /// Reports whether a runner may keep a job in memory that waits for its children. The worker then lets the same runner
    /// go on with it, if that costs no time.
    fn keeps_waiting(&self) -> bool {
        false
    }

    /// Ends the processes and other resources of the handler. The worker calls it once, after the last micro-batch.
    async fn shut_down(&self) {}
}
