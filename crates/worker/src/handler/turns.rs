//! The runners of handlers made of async functions. Each runner runs its jobs one after the other.

use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use gristmill_model::{JobError, Positions};
use serde::Serialize;
use tokio::sync::watch;

use crate::handler::OutcomeSink;
use crate::handler::answers::{Answers, Step};
use crate::handler::context::JobContext;
use crate::handler::micro_batch::{MicroBatch, MicroBatchJob};
use crate::sync::{Mutex, lock};

/// Runs the calls of each runner in their order, and gives unbegun jobs back.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    runners: Mutex<Vec<Arc<Turn>>>,
}

#[derive(Debug)]
struct Turn {
    /// The lock of the call whose jobs run.
    running: tokio::sync::Mutex<()>,
    recalls: watch::Sender<()>,
}

impl Default for Turn {
    fn default() -> Self {
        Turn {
            running: tokio::sync::Mutex::new(()),
            recalls: watch::Sender::new(()),
        }
    }
}

impl Turns {
    fn of(&self, runner: usize) -> Arc<Turn> {
        let mut runners = lock(&self.runners);
        if runners.len() <= runner {
            runners.resize_with(runner + 1, Arc::default);
        }
        runners[runner].clone()
    }

    /// Makes all calls of a runner return their unbegun jobs.
    pub fn recall(&self, runner: usize) {
        self.of(runner).recalls.send_replace(());
    }

    /// Runs the jobs of a micro-batch with `begin`, one after the other.
    pub async fn run<'work, V, R>(
        &self,
        runner: usize,
        work: &'work MicroBatch,
        sink: &dyn OutcomeSink,
        begin: impl Fn(MicroBatchJob<'work>, JobContext) -> R,
    ) where
        V: Serialize,
        R: Future<Output = Result<Step<V>, JobError>>,
    {
        let turn = self.of(runner);
        let mut recalled = turn.recalls.subscribe();
        let mut answers = Answers::new(sink);
        let _running = tokio::select! {
            biased;
            running = turn.running.lock() => running,
            _ = recalled.changed() => {
                answers.give_back(work.indexes());
                return answers.send();
            }
        };
        for one in work.jobs() {
            let rest = |from: u32| Positions::from(from..work.jobs_count());
            if recalled.has_changed().unwrap_or(false) {
                answers.give_back(rest(one.index));
                break;
            }
            let context = sink.context(&one);
            if sink.is_draining() || context.is_cancelled() {
                answers.release(one.index);
                continue;
            }
            let begun = Instant::now();
            let mut was_recalled = false;
            let mut running = std::pin::pin!(begin(one, context.clone()));
            let ended = match futures::poll!(running.as_mut()) {
                Poll::Ready(ended) => ended,
                Poll::Pending => {
                    // Ended jobs do not wait for slower ones.
                    answers.send();
                    tokio::select! {
                        biased;
                        ended = running.as_mut() => ended,
                        _ = recalled.changed() => {
                            was_recalled = true;
                            answers.give_back(rest(one.index + 1));
                            answers.send();
                            running.await
                        }
                    }
                }
            };
            match ended {
                Err(_) if context.take_given_back() => answers.release(one.index),
                Ok(Step::Done(value)) => answers.push(one.index, Ok(value), begun),
                Ok(Step::Wait(spawn)) => answers.suspend(one.index, spawn, begun),
                Err(error) => answers.push(one.index, Err::<V, _>(error), begun),
            }
            if was_recalled {
                break;
            }
        }
        answers.send();
    }
}
