//! One micro-batch while a handler runs it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use gristmill_model::{BatchId, FailedJob, JobError, LeaseId, Positions};
use gristmill_store::Revoked;
use tokio::sync::mpsc::UnboundedSender;

use crate::handler::{Handler, OutcomeSink, Outcomes};
use crate::micro_batch::{MicroBatch, Part, share_out};

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
        /// The attempt that ran.
        attempt: u32,
        /// What became of them, by their positions in the batch.
        outcomes: Outcomes,
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
    parts: Arc<[Part]>,
    // Both by the places in the micro-batch.
    unanswered: Mutex<Positions>,
    cancelled: Mutex<Positions>,
    draining: Arc<AtomicBool>,
    events: UnboundedSender<SlotEvent>,
}

impl Slot {
    /// A slot for `work`, not running yet.
    pub fn new(
        id: SlotId,
        work: &MicroBatch,
        draining: Arc<AtomicBool>,
        events: UnboundedSender<SlotEvent>,
    ) -> Arc<Self> {
        Arc::new(Slot {
            id,
            jobs: work.jobs_count(),
            parts: work.parts(),
            unanswered: Mutex::new(work.indexes()),
            cancelled: Mutex::new(Positions::new()),
            draining,
            events,
        })
    }

    /// Marks what was revoked as cancelled, as far as it runs here.
    pub fn revoke(&self, revoked: &Revoked) {
        let concerned = |part: &&Part| part.lease == revoked.lease && part.batch == revoked.batch;
        for part in self.parts.iter().filter(concerned) {
            self.mark_cancelled(&part.indexes_of(&revoked.positions));
        }
    }

    /// Marks all jobs as cancelled.
    pub fn revoke_all(&self) {
        self.mark_cancelled(&Positions::all(self.jobs));
    }

    fn mark_cancelled(&self, indexes: &Positions) {
        let mut cancelled = self.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
        *cancelled = cancelled.union(indexes);
    }

    /// Runs `work` with `handler`, whatever the handler does: a panic fails what it left unanswered.
    pub async fn run(self: Arc<Self>, handler: Arc<dyn Handler>, work: MicroBatch) {
        let begun = Instant::now();
        let run = std::panic::AssertUnwindSafe(handler.run(work, &*self))
            .catch_unwind()
            .await;
        let elapsed = begun.elapsed();
        let unanswered = self
            .unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if !unanswered.is_empty() {
            let error = match run {
                Err(panic) => {
                    JobError::new("panic", format!("the handler panicked: {}", panic_text(&*panic)))
                }
                Ok(()) => JobError::new(
                    "unanswered",
                    "the handler returned without an outcome for this job",
                ),
            };
            let duration_us = micros(elapsed);
            let failed = unanswered
                .iter()
                .map(|position| FailedJob {
                    position,
                    error: error.clone(),
                    duration_us,
                })
                .collect();
            self.answer(Outcomes {
                failed,
                ..Outcomes::default()
            });
        }
        let _ = self.events.send(SlotEvent::Ended {
            slot: self.id,
            elapsed,
        });
    }
}

impl OutcomeSink for Slot {
    fn answer(&self, outcomes: Outcomes) {
        let positions = outcomes.positions();
        {
            let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
            if positions.is_empty() || !unanswered.contains_all(&positions) {
                if !positions.is_empty() {
                    tracing::error!(indexes = %positions, "a handler answered jobs twice, or jobs that it was not given; ignored");
                }
                return;
            }
            *unanswered = unanswered.difference(&positions);
        }
        for (part, outcomes) in share_out(&self.parts, outcomes) {
            let _ = self.events.send(SlotEvent::Answered {
                lease: part.lease,
                batch: part.batch,
                attempt: part.attempt,
                outcomes,
            });
        }
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    fn cancelled(&self) -> Positions {
        self.cancelled
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
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
