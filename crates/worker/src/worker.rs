//! A worker: its handlers, its start and its end. The loop between them is the mill, in `mill.rs`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gristmill_batching::BatchStats;
use gristmill_model::Clock;

use crate::handler::Handler;
use crate::heart::Heart;
use crate::mill::Mill;
use crate::observer::Observer;
use crate::settings::WorkerSettings;
use crate::source::{Source, SourceError};
use crate::stopper::Stopper;

pub use crate::summary::WorkerSummary;

/// The time that a worker which is stopped while it registers waits for the answer.
const REGISTRATION_GRACE: Duration = Duration::from_millis(500);

/// The time that an ending worker tries to leave: with all outcomes reported, and with a source that does not answer.
/// If it cannot leave, its registration expires.
const LEAVE_MAX: Duration = Duration::from_secs(10);
const LEAVE_IN_VAIN_MAX: Duration = Duration::from_secs(1);

/// A worker with one source.
pub struct Worker {
    source: Arc<dyn Source>,
    settings: WorkerSettings,
    observer: Arc<dyn Observer>,
    clock: Arc<dyn Clock>,
    handlers: HashMap<Arc<str>, Arc<dyn Handler>>,
    stopper: Stopper,
}

impl Worker {
    /// A worker without handlers.
    pub fn new(
        source: Arc<dyn Source>,
        settings: WorkerSettings,
        observer: Arc<dyn Observer>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Worker {
            source,
            settings,
            observer,
            clock,
            handlers: HashMap::new(),
            stopper: Stopper::new(),
        }
    }

    /// Runs jobs of `kind` with `handler`.
    pub fn handle(&mut self, kind: impl Into<Arc<str>>, handler: Arc<dyn Handler>) {
        self.handlers.insert(kind.into(), handler);
    }

    /// The stopper of this worker.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Works until it is stopped, reaches its limit, finds nothing left (if its settings say so), or cannot reach the
    /// source any more. All of its work is committed when this returns `Ok`.
    pub async fn run(self) -> Result<WorkerSummary, SourceError> {
        let Worker {
            source,
            settings,
            observer,
            clock,
            handlers,
            stopper,
        } = self;
        let mut stopped = stopper.asked();
        let mut stopped = std::pin::pin!(async move {
            // The worker holds `stopper` until its end.
            let _ = stopped.wait_for(|stop| *stop).await;
        });
        let mut kinds: Vec<Arc<str>> = handlers.keys().cloned().collect();
        kinds.sort();
        source.will_serve(settings.queues.clone(), kinds);
        let mut registering = source.register();
        tokio::select! {
            biased;
            registered = &mut registering => registered?,
            () = &mut stopped => {
                // The source may be registering the worker. The worker then leaves, so that nobody sees a worker that
                // has gone.
                if let Ok(Ok(())) = tokio::time::timeout(REGISTRATION_GRACE, &mut registering).await
                    && let Err(error) = source.leave(BatchStats::default()).await
                {
                    tracing::warn!(%error, "the worker could not leave; its registration expires");
                }
                for handler in handlers.values() {
                    handler.shut_down().await;
                }
                return Ok(WorkerSummary::default());
            }
        }
        drop(registering);
        let every = source.heartbeat_every().unwrap_or(settings.heartbeat_every);
        let heart = Heart::start(source.clone(), every);
        let mill = Mill::new(
            source.clone(),
            settings,
            observer,
            clock,
            handlers.clone(),
            &heart,
        );
        let mut turning = std::pin::pin!(mill.turn(heart, &stopper));
        let (heart, ended) = tokio::select! {
            biased;
            ended = &mut turning => ended,
            () = &mut stopped => {
                source.stop();
                turning.await
            }
        };
        for handler in handlers.values() {
            handler.shut_down().await;
        }
        // The heart beats until the last report has arrived.
        let leave_max = match &ended {
            Ok(_) => LEAVE_MAX,
            Err(_) => LEAVE_IN_VAIN_MAX,
        };
        let left = tokio::time::timeout(leave_max, source.leave(heart.stop())).await;
        let summary = ended?;
        match left {
            Ok(left) => left?,
            Err(_) => tracing::warn!("the worker could not leave; its registration expires"),
        }
        Ok(summary)
    }
}
