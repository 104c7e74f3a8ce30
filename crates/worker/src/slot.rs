//! One micro-batch while a handler runs it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use gristmill_model::limits::{EARLIER_FAILURES_BYTES_MAX, REPEATS_MAX};
use gristmill_model::{BatchId, EarlierFailure, FailedJob, JobError, JobLog, LeaseId, Positions, Progress};
use gristmill_store::{ChildOutcome, Revoked};
use tokio::sync::mpsc::UnboundedSender;

use crate::context::{JobContext, SlotContext};
use crate::handler::{Handler, OutcomeSink, Outcomes};
use crate::io::IoCounter;
use crate::micro_batch::{MicroBatch, MicroBatchJob, Part, part_of, share_out};
use crate::progress::ProgressBoard;
use crate::signals::Signals;
use crate::source::{Source, SourceError};

/// Tells one running micro-batch from another, within one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u64);

/// What a running micro-batch tells its worker. Every job that is held is answered once, so that the
/// channel holds no more than the worker does.
#[derive(Debug)]
pub enum SlotEvent {
    /// Some jobs have outcomes.
    Answered {
        /// The lease that they are held under.
        lease: LeaseId,
        /// Their batch.
        batch: BatchId,
        /// The attempt that they were claimed for.
        attempt: u32,
        /// How often they failed and ran again since.
        repeats: u32,
        /// What became of them, by their positions in the batch.
        outcomes: Box<Outcomes>,
    },
    /// The handler returned; all jobs are answered.
    Ended {
        /// Whose.
        slot: SlotId,
        /// How long it took.
        elapsed: Duration,
    },
}

/// What the worker keeps of a running micro-batch, and what the handler sees of it.
#[derive(Debug)]
pub struct Slot {
    /// Which it is.
    pub id: SlotId,
    /// How many jobs it was given.
    pub jobs: u32,
    /// The priority of the most urgent of them.
    pub priority: i16,
    context: Arc<SlotContext>,
    round: Mutex<Round>,
    draining: Arc<AtomicBool>,
    events: UnboundedSender<SlotEvent>,
}

/// One run of the handler: the first over all jobs, the next over those that failed and are tried again at once. All
/// positions are places in the micro-batch of the round.
#[derive(Debug)]
struct Round {
    parts: Arc<[Part]>,
    unanswered: Positions,
    cancelled: Positions,
    /// What failed and runs again in the next round.
    again: Positions,
    /// The failures of each job in this and the former rounds, oldest first.
    earlier: BTreeMap<u32, Vec<EarlierFailure>>,
    /// What those weigh.
    earlier_bytes: usize,
}

impl Round {
    fn new(work: &MicroBatch) -> Self {
        Round {
            parts: work.parts(),
            unanswered: work.indexes(),
            cancelled: Positions::new(),
            again: Positions::new(),
            earlier: BTreeMap::new(),
            earlier_bytes: 0,
        }
    }

    /// Keeps the failures after which a job runs again at once; they are nobody else's business yet.
    fn keep_for_again(&mut self, outcomes: &mut Outcomes) {
        if outcomes.failed.is_empty() {
            return;
        }
        let mut logs: BTreeMap<u32, String> = BTreeMap::new();
        let parts = self.parts.clone();
        for failed in std::mem::take(&mut outcomes.failed) {
            let part = &parts[part_of(&parts, failed.position)];
            let attempt = part.last_attempt();
            let repeats = part.repeats < REPEATS_MAX
                && self.earlier_bytes < EARLIER_FAILURES_BYTES_MAX
                && part.retry.repeats_at_once(attempt, &failed.error)
                && !self.cancelled.contains(failed.position);
            if !repeats {
                outcomes.failed.push(failed);
                continue;
            }
            if logs.is_empty() && !outcomes.logs.is_empty() {
                let all = std::mem::take(&mut outcomes.logs);
                logs = all.into_iter().map(|log| (log.position, log.text)).collect();
            }
            let failure = EarlierFailure {
                position: failed.position,
                attempt,
                error: failed.error,
                duration_us: failed.duration_us,
                log: logs.remove(&failed.position),
            };
            self.earlier_bytes += failure.weight_bytes();
            self.again.insert(failed.position);
            self.earlier.entry(failed.position).or_default().push(failure);
        }
        let left = logs.into_iter();
        outcomes
            .logs
            .extend(left.map(|(position, text)| JobLog { position, text }));
    }

    /// Adds to the outcomes of jobs how they failed before.
    fn add_earlier(&mut self, outcomes: &mut Outcomes) {
        if self.earlier.is_empty() {
            return;
        }
        for position in outcomes.positions().iter() {
            outcomes
                .earlier
                .extend(self.earlier.remove(&position).into_iter().flatten());
        }
    }

