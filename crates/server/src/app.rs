//! The shared state of all requests.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use gristmill_engine::Engine;
use gristmill_engine::live_logs::Interest;
use gristmill_model::{Clock, Report};
use gristmill_store::Store;
use tokio::sync::{Semaphore, watch};

use crate::caller::{Caller, Role};
use crate::error::ApiError;
use crate::knowledge::Knowledge;
use crate::limits::{
    EVENT_STREAMS_MAX, LOG_STREAMS_MAX, LONG_POLLS_MAX, RECALLS_MAX, SEARCHES_MAX, TOKEN_CHECKED_EVERY,
};
use crate::metrics::Metrics;
use crate::rate::RateLimiter;
use crate::room::Rooms;
use crate::sessions::Sessions;
use crate::trust::Trust;
use crate::wake::Wake;

/// The shared state of all requests. Cheap to clone.
#[derive(Debug, Clone)]
pub struct App(pub Arc<Shared>);

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
    /// Room for searches of texts.
    pub searches: Semaphore,
    /// Room for recalls.
    pub recalls: Semaphore,
    /// The knowledge base, if the server serves one.
    pub knowledge: OnceLock<Arc<dyn Knowledge>>,
    /// Whether tokens for `monitor` read payloads, values, tracebacks and logs of jobs.
    pub monitors_see_payloads: AtomicBool,
    /// Which jobs are followed, for the next answers to agents.
    pub interest: Interest,
    /// The states of endpoints, by their types.
    states: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
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
            searches: Semaphore::new(SEARCHES_MAX),
            recalls: Semaphore::new(RECALLS_MAX),
            knowledge: OnceLock::new(),
            monitors_see_payloads: AtomicBool::new(false),
            interest: Interest::default(),
            states: Mutex::default(),
            ready: AtomicBool::new(true),
        }))
    }

    /// The state that an endpoint keeps between requests: one of each type, which begins with its default.
    pub fn state<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let state = states
            .entry(TypeId::of::<T>())
            .or_insert_with(|| Arc::new(T::default()))
            .clone();
        match state.downcast() {
            Ok(state) => state,
            Err(_) => unreachable!("a state is kept under its own type"),
        }
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
