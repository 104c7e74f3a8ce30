//! OpenTelemetry: exports spans, logs and metrics over OTLP as JSON. The standard variables configure it (see [`settings`]).
//!
//! A layer of `tracing` encodes the events of [`gristmill_worker::spans`], warnings and errors into bounded queues. It
//! never waits for a receiver. One task for each signal sends the records. Records that a receiver does not take are
//! dropped and counted.

mod export;
mod layer;
mod limits;
mod metrics;
mod otlp;
mod queue;
mod sampler;
pub mod settings;
mod shared;

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use gristmill_protocol::metric::MetricFamily;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::export::Exporter;
use crate::limits::FLUSH_GRACE;
use crate::metrics::Starts;
use crate::settings::{Settings, Signal};
use crate::shared::Shared;

/// The exports of a program. Clones share the same exports.
#[derive(Debug, Clone)]
pub struct Telemetry {
    shared: Arc<Shared>,
    tasks: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Telemetry {
    /// Makes exports with these settings. They send nothing before [`start`](Telemetry::start).
    ///
    /// # Errors
    ///
    /// The text says why the HTTP client cannot be made.
    pub fn new(settings: Settings) -> Result<Telemetry, String> {
        // An error means that the process already has a provider. It works as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .user_agent(concat!("gristmill/", env!("CARGO_PKG_VERSION")))
            // A redirect would send tokens to another address.
            .redirect(reqwest::redirect::Policy::none());
        let client = client.build().map_err(|error| error.to_string())?;
        Ok(Telemetry {
            shared: Arc::new(Shared::new(settings, client)),
            tasks: Arc::default(),
        })
    }

    /// The layer for the program's subscriber.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        layer::OtlpLayer(self.shared.clone()).with_filter(layer::exported(&self.shared))
    }

    /// Starts to send spans and logs from this runtime.
    pub fn start(&self, runtime: &Handle) {
        let settings = &self.shared.settings;
        let queues = [
            (Signal::Traces, &settings.traces, settings.spans_every),
            (Signal::Logs, &settings.logs, settings.logs_every),
        ];
        for (signal, endpoint, every) in queues {
            if let Some(endpoint) = endpoint {
                let exporter = Exporter::new(self.shared.clone(), signal, endpoint.clone());
                self.keep(runtime.spawn(exporter.drain(every)));
            }
        }
    }

    /// Starts to send metrics. `read` returns them, or `None` if they are unreadable. The
    /// caller must be inside a runtime.
    pub fn push_metrics<R, T>(&self, read: R)
    where
        R: Fn() -> T + Send + 'static,
        T: Future<Output = Option<Vec<MetricFamily>>> + Send + 'static,
    {
        let Some(endpoint) = self.shared.settings.metrics.clone() else {
            return;
        };
        let shared = self.shared.clone();
        let mut exporter = Exporter::new(shared.clone(), Signal::Metrics, endpoint);
        self.keep(tokio::spawn(async move {
            let mut starts = Starts::new(layer::now_ns());
            loop {
                let is_last = tokio::select! {
                    () = exporter.ended() => true,
                    () = tokio::time::sleep(shared.settings.metrics_every) => false,
                };
                let reading = read();
                if let Some(mut families) = reading.await {
                    families.push(metrics::dropped(&shared));
                    let (records, count) = metrics::encode(&families, layer::now_ns(), &mut starts);
                    // The next export has newer values, so this one has a single attempt.
                    exporter.send(&records, count, 1).await;
                }
                if is_last {
                    return;
                }
            }
        }));
    }

    fn keep(&self, task: JoinHandle<()>) {
        self.tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(task);
    }

    /// Sends the remaining records, and waits a short time for the receiver.
    pub async fn finish(&self) {
        self.shared.ending.send_replace(true);
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let all = async {
            for task in tasks {
                // A panic of an export harms nothing else.
                let _ = task.await;
            }
        };
        if tokio::time::timeout(FLUSH_GRACE, all).await.is_err() {
            tracing::debug!("the receiver did not take the last records in time");
        }
    }

    /// The number of lost spans, logs or metrics.
    pub fn dropped(&self, signal: Signal) -> u64 {
        self.shared.queue(signal).dropped()
    }
}