    /// The last failures of what was to run again, as outcomes: it does not.
    fn give_up(&mut self, positions: &Positions) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for position in positions.iter() {
            let mut failures = self.earlier.remove(&position).unwrap_or_default();
            let Some(last) = failures.pop() else { continue };
            outcomes.earlier.extend(failures);
            outcomes
                .logs
                .extend(last.log.map(|text| JobLog { position, text }));
            outcomes.failed.push(FailedJob {
                position,
                error: last.error,
                duration_us: last.duration_us,
            });
        }
        self.again = self.again.difference(positions);
        outcomes
    }

    /// Begins the next round, over what is to run again of `work`.
    fn advance(&mut self, work: &MicroBatch) -> Option<MicroBatch> {
        if self.again.is_empty() {
            return None;
        }
        let next = work.again(&self.again);
        let mut round = Round::new(&next);
        round.earlier_bytes = self.earlier_bytes;
        for (place, before) in (0..).zip(self.again.iter()) {
            let mut failures = self.earlier.remove(&before).unwrap_or_default();
            failures.iter_mut().for_each(|failure| failure.position = place);
            round.earlier.insert(place, failures);
        }
        *self = round;
        Some(next)
    }
}

impl Slot {
    /// A slot for `work`, not running yet.
    pub fn new(
        id: SlotId,
        work: &MicroBatch,
        draining: Arc<AtomicBool>,
        board: ProgressBoard,
        cancel_grace: Duration,
        events: UnboundedSender<SlotEvent>,
    ) -> Arc<Self> {
        Arc::new(Slot {
            id,
            jobs: work.jobs_count(),
            priority: work.priority(),
            context: Arc::new(SlotContext {
                board,
                io: IoCounter::default(),
                signals: Signals::new(cancel_grace),
                writes: Default::default(),
                siblings: Default::default(),
            }),
            round: Mutex::new(Round::new(work)),
            draining,
            events,
        })
    }

    /// Marks what was revoked as cancelled, as far as it runs here.
    pub fn revoke(&self, revoked: &Revoked) {
        let mut round = self.round();
        let concerned = |part: &&Part| part.lease == revoked.lease && part.batch == revoked.batch;
        let indexes: Vec<Positions> = round
            .parts
            .iter()
            .filter(concerned)
            .map(|part| part.indexes_of(&revoked.positions))
            .collect();
        if indexes.is_empty() {
            return;
        }
        for indexes in indexes {
            round.cancelled = round.cancelled.union(&indexes);
        }
        drop(round);
        self.context.signals.cancel(revoked.batch, &revoked.positions);
    }

    /// Marks all jobs as cancelled.
    pub fn revoke_all(&self) {
        let mut round = self.round();
        round.cancelled = Positions::all(self.jobs);
        drop(round);
        self.context.signals.cancel_all();
    }

    /// Asks its jobs to make room: as under a drain, for this micro-batch alone.
    pub fn pause(&self) {
        self.context.signals.pause();
    }

    /// Whether it was asked to make room.
    pub fn is_pausing(&self) -> bool {
        self.context.signals.is_pausing()
    }

