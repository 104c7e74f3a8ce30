//! The handler of the jobs of one kind: JavaScript's event loop runs them.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use gristmill_model::Positions;
use gristmill_worker::{Capacity, Handler, MicroBatch, OutcomeSink, Outcomes, RunnerChange, RunnerListener};
use tokio::time::MissedTickBehavior;

use crate::inbox::{Answer, Inbox, Message, Piece};
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
    fn heed(&self, pieces: &[Piece], sink: &dyn OutcomeSink, told: &mut Told) {
        let is_draining = sink.is_draining() && !told.is_draining;
        told.is_draining |= is_draining;
        let cancelled = sink.cancelled();
        let fresh = cancelled.difference(&told.cancelled);
        told.cancelled = cancelled;
        for Piece { number, places } in pieces {
            if is_draining {
                self.inbox.push(Message {
                    what: "drain",
                    number: *number,
                    ..Message::default()
                });
            }
            let fresh = fresh.intersection(&Positions::from(places.clone()));
            if !fresh.is_empty() {
                self.inbox.push(Message {
                    what: "cancel",
                    number: *number,
                    places: Some(fresh.shifted_down(places.start).iter().collect()),
                    ..Message::default()
                });
            }
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
        let (pieces, mut answers) = self.inbox.deliver(self.kind, &work);
        let first_of = |number| {
            let piece = pieces.iter().find(|piece| piece.number == number);
            piece.map_or(0, |piece| piece.places.start)
        };
        let (mut left, mut told) = (work.indexes(), Told::default());
        let mut look = tokio::time::interval(SIGNALS_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !left.is_empty() {
            tokio::select! {
                biased;
                answer = answers.recv() => match answer {
                    Some((number, Answer::Outcomes(outcomes))) => {
                        let outcomes = shifted_up(*outcomes, first_of(number));
                        left = left.difference(&outcomes.positions());
                        sink.answer(outcomes);
                    }
                    Some((number, Answer::Progress(progress))) => {
                        let first = first_of(number);
                        sink.progress(progress.into_iter().map(|(place, progress)| (first + place, progress)).collect());
                    }
                    None => break,
                },
                _ = look.tick() => self.heed(&pieces, sink, &mut told),
            }
        }
        pieces.iter().for_each(|piece| self.inbox.end(piece.number));
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

/// Outcomes by the places of a message, by those of its micro-batch, in which its first job has the place `first`.
fn shifted_up(mut outcomes: Outcomes, first: u32) -> Outcomes {
    if first == 0 {
        return outcomes;
    }
    if let Some(completed) = &mut outcomes.completed {
        completed.positions = std::mem::take(&mut completed.positions).shifted_up(first);
    }
    outcomes
        .failed
        .iter_mut()
        .for_each(|failed| failed.position += first);
    outcomes.released = outcomes.released.shifted_up(first);
    outcomes.returned = outcomes.returned.shifted_up(first);
    for suspended in &mut outcomes.suspended {
        suspended.positions = std::mem::take(&mut suspended.positions).shifted_up(first);
    }
    outcomes.logs.iter_mut().for_each(|log| log.position += first);
    outcomes
}
