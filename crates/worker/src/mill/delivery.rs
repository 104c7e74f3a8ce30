//! Deliveries: a micro-batch in the hands of a runner.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures::FutureExt;
use gristmill_model::{FailedJob, JobError, Positions, Progress, Suspended};
use gristmill_store::family::seen_of;
use gristmill_store::{ChildOutcome, Revoked};
use tokio::sync::mpsc::UnboundedSender;

use crate::handler::context::{DeliveryContext, JobContext};
use crate::handler::micro_batch::{MicroBatch, MicroBatchJob, Part, part_of, share_out};
use crate::handler::runners::RunnerChange;
use crate::handler::{Handler, OutcomeSink, Outcomes};
use crate::io::IoCounter;
use crate::live_output::LiveOutputBoard;
use crate::progress::ProgressBoard;
use crate::signals::Signals;
use crate::source::{Source, SourceError};
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock};

/// The id of a delivery within one worker. Later deliveries have larger ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryId(pub u64);

/// An event of a delivery or a runner, for the worker. Each job is answered once, so the channel holds no more events
/// than the worker has jobs, apart from changes of its runners.
#[derive(Debug)]
pub enum DeliveryEvent {
    /// Some jobs have outcomes.
    Answered {
        /// The id of the delivery.
        delivery: DeliveryId,
        /// The number of the jobs' part in the micro-batch.
        part: usize,
        /// The outcomes, numbered by the positions in the batch.
        outcomes: Box<Outcomes>,
    },
    /// The handler has returned, and all jobs are answered.
    Ended {
        /// The id of the delivery.
        delivery: DeliveryId,
        /// The duration of the delivery.
        elapsed: Duration,
    },
    /// The runners of a kind changed.
    RunnerChanged {
        /// The number of the kind in the worker.
        kind: usize,
        /// The change.
        change: RunnerChange,
    },
}

/// The state of a micro-batch that a runner holds. The worker and the handler share it.
#[derive(Debug)]
pub struct Delivery {
    /// The id of the delivery.
    pub id: DeliveryId,
    /// The number of the jobs' kind in the worker.
    pub kind: usize,
    /// The number of the runner.
    pub runner: usize,
    /// The highest priority of the jobs.
    pub priority: i16,
    work: MicroBatch,
    context: Arc<DeliveryContext>,
    output: LiveOutputBoard,
    state: Mutex<State>,
    /// For each job of a flow with open children, the number of ended children that it sees.
    seen: OnceLock<Vec<Option<u32>>>,
    draining: Arc<AtomicBool>,
    events: UnboundedSender<DeliveryEvent>,
}

/// The state of the jobs. All positions are places in the micro-batch.
#[derive(Debug)]
struct State {
    unanswered: Positions,
    cancelled: Positions,
}

/// The state that all deliveries of a worker share.
#[derive(Debug, Clone)]
pub struct Shared {
    /// The worker wants unbegun jobs back.
    pub draining: Arc<AtomicBool>,
    /// The progress of the jobs.
    pub board: ProgressBoard,
    /// The output of followed jobs.
    pub output: LiveOutputBoard,
    /// The time for which a cancelled job may continue.
    pub cancel_grace: Duration,
    /// The channel of events to the worker.
    pub events: UnboundedSender<DeliveryEvent>,
}

impl Delivery {
    /// A delivery of `work` to a runner of a kind. It does not run yet.
    pub fn new(id: DeliveryId, kind: usize, runner: usize, work: MicroBatch, shared: &Shared) -> Arc<Self> {
        Arc::new(Delivery {
            id,
            kind,
            runner,
            priority: work.priority(),
            context: Arc::new(DeliveryContext {
                board: shared.board.clone(),
                io: IoCounter::default(),
                signals: Signals::new(shared.cancel_grace),
                writes: Default::default(),
                siblings: Default::default(),
                source: Default::default(),
            }),
            output: shared.output.clone(),
            state: Mutex::new(State {
                unanswered: work.indexes(),
                cancelled: Positions::new(),
            }),
            work,
            seen: OnceLock::new(),
            draining: shared.draining.clone(),
            events: shared.events.clone(),
        })
    }

    /// The number of jobs.
    pub fn jobs_count(&self) -> u32 {
        self.work.jobs_count()
    }

    /// A part of the micro-batch.
    pub(crate) fn part(&self, number: usize) -> &Part {
        &self.work.parts()[number]
    }

