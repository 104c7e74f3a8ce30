//! A worker's registration at a server, its numbered requests, and what it knows from the answers.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gristmill_model::limits::{LEASE_LOST_AFTER_MS_MAX, LEASE_LOST_AFTER_MS_MIN, heartbeat_every_ms};
use gristmill_model::{Clock, Followed, Lease, Timestamp};
use gristmill_store::Want;
use gristmill_worker::{SourceError, SourceErrorKind};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::connection::Connection;
use crate::held::Held;
use crate::options::HttpSourceOptions;

pub(crate) struct Shared {
    pub(crate) connection: Connection,
    pub(crate) options: HttpSourceOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) state: Mutex<State>,
    /// The request that waits for work has come back.
    pub(crate) came_back: Notify,
    /// An ordinary claim found nothing while a request waited for work: the server ends its wait early, and rightly so.
    pub(crate) wait_ends: Notify,
    /// An answer has told anew which jobs somebody follows.
    pub(crate) learned: Notify,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) registration: Option<Registration>,
    /// The queues and kinds that the worker says that it serves.
    pub(crate) queues: Vec<Arc<str>>,
    pub(crate) kinds: Vec<Arc<str>>,
    /// Requests that are under way, by number.
    pub(crate) under_way: BTreeSet<u64>,
    pub(crate) numbered: u64,
    pub(crate) heartbeats: u64,
    pub(crate) held: Held,
    /// The worker may have a claim that it never received: it claims no more, and leaves when it holds nothing, which
    /// releases such a claim. It then re-registers.
    pub(crate) renew: bool,
    /// The last wish, for the request that waits for work.
    pub(crate) want: Option<Want>,
    pub(crate) waiting: Option<AbortHandle>,
    /// The result of a wait that was not delivered yet.
    pub(crate) ahead: VecDeque<Lease>,
    /// The news about later jobs of the last claim that found none.
    pub(crate) outlook: Outlook,
    /// Requests with reports so far: each may have made jobs claimable.
    pub(crate) reported: u64,
    /// The last of these that was answered.
    pub(crate) committed: u64,
    /// The request that waited for work failed; the next ordinary one will say how.
    pub(crate) waiting_failed: bool,
    /// Whether the worker last heard that more jobs become claimable later.
    pub(crate) expects: bool,
    /// The request that waited for work found that this is so no longer.
    pub(crate) waited_in_vain: bool,
    /// Which jobs somebody follows, as an answer told and nobody has asked for yet.
    pub(crate) followed: Option<Vec<Followed>>,
}

/// A claim's news about later jobs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outlook {
    /// When more can be claimed, by this machine's clock.
    pub(crate) next_run_at: Option<Timestamp>,
    /// Whether jobs wait until others are over.
    pub(crate) limited: bool,
    /// The last request with reports that the claim knew of.
    pub(crate) reported: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Registration {
    pub(crate) worker: i64,
    pub(crate) instance: String,
    pub(crate) heartbeat_every: Duration,
}

/// A numbered request, under way until it is dropped.
pub(crate) struct Numbered<'s> {
    pub(crate) shared: &'s Shared,
    pub(crate) registration: Registration,
    pub(crate) number: u64,
    pub(crate) acknowledged: u64,
}

impl Drop for Numbered<'_> {
    fn drop(&mut self) {
        self.shared.lock().under_way.remove(&self.number);
    }
}

impl AsRef<Connection> for Shared {
    fn as_ref(&self) -> &Connection {
        &self.connection
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stop_waiting(&self) {
        if let Some(waiting) = self.lock().waiting.take() {
            waiting.abort();
        }
    }

    pub(crate) fn registration(&self) -> Result<Registration, SourceError> {
        self.lock().registration.clone().ok_or_else(|| SourceError {
            message: "the worker is not registered".to_owned(),
            kind: SourceErrorKind::Unregistered,
        })
    }

    pub(crate) fn number(&self) -> Result<Numbered<'_>, SourceError> {
        let registration = self.registration()?;
        let mut state = self.lock();
        state.numbered += 1;
        let number = state.numbered;
        state.under_way.insert(number);
        // The server has answered every request before the oldest one under way.
        let acknowledged = state.under_way.first().map_or(0, |oldest| oldest - 1);
        drop(state);
        Ok(Numbered {
            shared: self,
            registration,
            number,
            acknowledged,
        })
    }
}

/// How often the server expects a heartbeat, whatever it says: at least as often as with the longest lease, and not
/// so often that the agent does nothing else.
pub(crate) fn heartbeat_every(ms: i64) -> Duration {
    let (least, most) = (
        heartbeat_every_ms(LEASE_LOST_AFTER_MS_MIN),
        heartbeat_every_ms(LEASE_LOST_AFTER_MS_MAX),
    );
    Duration::from_millis(ms.clamp(least, most).unsigned_abs())
}
