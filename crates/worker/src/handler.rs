//! Handlers: a [`Handler`] runs jobs in micro-batches and answers item by item.

mod answers;
pub mod context;
pub mod family;
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

/// Where a handler puts outcomes while it runs a micro-batch.
///
/// Every job must be answered exactly once over the whole micro-batch. What a handler leaves
/// unanswered when it returns counts as failed.
pub trait OutcomeSink: Send + Sync {
    /// Takes the outcomes of some jobs. Never blocks; may be called often.
    fn answer(&self, outcomes: Outcomes);

    /// Whether the worker wants the rest of this micro-batch back (a shutdown, a lost lease): the
    /// handler then finishes the jobs that have begun and answers the others as released.
    fn is_draining(&self) -> bool;

    /// The places of the jobs that were cancelled while they were held: running them is of no
    /// use any more, and their outcomes will be refused.
    fn cancelled(&self) -> Positions;

    /// Takes how far jobs are, by their places. For handlers whose jobs run elsewhere; others have a
    /// [`context`](OutcomeSink::context).
    fn progress(&self, progress: Vec<(u32, Progress)>) {
        let _ = progress;
    }

    /// Whether a job of this micro-batch has a follower of its output. Checked now and then while they run.
    fn is_followed(&self) -> bool {
        false
    }

    /// Takes what a running job has printed, as it comes: bytes of the job in this place, in their order. Called only while
    /// the micro-batch [is followed](OutcomeSink::is_followed); the whole log comes with the outcome in any case. Never blocks.
    fn printed(&self, index: u32, bytes: &[u8]) {
        let _ = (index, bytes);
    }

    /// The channel of a job of the micro-batch to the worker.
    fn context(&self, job: &MicroBatchJob<'_>) -> JobContext {
        JobContext::detached(job)
    }
}

/// How much a handler runs at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Its runners: processes, or tasks of this process. The worker's own limit where `None`.
    pub runners: Option<usize>,
    /// Jobs that one runner runs at once; at least 1.
    pub concurrency: u32,
    /// Whether a runner takes one micro-batch at a time and runs all of its jobs together, whatever their number.
    pub whole_batches: bool,
    /// How long a runner may gather outcomes before it answers them.
    pub gathers_for: Duration,
}

impl Default for Capacity {
    /// As many runners as the worker allows, one job at a time in each.
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
/// A runner takes a stream of micro-batches: the worker calls [`Handler::run`] again for a runner whose earlier calls
/// have not returned. The runner begins jobs in the order of the calls and of their places, and runs at most
/// [`Capacity::concurrency`] of them at once over all calls. It begins a job as soon as one of its slots is free.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Runs one micro-batch on a runner (from 0). Outcomes go to `sink` as they come.
    async fn run(&self, runner: usize, work: MicroBatch, sink: &dyn OutcomeSink);

    /// How much it runs at once. Constant.
    fn capacity(&self) -> Capacity {
        Capacity::default()
    }

    /// Asks a runner for the jobs that it has not begun: it answers them as [`Outcomes::returned`] within milliseconds,
    /// also while its jobs run. It may return none, and it finishes the jobs that have begun. Never blocks.
    fn recall(&self, runner: usize) {
        let _ = runner;
    }

    /// Takes the listener that hears which runners can take jobs. Called once, before the first micro-batch. A handler whose
    /// runners can always take jobs needs no listener.
    fn listen(&self, listener: RunnerListener) {
        let _ = listener;
    }

    /// Whether what it runs can be paused for something more urgent: asked to, it ends what it has begun or gives it back,
    /// and releases the rest, as under a drain.
    fn is_pausable(&self) -> bool {
        false
    }

    /// Ends whatever the handler keeps warm. Called once, after the last micro-batch.
    async fn shut_down(&self) {}
}
