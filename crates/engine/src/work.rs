//! Workers of an engine.

use std::future::Future;
use std::sync::Arc;

use gristmill_model::{Clock, JobError};
use gristmill_store::Store;
use gristmill_worker::{
    Finalizing, Flow, Handler, Job, Observer, SourceError, Step, Stopper, StoreSource, Worker,
    WorkerSettings, WorkerSummary, batch_handler, flow_handler, job_handler, parent_handler,
};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use crate::events::{EventHub, EventObserver};
use crate::kind::Kind;
use crate::process;

/// A worker under construction.
pub struct WorkerBuilder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    events: EventHub,
    name: String,
    settings: WorkerSettings,
    lease_lost_after_ms: i64,
    handlers: Vec<(Arc<str>, Arc<dyn Handler>)>,
    observer: Option<Arc<dyn Observer>>,
}

impl WorkerBuilder {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        events: EventHub,
        lease_lost_after_ms: i64,
    ) -> Self {
        WorkerBuilder {
            store,
            clock,
            events,
            name: format!("worker-{}", std::process::id()),
            settings: WorkerSettings::default(),
            lease_lost_after_ms,
            handlers: Vec::new(),
            observer: None,
        }
    }

    /// Runs jobs of `K` with an async function over one job.
    pub fn handle<K, F, R>(&mut self, function: F) -> &mut Self
    where
        K: Kind,
        F: Fn(Job<K::Payload>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<K::Value, JobError>> + Send + 'static,
    {
        self.handler(K::NAME, job_handler(function))
    }

    /// Runs jobs of `K` with an async function over all jobs of a micro-batch, which answers each by itself.
    pub fn handle_batch<K, F, R>(&mut self, function: F) -> &mut Self
    where
        K: Kind,
        F: Fn(Vec<Job<K::Payload>>) -> R + Send + Sync + 'static,
        R: Future<Output = Vec<Result<K::Value, JobError>>> + Send + 'static,
    {
        self.handler(K::NAME, batch_handler(function))
    }

    /// Runs jobs of `K` that may spawn children and wait for them. `run` begins the jobs. `finalize` ends jobs that
    /// have waited, with their memo and their children's outcomes.
    pub fn handle_parent<K, M, F, R, G, S>(&mut self, run: F, finalize: G) -> &mut Self
    where
        K: Kind,
        M: DeserializeOwned + Send + 'static,
        F: Fn(Job<K::Payload>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Step<K::Value>, JobError>> + Send + 'static,
        G: Fn(Finalizing<K::Payload, M>) -> S + Send + Sync + 'static,
        S: Future<Output = Result<Step<K::Value>, JobError>> + Send + 'static,
    {
        self.handler(K::NAME, parent_handler(run, finalize))
    }

    /// Runs jobs of `K` as flows: `function` takes steps, waits for them without a worker, and goes on after a crash.
    pub fn handle_flow<K, F, R>(&mut self, function: F) -> &mut Self
    where
        K: Kind,
        F: Fn(Flow, Job<K::Payload>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<K::Value, JobError>> + Send + 'static,
    {
        self.handler(K::NAME, flow_handler(function))
    }

    /// Runs jobs of `kind` with any handler, such as a script's.
    pub fn handler(&mut self, kind: impl Into<Arc<str>>, handler: Arc<dyn Handler>) -> &mut Self {
        self.handlers.push((kind.into(), handler));
        self
    }

    /// Gives the worker a name, for people. The default is `worker-PID`.
    pub fn name(&mut self, name: impl Into<String>) -> &mut Self {
        self.name = name.into();
        self
    }

    /// Sets how it claims and runs.
    pub fn settings(&mut self, settings: WorkerSettings) -> &mut Self {
        self.settings = settings;
        self
    }

    /// Sets the queues that it claims from. The default is only the default queue.
    pub fn queues<Q: Into<Arc<str>>>(&mut self, queues: impl IntoIterator<Item = Q>) -> &mut Self {
        self.settings.queues = queues.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the number of concurrent micro-batches. The default is the number of cores.
    pub fn concurrency(&mut self, micro_batches: usize) -> &mut Self {
        self.settings.concurrency = micro_batches.max(1);
        self
    }

    /// Makes it end when nothing is left to claim, now or later.
    pub fn until_empty(&mut self) -> &mut Self {
        self.settings.until_empty = true;
        self
    }

    /// Makes it end when nothing can be claimed now, even if jobs become claimable later.
    pub fn until_idle(&mut self) -> &mut Self {
        self.settings.until_idle = true;
        self
    }

    /// Lets jobs of this priority and above take the slots of lower ones that can be paused.
    pub fn preempt_from(&mut self, priority: i16) -> &mut Self {
        self.settings.preempt_from = Some(priority);
        self
    }

    /// Declares that jobs of a kind can be paused. Their context asks them to pause, and they go back without charge.
    pub fn pausable(&mut self, kind: impl Into<Arc<str>>) -> &mut Self {
        self.settings.pausable.insert(kind.into());
        self
    }

    /// Notifies `observer` of the worker's claims and commits.
    pub fn observer(&mut self, observer: Arc<dyn Observer>) -> &mut Self {
        self.observer = Some(observer);
        self
    }

    /// Starts it in the background.
    pub fn start(&mut self) -> RunningWorker {
        let worker = self.build();
        let stopper = worker.stopper();
        RunningWorker {
            stopper,
            task: tokio::spawn(worker.run()),
        }
    }

    /// Runs it to its end.
    pub async fn run(&mut self) -> Result<WorkerSummary, SourceError> {
        self.build().run().await
    }

    fn build(&mut self) -> Worker {
        let worker = process::this_worker(self.name.clone());
        let source = StoreSource::new(self.store.clone(), worker, self.lease_lost_after_ms);
        let observer = EventObserver {
            hub: self.events.clone(),
            next: self.observer.clone(),
        };
        let mut worker = Worker::new(
            Arc::new(source),
            self.settings.clone(),
            Arc::new(observer),
            self.clock.clone(),
        );
        // It may run again, so it keeps its handlers.
        for (kind, handler) in &self.handlers {
            worker.handle(kind.clone(), handler.clone());
        }
        worker
    }
}

/// A worker that runs in the background. It continues when this handle is dropped.
#[derive(Debug)]
pub struct RunningWorker {
    stopper: Stopper,
    task: JoinHandle<Result<WorkerSummary, SourceError>>,
}

impl RunningWorker {
    /// Its stopper.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits for its end.
    pub async fn join(self) -> Result<WorkerSummary, SourceError> {
        match self.task.await {
            Ok(ended) => ended,
            Err(panic) if panic.is_panic() => std::panic::resume_unwind(panic.into_panic()),
            Err(_) => Ok(WorkerSummary::default()),
        }
    }

    /// Stops it and waits for its end.
    pub async fn stop(self) -> Result<WorkerSummary, SourceError> {
        self.stopper.stop();
        self.join().await
    }
}