    /// Marks the revoked jobs of this delivery as cancelled.
    pub fn revoke(&self, revoked: &Revoked) {
        let parts = self.work.parts().iter();
        let concerned = parts.filter(|part| part.lease() == revoked.lease && part.batch() == revoked.batch);
        let indexes: Vec<Positions> = concerned
            .map(|part| part.indexes_of(&revoked.positions))
            .collect();
        if indexes.is_empty() {
            return;
        }
        {
            debug_assert!(
                indexes
                    .iter()
                    .all(|indexes| self.work.indexes().contains_all(indexes))
            );
            let mut state = self.state();
            for indexes in indexes {
                state.cancelled = state.cancelled.union(&indexes);
            }
        }
        self.context.signals.cancel(revoked.batch, &revoked.positions);
    }

    /// Marks all jobs as cancelled.
    pub fn revoke_all(&self) {
        self.state().cancelled = self.work.indexes();
        self.context.signals.cancel_all();
    }

    /// Reports whether a job was cancelled, by its part and its position in the batch.
    pub(crate) fn is_cancelled(&self, part: &Part, position: u32) -> bool {
        let state = self.state();
        if state.cancelled.is_empty() {
            return false;
        }
        let place = part.indexes_of(&Positions::from(position..position + 1));
        !place.is_disjoint(&state.cancelled)
    }

    /// Asks the jobs to make room. The effect is a drain of this micro-batch alone.
    pub fn pause(&self) {
        self.context.signals.pause();
    }

    /// Reports whether the jobs were asked to make room.
    pub fn is_pausing(&self) -> bool {
        self.context.signals.is_pausing()
    }

    /// Takes back the jobs that have not ended, without charge.
    pub fn release(&self) {
        self.context.signals.release();
    }

    /// Reports whether each job was answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.state().unanswered.is_empty()
    }

    /// The bytes that the jobs moved.
    pub(crate) fn io(&self) -> &IoCounter {
        &self.context.io
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Runs the jobs with `handler`. A panic of the handler fails its unanswered jobs. For jobs that finalize, it first
    /// asks `source` for the outcomes of their children. Without an answer the jobs go back.
    pub async fn run(self: Arc<Self>, handler: Arc<dyn Handler>, source: Arc<dyn Source>) {
        let begun = Instant::now();
        self.context.source.set(source.clone());
        let ready = tokio::select! {
            ready = self.ready_work(&*source) => ready,
            () = self.context.signals.until(Signals::is_releasing) => Ok(self.work.clone()),
        };
        match ready {
            Ok(work) => self.run_by(&*handler, work).await,
            Err(error) => {
                tracing::warn!(%error, "the outcomes of children are unreadable; their parents go back");
                self.answer(Outcomes {
                    released: self.work.indexes(),
                    ..Outcomes::default()
                });
            }
        }
        let _ = self.events.send(DeliveryEvent::Ended {
            delivery: self.id,
            elapsed: begun.elapsed(),
        });
    }

    /// The micro-batch. For jobs that finalize it includes the outcomes of their children.
    async fn ready_work(&self, source: &dyn Source) -> Result<MicroBatch, SourceError> {
        if !self.work.is_finalizing() {
            return Ok(self.work.clone());
        }
        let mut children: Vec<Vec<ChildOutcome>> = Vec::with_capacity(self.jobs_count() as usize);
        for part in self.work.parts() {
            children.extend(
                source
                    .children(part.lease(), part.batch(), part.positions())
                    .await?,
            );
        }
        let _ = self
            .seen
            .set(children.iter().map(|children| seen_of(children)).collect());
        Ok(self.work.clone().with_children(children))
    }

    async fn run_by(&self, handler: &dyn Handler, work: MicroBatch) {
        let begun = Instant::now();
        let run = std::panic::AssertUnwindSafe(handler.run(self.runner, work, self)).catch_unwind();
        let signals = &self.context.signals;
        let run = tokio::select! {
            biased;
            () = signals.until(Signals::is_releasing) => None,
            run = run => Some(run),
            () = self.given_up() => None,
        };
        let unanswered = self.state().unanswered.clone();
        if unanswered.is_empty() {
            return;
        }
        if signals.is_releasing() && run.is_none() {
            self.answer(Outcomes {
                released: unanswered,
                ..Outcomes::default()
            });
            return;
        }
        let error = match run {
            None => JobError::new(
                "cancelled",
                "the job continued after its cancellation, and was abandoned",
            ),
            Some(Err(panic)) => {
                JobError::new("panic", format!("the handler panicked: {}", panic_text(&*panic)))
            }
            Some(Ok(())) => JobError::new(
                "unanswered",
                "the handler returned without an outcome for this job",
            ),
        };
        let duration_us = micros(begun.elapsed());
        let failed = unanswered.iter().map(|position| FailedJob {
            position,
            error: error.clone(),
            duration_us,
        });
        self.answer(Outcomes {
            failed: failed.collect(),
            ..Outcomes::default()
        });
    }

    /// Resolves when all unanswered jobs were cancelled, and their grace period has ended.
    async fn given_up(&self) {
        let is_in_vain = || {
            let state = self.state();
            !state.unanswered.is_empty() && state.cancelled.contains_all(&state.unanswered)
        };
        loop {
            self.context.signals.until(|_| is_in_vain()).await;
            self.context.signals.grace().await;
            if is_in_vain() {
                return;
            }
        }
    }

    /// Drops the statements and siblings of failed jobs.
    fn forget_wishes(&self, outcomes: &Outcomes) {
        let context = &self.context;
        if !context.writes.is_used() && !context.siblings.is_used() {
            return;
        }
        for failed in &outcomes.failed {
            let parts = self.work.parts();
            let job = parts[part_of(parts, failed.position)].job_at(failed.position);
            context.writes.forget(job);
            context.siblings.forget(job);
        }
    }

    /// Tells the store how many ended children flows have seen, if others are open or some are given up.
    fn count_seen(&self, suspended: &mut Suspended) {
        let Some(seen) = self.seen.get().filter(|_| suspended.flow.is_some()) else {
            suspended.given_up.clear();
            return;
        };
        let seen = suspended
            .positions
            .iter()
            .map(|index| seen.get(index as usize).copied().flatten());
        let seen: Vec<Option<u32>> = seen.collect();
        if seen.iter().any(Option::is_some) || !suspended.given_up.is_empty() {
            // A job without open children has no news either.
            assert_eq!(seen.len(), suspended.positions.len() as usize);
            suspended.seen = seen.into_iter().map(|seen| seen.unwrap_or(u32::MAX)).collect();
        }
    }

    fn send(&self, number: usize, mut outcomes: Outcomes) {
        let batch = self.part(number).batch();
        // Children belong to the trace of their parent. All jobs of a part have the same one, so it splits no batch.
        let traceparent = self.part(number).held.slice.traceparent;
        for suspended in &mut outcomes.suspended {
            for children in &mut suspended.children {
                children.options.traceparent = children.options.traceparent.or(traceparent);
            }
        }
        if let Some(completed) = &outcomes.completed {
            if self.context.writes.is_used() {
                outcomes.writes = self.context.writes.take(batch, &completed.positions);
            }
            if self.context.siblings.is_used() {
                let spawned = self.context.siblings.take(batch, &completed.positions);
                outcomes.siblings.extend(spawned);
            }
        }
        if self.context.board.is_used() {
            self.context.board.forget(batch, &outcomes.positions());
        }
        self.output.forget(batch, &outcomes.positions());
        let _ = self.events.send(DeliveryEvent::Answered {
            delivery: self.id,
            part: number,
            outcomes: Box::new(outcomes),
        });
    }
}

