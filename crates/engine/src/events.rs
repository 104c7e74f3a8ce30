//! What happens to jobs, as it happens.

use std::sync::Arc;

use gristmill_model::limits::EVENTS_BUFFERED_MAX;
use gristmill_model::{BatchId, Positions, Receipt, Report};
use gristmill_worker::Observer;
use tokio::sync::broadcast;

/// Something that happened, through this engine, and is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A batch was submitted.
    Submitted {
        /// Its id.
        batch: BatchId,
        /// How many jobs it has.
        jobs: u32,
    },
    /// Outcomes of one batch were committed.
    Committed {
        /// The batch.
        batch: BatchId,
        /// Jobs that completed.
        completed: Positions,
        /// Attempts that failed and will be followed by another.
        retried: Positions,
        /// Jobs that are dead.
        dead: Positions,
    },
    /// The listener was too slow; so many events were left out.
    Missed {
        /// How many.
        events: u64,
    },
}

/// A stream of events from the moment on at which it was asked for.
#[derive(Debug)]
pub struct Events(broadcast::Receiver<Event>);

impl Events {
    /// The next event; `None` once the engine is closed.
    pub async fn next(&mut self) -> Option<Event> {
        match self.0.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(events)) => Some(Event::Missed { events }),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// Where events come together. Nothing is built while nobody listens.
#[derive(Debug, Clone)]
pub(crate) struct EventHub(broadcast::Sender<Event>);

impl EventHub {
    pub(crate) fn new() -> Self {
        EventHub(broadcast::Sender::new(EVENTS_BUFFERED_MAX))
    }

    pub(crate) fn listen(&self) -> Events {
        Events(self.0.subscribe())
    }

    pub(crate) fn send(&self, event: impl FnOnce() -> Event) {
        if self.0.receiver_count() > 0 {
            // An error says that the last listener has just left.
            let _ = self.0.send(event());
        }
    }
}

/// Turns what a worker commits into events, and passes it on.
pub(crate) struct EventObserver {
    pub(crate) hub: EventHub,
    pub(crate) next: Option<Arc<dyn Observer>>,
}

impl Observer for EventObserver {
    fn claimed(&self, jobs: u32) {
        if let Some(next) = &self.next {
            next.claimed(jobs);
        }
    }

    fn committed(&self, report: &Report, receipt: &Receipt) {
        self.hub.send(|| {
            let accepted = |positions: &Positions| positions.difference(&receipt.refused);
            let failed: Positions = report.failed.iter().map(|failed| failed.position).collect();
            Event::Committed {
                batch: report.batch,
                completed: report
                    .completed
                    .as_ref()
                    .map_or_else(Positions::new, |completed| accepted(&completed.positions)),
                retried: accepted(&failed).difference(&receipt.dead),
                dead: receipt.dead.clone(),
            }
        });
        if let Some(next) = &self.next {
            next.committed(report, receipt);
        }
    }
}
