//! Events of jobs in commit order, from any cursor.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use gristmill_model::limits::EVENTS_PAGE_MAX;
use gristmill_model::{Receipt, Report};
use gristmill_store::{EventCursor, EventPage, RecordedEvent, Store, StoreError};
use gristmill_worker::Observer;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use crate::error::EngineError;

/// The interval at which listeners poll for changes of other processes. Changes of this process wake them at once.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The number of event pages that are kept for listeners which are a little behind.
const PAGES_KEPT: usize = 8;

/// The interval at which a listener renews its registration.
const LISTEN_EVERY: Duration = Duration::from_secs(60);

/// A stream of the events of all processes that use the store. It does not end by itself.
#[derive(Debug)]
pub struct Events {
    store: Arc<dyn Store>,
    pages: Arc<Mutex<RecentPages>>,
    changes: watch::Receiver<u64>,
    /// The current page, shared with other listeners.
    page: Arc<EventPage>,
    /// The number of its events that were returned.
    passed: usize,
    listened_at: Instant,
}

impl Events {
    /// The next event. The future may be dropped and called again without a loss. Fails if the store fails; the next
    /// call resumes.
    pub async fn next(&mut self) -> Result<RecordedEvent, EngineError> {
        loop {
            if let Some(event) = self.page.events.get(self.passed) {
                self.passed += 1;
                return Ok(event.clone());
            }
            if self.listened_at.elapsed() >= LISTEN_EVERY {
                self.store.listen().await?;
                self.listened_at = Instant::now();
            }
            match self.look().await? {
                Found::Page(page) => (self.page, self.passed) = (page, 0),
                Found::NothingFor(pause) => {
                    // Without a sender, only other processes make changes.
                    let news = async {
                        if self.changes.changed().await.is_err() {
                            std::future::pending::<()>().await;
                        }
                    };
                    tokio::select! {
                        () = news => {}
                        () = tokio::time::sleep(pause) => {}
                    }
                }
            }
        }
    }