impl OutcomeSink for Delivery {
    fn answer(&self, mut outcomes: Outcomes) {
        let positions = outcomes.positions();
        if positions.is_empty() {
            return;
        }
        let mut state = self.state();
        if !state.unanswered.contains_all(&positions) {
            tracing::error!(indexes = %positions, "a handler answered a job twice, or a job that it did not get; the answer is ignored");
            return;
        }
        // A process may send logs of other jobs. They have no part in this answer.
        outcomes.logs.retain(|log| positions.contains(log.position));
        state.unanswered = state.unanswered.difference(&positions);
        debug_assert!(state.unanswered.is_disjoint(&positions), "answered once");
        self.forget_wishes(&outcomes);
        for suspended in &mut outcomes.suspended {
            self.count_seen(suspended);
        }
        for (number, outcomes) in share_out(self.work.parts(), outcomes) {
            self.send(number, outcomes);
        }
        drop(state);
        // The remaining jobs may have been cancelled.
        self.context.signals.remind();
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed) || self.is_pausing()
    }

    fn cancelled(&self) -> Positions {
        self.state().cancelled.clone()
    }

    fn progress(&self, progress: Vec<(u32, Progress)>) {
        let state = self.state();
        let parts = self.work.parts();
        for (index, progress) in progress {
            if state.unanswered.contains(index) {
                let part = &parts[part_of(parts, index)];
                self.context
                    .board
                    .say(part.job_at(index), part.last_attempt(), progress);
            }
        }
    }

    fn is_followed(&self) -> bool {
        let kind = self.work.kind();
        let is_followed = |job: MicroBatchJob<'_>| self.output.is_followed(job.id, kind);
        self.output.is_used() && self.work.jobs().any(is_followed)
    }

    fn printed(&self, index: u32, bytes: &[u8]) {
        let parts = self.work.parts();
        let part = &parts[part_of(parts, index)];
        self.output
            .printed(part.job_at(index), part.last_attempt(), self.work.kind(), bytes);
    }

    fn context(&self, job: &MicroBatchJob<'_>) -> JobContext {
        JobContext::new(job, self.context.clone())
    }
}

/// Whole microseconds, the unit of stored durations.
pub fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

/// The message of a panic, if it is a text.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
