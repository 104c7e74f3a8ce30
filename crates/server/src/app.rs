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
use gristmill_store::family::ChildReader;
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
    /// The engine with the store of all jobs.
    pub engine: Engine,
    /// The check of tokens.
    pub trust: Trust,
    /// The limits of requests per second.
    pub rate: RateLimiter,
    /// The sessions of agents' workers.
    pub sessions: Sessions,
    /// Reads the children of jobs that agents finalize.
    pub children: ChildReader,
    /// Wakes waiting claims.
    pub wake: Wake,
    /// The server's own counts.
    pub metrics: Metrics,
    /// The id of this run of the server.
    pub instance: String,
    /// The description of the API, as JSON.
    pub openapi: Bytes,
    /// True while the server stops.
    pub stopping: watch::Sender<bool>,
    /// The memory that bodies of requests may take.
    pub rooms: Rooms,
    /// Permits for waiting claims.
    pub long_polls: Arc<Semaphore>,
    /// Permits for listeners to events.
    pub event_streams: Arc<Semaphore>,
    /// Permits for followers of logs.
    pub log_streams: Arc<Semaphore>,
    /// Permits for searches of texts.
    pub searches: Semaphore,
    /// Permits for recalls.
    pub recalls: Semaphore,
    /// The knowledge base, if the server serves one.
    pub knowledge: OnceLock<Arc<dyn Knowledge>>,
    /// True if tokens for `monitor` may read payloads, values, tracebacks and logs of jobs.
    pub monitors_see_payloads: AtomicBool,
    /// The followed jobs, for the next answers to agents.
    pub interest: Interest,
    /// The states of endpoints by type.
    states: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    /// The store answered the last probe. Its silence is therefore logged only once.
    pub ready: AtomicBool,
}

impl std::ops::Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl App {
    /// Makes the state that the requests to one server share.
    pub fn new(engine: Engine, trust: Trust, rate: RateLimiter, instance: String, openapi: Bytes) -> App {
        App(Arc::new(Shared {
            engine,
            trust,
            rate,
            sessions: Sessions::default(),
            children: ChildReader::default(),
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

    /// The state that an endpoint keeps between requests: one value of each type. It starts with the type's default.
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

    /// The clock of the engine.
    pub fn clock(&self) -> &dyn Clock {
        &**self.engine.clock()
    }

    /// Reports whether payloads, values, tracebacks and logs of jobs are hidden from a caller.
    pub fn hides_payloads_from(&self, caller: &Caller) -> bool {
        caller.role == Some(Role::Monitor) && !self.monitors_see_payloads.load(Ordering::Relaxed)
    }

    /// Resolves when the server stops.
    pub async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // An error means that the sender is gone. The server is then gone, too.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    /// Resolves when the caller's token has expired, was revoked, or is no longer on the list.
    pub async fn token_ended(&self, caller: &Caller) -> ApiError {
        loop {
            tokio::time::sleep(TOKEN_CHECKED_EVERY).await;
            if let Err(error) = self.trust.check_again(caller) {
                return error;
            }
        }
    }

    /// [`token_ended`](App::token_ended) as an owned future, for an answer that outlives its handler.
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

    /// Notes whether the store answers, and logs a change.
    pub fn note_ready(&self, ready: bool) {
        if self.ready.swap(ready, Ordering::Relaxed) != ready {
            tracing::warn!(ready, "the store's readiness changed");
        }
    }
}
