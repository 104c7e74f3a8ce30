//! Events of jobs, in commit order, from any cursor on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_model::limits::EVENTS_PAGE_MAX;
use gristmill_model::{Receipt, Report};
use gristmill_store::{EventCursor, RecordedEvent, Store};
use gristmill_worker::Observer;
use tokio::sync::watch;

use crate::error::EngineError;

/// How often a listener polls for changes of other processes. Changes of this process wake it at once.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often it says that it still listens.
const LISTEN_EVERY: Duration = Duration::from_secs(60);

/// A stream of events, of all processes that use the store. It does not end by itself.
#[derive(Debug)]
pub struct Events {
    store: Arc<dyn Store>,
    came: watch::Receiver<u64>,
    next: EventCursor,
    ready: VecDeque<RecordedEvent>,
    listened_at: Instant,
}

impl Events {
    /// The next event. May be dropped and called again without a loss. Fails where the store does; calling it again goes
    /// on.
    pub async fn next(&mut self) -> Result<RecordedEvent, EngineError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            if self.listened_at.elapsed() >= LISTEN_EVERY {
                self.store.listen().await?;
                self.listened_at = Instant::now();
            }
            self.came.mark_unchanged();
            let page = self.store.events(Some(self.next), EVENTS_PAGE_MAX).await?;
            self.next = page.next;
            self.ready.extend(page.events);
            if self.ready.is_empty() {
                // Without a sender, only other processes make changes.
                let news = async {
                    if self.came.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                };
                tokio::select! {
                    () = news => {}
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            }
        }
    }
}

/// Wakes listeners for events. Costs nothing without listeners.
#[derive(Debug, Clone)]
pub(crate) struct EventHub(watch::Sender<u64>);

impl EventHub {
    pub(crate) fn new() -> Self {
        EventHub(watch::Sender::new(0))
    }

    /// Listens from `after` on; from now on, where that is `None`.
    pub(crate) async fn listen(
        &self,
        store: Arc<dyn Store>,
        after: Option<EventCursor>,
    ) -> Result<Events, EngineError> {
        let came = self.0.subscribe();
        let now = store.listen().await?;
        Ok(Events {
            store,
            came,
            next: after.unwrap_or(now),
            ready: VecDeque::new(),
            listened_at: Instant::now(),
        })
    }

    /// Something has happened.
    pub(crate) fn wake(&self) {
        if self.0.receiver_count() > 0 {
            self.0.send_modify(|count| *count += 1);
        }
    }
}

/// Wakes listeners when a worker has committed something, and passes it on.
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
        self.hub.wake();
        if let Some(next) = &self.next {
            next.committed(report, receipt);
        }
    }
}
