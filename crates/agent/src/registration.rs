//! A worker's registration at a server: its numbered requests, and its knowledge from the answers.

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
    /// Notified when the request that waits for work has come back.
    pub(crate) came_back: Notify,
    /// Notified when an ordinary claim found nothing while a request waited for work. The server then ends that wait early.
    pub(crate) wait_ends: Notify,
    /// Notified when an answer has a new list of followed jobs.
    pub(crate) learned: Notify,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) registration: Option<Registration>,
    /// The queues and kinds that the worker reports to serve.
    pub(crate) queues: Vec<Arc<str>>,
    pub(crate) kinds: Vec<Arc<str>>,
    /// The numbers of unanswered requests.
    pub(crate) under_way: BTreeSet<u64>,
    pub(crate) numbered: u64,
    pub(crate) heartbeats: u64,
    pub(crate) held: Held,
    /// The worker may have a claim that it never received. It claims no more, and leaves when it holds no jobs, which
    /// releases such a claim. Then it registers again.
    pub(crate) renew: bool,
    /// The last claim, for the request that waits for work.
    pub(crate) want: Option<Want>,
    pub(crate) waiting: Option<AbortHandle>,
    /// The leases that a wait got and that the worker has not taken yet.
    pub(crate) ahead: VecDeque<Lease>,
    /// The news about later jobs in the last empty claim.
    pub(crate) outlook: Outlook,
    /// The number of requests with reports so far. Each may have made jobs claimable.
    pub(crate) reported: u64,
    /// The number of the last answered one of these.
    pub(crate) committed: u64,
    /// The request that waited for work failed. The next ordinary request will return the error.
    pub(crate) waiting_failed: bool,
    /// The last answer said that more jobs become claimable later.
    pub(crate) expects: bool,
    /// The request that waited for work found that no more jobs will become claimable.
    pub(crate) waited_in_vain: bool,
    /// The followed jobs in an answer, until somebody asks for them.
    pub(crate) followed: Option<Vec<Followed>>,
}

/// A claim's news about later jobs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outlook {
    /// The time at which more can be claimed, by this machine's clock.
    pub(crate) next_run_at: Option<Timestamp>,
    /// True if jobs wait until others have ended.
    pub(crate) limited: bool,
    /// The last request with reports before the claim.
    pub(crate) reported: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Registration {
    pub(crate) worker: i64,
    pub(crate) instance: String,
    pub(crate) heartbeat_every: Duration,
}

/// A numbered request. It counts as unanswered until it is dropped.
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
        let is_new = state.under_way.insert(number);
        assert!(is_new, "request {number} is numbered once");
        // The server has answered every request before the oldest unanswered one.
        let acknowledged = state.under_way.first().map_or(0, |oldest| oldest - 1);
        assert!(
            acknowledged < number,
            "request {number} is not acknowledged before it is sent"
        );
        drop(state);
        Ok(Numbered {
            shared: self,
            registration,
            number,
            acknowledged,
        })
    }
}

/// The interval of heartbeats. It follows the server within limits: at least as often as the longest lease needs, and
/// not so often that the agent does nothing else.
pub(crate) fn heartbeat_every(ms: i64) -> Duration {
    let (least, most) = (
        heartbeat_every_ms(LEASE_LOST_AFTER_MS_MIN),
        heartbeat_every_ms(LEASE_LOST_AFTER_MS_MAX),
    );
    Duration::from_millis(ms.clamp(least, most).unsigned_abs())
}
