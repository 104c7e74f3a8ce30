//! The handler of the jobs of one kind: JavaScript's event loop runs them.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use gristmill_model::{FailedJob, JobError, Positions};
use gristmill_worker::{Capacity, Handler, MicroBatch, OutcomeSink, Outcomes, RunnerChange, RunnerListener};
use tokio::time::MissedTickBehavior;

use crate::inbox::{Answer, Inbox, Message};
use crate::limits::{GATHERS_FOR, SIGNALS_EVERY};

/// Runs jobs in the event loop, which is the one runner of each kind.
pub struct LoopHandler {
    pub inbox: Arc<Inbox>,
    /// The number of the kind.
    pub kind: u32,
    /// The number of jobs at once.
    pub concurrency: u32,
    pub listener: Mutex<Option<RunnerListener>>,
}

impl LoopHandler {
    /// Ends the worker, because no slot of the kind will be free again.
    pub fn fail(&self, reason: String) {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listener) = &*listener {
            listener.tell(RunnerChange::Failed(reason));
        }
    }

    /// Tells JavaScript what has changed for a micro-batch.
    fn heed(&self, number: u32, sink: &dyn OutcomeSink, told: &mut Told) {
        if sink.is_draining() && !told.is_draining {
            told.is_draining = true;
            self.inbox.push(Message {
                what: "drain",
                number,
                ..Message::default()
            });
        }
        let cancelled = sink.cancelled();
        if cancelled.len() > told.cancelled.len() {
            let fresh = cancelled.difference(&told.cancelled);
            told.cancelled = cancelled;
            self.inbox.push(Message {
                what: "cancel",
                number,
                places: Some(fresh.iter().collect()),
                ..Message::default()
            });
        }
    }
}

/// What JavaScript knows of a micro-batch.
#[derive(Default)]
struct Told {
    is_draining: bool,
    cancelled: Positions,
}

#[async_trait]
impl Handler for LoopHandler {
    async fn run(&self, _: usize, work: MicroBatch, sink: &dyn OutcomeSink) {
        if work.is_finalizing() {
            let reason = "the children of this job have ended, and its handler cannot finalize: run it as a flow or a script";
            let failed = (0..work.jobs_count()).map(|position| FailedJob {
                position,
                error: JobError::new("children", reason),
                duration_us: 0,
            });
            sink.answer(Outcomes {
                failed: failed.collect(),
                ..Outcomes::default()
            });
            return;
        }
        let (number, mut answers) = self.inbox.deliver(self.kind, &work);
        let (mut left, mut told) = (work.indexes(), Told::default());
        let mut look = tokio::time::interval(SIGNALS_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !left.is_empty() {
            tokio::select! {
                biased;
                answer = answers.recv() => match answer {
                    Some(Answer::Outcomes(outcomes)) => {
                        left = left.difference(&outcomes.positions());
                        sink.answer(*outcomes);
                    }
                    Some(Answer::Progress(progress)) => sink.progress(progress),
                    None => break,
                },
                _ = look.tick() => self.heed(number, sink, &mut told),
            }
        }
        self.inbox.end(number);
    }

    fn capacity(&self) -> Capacity {
        Capacity {
            runners: Some(1),
            concurrency: self.concurrency,
            whole_batches: false,
            gathers_for: GATHERS_FOR,
        }
    }

    fn recall(&self, _: usize) {
        self.inbox.push(Message {
            what: "recall",
            number: self.kind,
            ..Message::default()
        });
    }

    fn listen(&self, listener: RunnerListener) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
    }
}