    /// The bytes that its jobs moved.
    pub(crate) fn io(&self) -> &IoCounter {
        &self.context.io
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` with `handler`, whatever the handler does: a panic fails what it left unanswered. What failed and is
    /// tried again without a delay runs again here, until it has gone through or the worker stops. Of jobs that finalize,
    /// `source` is asked first how their children ended; where it does not answer, they go back.
    pub async fn run(
        self: Arc<Self>,
        handler: Arc<dyn Handler>,
        mut work: MicroBatch,
        source: Arc<dyn Source>,
    ) {
        let begun = Instant::now();
        if work.is_finalizing() {
            match self.children(&*source).await {
                Ok(children) => work = work.with_children(children),
                Err(error) => {
                    tracing::warn!(%error, "the outcomes of children cannot be read; their parents go back");
                    self.answer(Outcomes {
                        released: work.indexes(),
                        ..Outcomes::default()
                    });
                    self.end(begun.elapsed());
                    return;
                }
            }
        }
        let mut next = Some(work);
        while let Some(work) = next {
            self.run_once(&*handler, work.clone()).await;
            next = self.advance(&work);
        }
        self.end(begun.elapsed());
    }

    fn end(&self, elapsed: Duration) {
        let _ = self.events.send(SlotEvent::Ended {
            slot: self.id,
            elapsed,
        });
    }

    /// How the children of its jobs ended, by the jobs' places.
    async fn children(&self, source: &dyn Source) -> Result<Vec<Vec<ChildOutcome>>, SourceError> {
        let parts = self.round().parts.clone();
        let mut all = Vec::with_capacity(self.jobs as usize);
        for part in &*parts {
            all.extend(source.children(part.lease, part.batch, &part.positions).await?);
        }
        Ok(all)
    }

    async fn run_once(&self, handler: &dyn Handler, work: MicroBatch) {
        let begun = Instant::now();
        let run = std::panic::AssertUnwindSafe(handler.run(0, work, self)).catch_unwind();
        let run = tokio::select! {
            biased;
            run = run => Some(run),
            () = self.given_up() => None,
        };
        let unanswered = self.round().unanswered.clone();
        if unanswered.is_empty() {
            return;
        }
        let error = match run {
            None => JobError::new("cancelled", "it went on after it was cancelled, and was given up"),
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

    /// Resolves when all that the handler has not answered was cancelled, and its grace is over.
    async fn given_up(&self) {
        let is_in_vain = || {
            let round = self.round();
            !round.unanswered.is_empty() && round.cancelled.contains_all(&round.unanswered)
        };
        loop {
            self.context.signals.until(|_| is_in_vain()).await;
            self.context.signals.grace().await;
            if is_in_vain() {
                return;
            }
        }
    }

    /// The micro-batch of the next round. Nothing runs again while the worker stops, or after it was cancelled.
    fn advance(&self, work: &MicroBatch) -> Option<MicroBatch> {
        let mut round = self.round();
        let stopped = match self.is_draining() {
            true => round.again.clone(),
            false => round.again.intersection(&round.cancelled),
        };
        if !stopped.is_empty() {
            let outcomes = round.give_up(&stopped);
            self.send(&round.parts, outcomes);
        }
        round.advance(work)
    }

    fn send(&self, parts: &[Part], outcomes: Outcomes) {
        for (part, mut outcomes) in share_out(parts, outcomes) {
            if self.context.writes.is_used()
                && let Some(completed) = &outcomes.completed
            {
                outcomes.writes = self.context.writes.take(part.batch, &completed.positions);
            }
            if self.context.siblings.is_used()
                && let Some(completed) = &outcomes.completed
            {
                let spawned = self.context.siblings.take(part.batch, &completed.positions);
                outcomes.siblings.extend(spawned);
            }
            if self.context.board.is_used() {
                self.context.board.forget(part.batch, &outcomes.positions());
            }
            let _ = self.events.send(SlotEvent::Answered {
                lease: part.lease,
                batch: part.batch,
                attempt: part.attempt,
                repeats: part.repeats,
                outcomes: Box::new(outcomes),
            });
        }
    }
}

impl OutcomeSink for Slot {
    fn answer(&self, mut outcomes: Outcomes) {
        let positions = outcomes.positions();
        let mut round = self.round();
        if positions.is_empty() || !round.unanswered.contains_all(&positions) {
            if !positions.is_empty() {
                tracing::error!(indexes = %positions, "a handler answered jobs twice, or jobs that it was not given; ignored");
            }
            return;
        }
        round.unanswered = round.unanswered.difference(&positions);
        if self.context.writes.is_used() {
            for failed in &outcomes.failed {
                let part = &round.parts[part_of(&round.parts, failed.position)];
                self.context.writes.forget(part.job_at(failed.position));
            }
        }
        if self.context.siblings.is_used() {
            for failed in &outcomes.failed {
                let part = &round.parts[part_of(&round.parts, failed.position)];
                self.context.siblings.forget(part.job_at(failed.position));
            }
        }
        // What is left may have been cancelled.
        self.context.signals.remind();
        if !self.is_draining() {
            round.keep_for_again(&mut outcomes);
        }
        round.add_earlier(&mut outcomes);
        if !outcomes.is_empty() {
            self.send(&round.parts, outcomes);
        }
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed) || self.is_pausing()
    }

    fn cancelled(&self) -> Positions {
        self.round().cancelled.clone()
    }

    fn progress(&self, progress: Vec<(u32, Progress)>) {
        let round = self.round();
        for (index, progress) in progress {
            if round.unanswered.contains(index) {
                let part = &round.parts[part_of(&round.parts, index)];
                self.context
                    .board
                    .say(part.job_at(index), part.last_attempt(), progress);
            }
        }
    }

    fn context(&self, job: &MicroBatchJob<'_>) -> JobContext {
        JobContext::new(job.id, job.attempt, self.context.clone())
    }
}

/// Whole microseconds, as they are stored.
pub fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

/// What a panic said, as far as it is text.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
