//! The shared state of all requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use gristmill_engine::Engine;
use gristmill_engine::live_logs::Interest;
use gristmill_model::{Clock, Report, Timestamp};
use gristmill_store::{HistoryFilter, HistoryRow, JobCounts, KindCounts, Run, Store};
use tokio::sync::{Semaphore, watch};

use crate::caller::{Caller, Role};
use crate::endpoints::backlog::Counted;
use crate::endpoints::operations::kept::Operations;
use crate::error::ApiError;
use crate::knowledge::Knowledge;
use crate::limits::{
    EVENT_STREAMS_MAX, LOG_STREAMS_MAX, LONG_POLLS_MAX, RECALLS_MAX, SEARCHES_MAX, TOKEN_CHECKED_EVERY,
};
use crate::metrics::Metrics;
use crate::rate::RateLimiter;
use crate::rate::recent::Recent;
use crate::rate::watched::Watched;
use crate::room::Rooms;
use crate::sessions::Sessions;
use crate::trust::Trust;
use crate::wake::Wake;

/// The shared state of all requests. Cheap to clone.
#[derive(Debug, Clone)]
pub struct App(pub Arc<Shared>);

/// The number of all runs, and the newest ones with the states of their jobs.
pub type CountedRuns = Arc<(u64, Vec<(Run, JobCounts)>)>;

/// The shared state of all requests.
#[derive(Debug)]
pub struct Shared {
    /// Where jobs are kept.
    pub engine: Engine,
    /// The check of tokens.
    pub trust: Trust,
    /// How often.
    pub rate: RateLimiter,
    /// The agents' workers.
    pub sessions: Sessions,
    /// Claims that wait.
    pub wake: Wake,
    /// Counts.
    pub metrics: Metrics,
    /// The id of this run of the server.
    pub instance: String,
    /// The description of the API, as JSON.
    pub openapi: Bytes,
    /// Whether the server is being stopped.
    pub stopping: watch::Sender<bool>,
    /// Room for bodies.
    pub rooms: Rooms,
    /// Room for waiting claims.
    pub long_polls: Arc<Semaphore>,
    /// Room for listeners to events.
    pub event_streams: Arc<Semaphore>,
    /// Room for followers of logs.
    pub log_streams: Arc<Semaphore>,
    /// Changes of all jobs that match a filter.
    pub operations: Operations,
    /// Room for searches of texts.
    pub searches: Semaphore,
    /// Room for recalls.
    pub recalls: Semaphore,
    /// The knowledge base, if the server serves one.
    pub knowledge: OnceLock<Arc<dyn Knowledge>>,
    /// Whether tokens for `monitor` read payloads, values, tracebacks and logs of jobs.
    pub monitors_see_payloads: AtomicBool,
    /// How many followers of logs there were: their names are told apart by it.
    pub log_followers: AtomicU64,
    /// Which jobs are followed, for the next answers to agents.
    pub interest: Interest,
    /// The jobs by queue and kind, as they were lately.
    pub recent_queues: Recent<(), Arc<Vec<KindCounts>>>,
    /// The open work, for autoscalers.
    pub backlog: Arc<Watched<Arc<Counted>>>,
    /// Histories, as they were lately.
    pub recent_history: Recent<HistoryFilter, Arc<Vec<HistoryRow>>>,
    /// The newest runs, by their number, as they were lately.
    pub recent_runs: Recent<u32, CountedRuns>,
    /// When an unauthenticated probe last asked the store, and how many operations waited for locks, if it answered.
    pub probed: tokio::sync::Mutex<Option<(Timestamp, Option<u64>)>>,
    /// Whether the store answered when it was last asked, so that its silence is logged once.
    pub ready: AtomicBool,
}

impl std::ops::Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl App {
    /// The state that the requests to one server share.
    pub fn new(engine: Engine, trust: Trust, rate: RateLimiter, instance: String, openapi: Bytes) -> App {
        App(Arc::new(Shared {
            engine,
            trust,
            rate,
            sessions: Sessions::default(),
            wake: Wake::default(),
            metrics: Metrics::new(),
            instance,
            openapi,
            stopping: watch::Sender::new(false),
            rooms: Rooms::default(),
            long_polls: Arc::new(Semaphore::new(LONG_POLLS_MAX)),
            event_streams: Arc::new(Semaphore::new(EVENT_STREAMS_MAX)),
            log_streams: Arc::new(Semaphore::new(LOG_STREAMS_MAX)),
            operations: Operations::default(),
            searches: Semaphore::new(SEARCHES_MAX),
            recalls: Semaphore::new(RECALLS_MAX),
            knowledge: OnceLock::new(),
            monitors_see_payloads: AtomicBool::new(false),
            log_followers: AtomicU64::new(0),
            interest: Interest::default(),
            recent_queues: Recent::default(),
            backlog: Arc::default(),
            recent_history: Recent::default(),
            recent_runs: Recent::default(),
            probed: tokio::sync::Mutex::default(),
            ready: AtomicBool::new(true),
        }))
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.engine.store()
    }

    /// Where the time comes from.
    pub fn clock(&self) -> &dyn Clock {
        &**self.engine.clock()
    }

    /// Whether the contents of jobs are hidden from a caller: payloads, values, tracebacks and logs.
    pub fn hides_payloads_from(&self, caller: &Caller) -> bool {
        caller.role == Some(Role::Monitor) && !self.monitors_see_payloads.load(Ordering::Relaxed)
    }

    /// Resolves when the server is being stopped.
    pub async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // An error says that the sender is gone, which is as good as stopped.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    /// Resolves when the caller's token has ended: it has expired, was revoked, or is not on the list any more.
    pub async fn token_ended(&self, caller: &Caller) -> ApiError {
        loop {
            tokio::time::sleep(TOKEN_CHECKED_EVERY).await;
            if let Err(error) = self.trust.check_again(caller) {
                return error;
            }
        }
    }

    /// [`token_ended`](App::token_ended) as a future of its own, for an answer that outlives its handler.
    pub fn end_of_token(&self, caller: Caller) -> BoxFuture<'static, ApiError> {
        let app = self.clone();
        async move { app.token_ended(&caller).await }.boxed()
    }

    /// Notifies listeners of a committed report, and waiting claims if it made jobs claimable again.
    pub fn committed(&self, report: &Report) {
        if !report.released.is_empty() || !report.failed.is_empty() {
            self.wake.ring();
        }
        self.engine.wake_listeners();
    }

    /// Notes whether the store answers; says so in the log when that changes.
    pub fn note_ready(&self, ready: bool) {
        if self.ready.swap(ready, Ordering::Relaxed) != ready {
            tracing::warn!(ready, "the store's readiness changed");
        }
    }
}