    /// Looks for more events in a task of its own, so that a listener which is not polled keeps no other from the pages.
    async fn look(&mut self) -> Result<Found, EngineError> {
        let changes = *self.changes.borrow_and_update();
        let (store, pages, after) = (self.store.clone(), self.pages.clone(), self.page.next);
        let look = tokio::spawn(async move {
            let read = store.events(Some(after), EVENTS_PAGE_MAX);
            pages.lock().await.after(after, changes, read).await
        });
        match look.await {
            Ok(found) => Ok(found?),
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

/// The latest pages of events. However many listeners there are, the store is read once for those at the same place.
#[derive(Debug, Default)]
struct RecentPages {
    pages: VecDeque<(EventCursor, Arc<EventPage>)>,
    latest: Option<LatestRead>,
}

/// The read that reached the latest cursor.
#[derive(Debug)]
struct LatestRead {
    next: EventCursor,
    /// The number of this process's changes before it.
    changes: u64,
    at: Instant,
}

/// The result of a look for events.
enum Found {
    Page(Arc<EventPage>),
    /// No events. Another look makes sense after this time, or after a change of this process.
    NothingFor(Duration),
}

impl RecentPages {
    /// The page after a cursor. Reads it from the store, unless the page is kept, or a recent read after this number of
    /// changes found nothing.
    async fn after(
        &mut self,
        after: EventCursor,
        changes: u64,
        read: impl Future<Output = Result<EventPage, StoreError>>,
    ) -> Result<Found, StoreError> {
        if let Some((_, page)) = self.pages.iter().find(|(cursor, _)| *cursor == after) {
            return Ok(Found::Page(page.clone()));
        }
        if let Some(latest) = &self.latest
            && (latest.next, latest.changes) == (after, changes)
            && let Some(pause) = LOOK_EVERY
                .checked_sub(latest.at.elapsed())
                .filter(|pause| !pause.is_zero())
        {
            return Ok(Found::NothingFor(pause));
        }
        let page = read.await?;
        assert!(page.next >= after, "a page of events never leads back");
        if self.latest.as_ref().is_none_or(|latest| page.next >= latest.next) {
            self.latest = Some(LatestRead {
                next: page.next,
                changes,
                at: Instant::now(),
            });
        }
        if page.next == after {
            return Ok(Found::NothingFor(LOOK_EVERY));
        }
        assert!(page.events.len() <= EVENTS_PAGE_MAX as usize + 1, "a full page");
        let page = Arc::new(page);
        self.pages.push_back((after, page.clone()));
        if self.pages.len() > PAGES_KEPT {
            self.pages.pop_front();
        }
        assert!(
            self.pages.len() <= PAGES_KEPT,
            "at most {PAGES_KEPT} pages of events are kept"
        );
        Ok(Found::Page(page))
    }
}

/// Wakes listeners for events. Costs nothing without listeners.
#[derive(Debug, Clone)]
pub(crate) struct EventHub {
    changes: watch::Sender<u64>,
    pages: Arc<Mutex<RecentPages>>,
}

impl EventHub {
    pub(crate) fn new() -> Self {
        EventHub {
            changes: watch::Sender::new(0),
            pages: Arc::default(),
        }
    }

    /// Listens to events after `after`, or from now on with `None`.
    pub(crate) async fn listen(
        &self,
        store: Arc<dyn Store>,
        after: Option<EventCursor>,
    ) -> Result<Events, EngineError> {
        let changes = self.changes.subscribe();
        let now = store.listen().await?;
        Ok(Events {
            store,
            pages: self.pages.clone(),
            changes,
            page: Arc::new(EventPage::nothing(after.or(Some(now)))),
            passed: 0,
            listened_at: Instant::now(),
        })
    }

    /// Tells of everything that happens from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Wakes the listeners.
    pub(crate) fn wake(&self) {
        if self.changes.receiver_count() > 0 {
            self.changes.send_modify(|count| *count += 1);
        }
    }
}

/// Wakes listeners when a worker has committed something, and passes the event on.
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use gristmill_model::Timestamp;
    use gristmill_store::Event;

    use super::*;

    fn page(events: &[u64]) -> EventPage {
        let events: Vec<RecordedEvent> = events
            .iter()
            .map(|&number| RecordedEvent {
                cursor: cursor(number),
                at: Timestamp(0),
                event: Event::Missed,
            })
            .collect();
        EventPage {
            next: events.last().map_or_else(|| cursor(0), |event| event.cursor),
            events,
        }
    }

    fn cursor(number: u64) -> EventCursor {
        format!("0-{number}").parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn listeners_at_the_same_place_share_a_read() {
        let mut pages = RecentPages::default();
        let reads = Cell::new(0);
        let read = async |events: &[u64]| {
            reads.set(reads.get() + 1);
            Ok(page(events))
        };
        for _listener in 0..5 {
            let found = pages.after(cursor(1), 0, read(&[2, 3])).await.unwrap();
            assert!(matches!(found, Found::Page(page) if page.next == cursor(3) && page.events.len() == 2));
        }
        assert_eq!(reads.get(), 1);
        // The read is recent, so there is nothing more as long as this process changes nothing.
        tokio::time::advance(LOOK_EVERY / 5).await;
        let found = pages.after(cursor(3), 0, read(&[4])).await.unwrap();
        assert!(matches!(found, Found::NothingFor(pause) if pause == LOOK_EVERY / 5 * 4));
        assert_eq!(reads.get(), 1);
        let found = pages.after(cursor(3), 1, read(&[4])).await.unwrap();
        assert!(matches!(found, Found::Page(page) if page.next == cursor(4)));
        tokio::time::advance(LOOK_EVERY).await;
        let found = pages.after(cursor(4), 1, read(&[5])).await.unwrap();
        assert!(matches!(found, Found::Page(page) if page.next == cursor(5)));
        assert_eq!(reads.get(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_far_behind_reads_for_itself_and_pages_are_bounded() {
        let mut pages = RecentPages::default();
        let read = async |events: &[u64]| Ok(page(events));
        pages.after(cursor(90), 0, read(&[100])).await.unwrap();
        for number in 0..2 * PAGES_KEPT as u64 {
            let found = pages.after(cursor(number), 0, read(&[number + 1])).await.unwrap();
            assert!(matches!(found, Found::Page(page) if page.next == cursor(number + 1)));
        }
        assert_eq!(pages.pages.len(), PAGES_KEPT);
        let found = pages.after(cursor(100), 0, read(&[101])).await.unwrap();
        assert!(
            matches!(found, Found::NothingFor(_)),
            "the read that got farthest still holds"
        );
    }
}
