//! The server's metrics, for Prometheus.

mod lanes;

use std::time::Duration;

use axum::http::StatusCode;
use gristmill_model::Timestamp;
use gristmill_store::StoreMetrics;
use metrics::{Key, KeyName, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

use crate::rules::Rule;

/// The counts of one server. They do not belong to the process, so that several servers can live in it.
pub struct Metrics {
    recorder: PrometheusRecorder,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Metrics").finish_non_exhaustive()
    }
}

const REQUESTS: &str = "gristmill_http_requests_total";
const REQUEST_SECONDS: &str = "gristmill_http_request_seconds";
const EXCHANGE_JOBS: &str = "gristmill_exchange_jobs_total";
const SUBMITTED_JOBS: &str = "gristmill_submitted_jobs_total";
const BATCHES: &str = "gristmill_batches_total";
const BATCH_ITEMS: &str = "gristmill_batch_items_total";
const WORKERS: &str = "gristmill_workers";
const STORE_BYTES: &str = "gristmill_store_bytes";

/// The bounds of the histogram of request durations. Seconds.
const SECONDS_BOUNDS: &[f64] = &[0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

const METADATA: Metadata<'static> = Metadata::new("gristmill", Level::INFO, None);

impl Metrics {
    /// Starts without counts.
    pub fn new() -> Self {
        // The only possible error is an empty list of bounds, and the literal is not empty.
        let recorder = PrometheusBuilder::new().set_buckets(SECONDS_BOUNDS).map_or_else(
            |_| PrometheusBuilder::new().build_recorder(),
            PrometheusBuilder::build_recorder,
        );
        let counter = |name: &'static str, text: &'static str| {
            recorder.describe_counter(KeyName::from_const_str(name), Some(Unit::Count), text.into());
        };
        counter(REQUESTS, "Requests by operation and status");
        counter(
            EXCHANGE_JOBS,
            "Jobs that agents claimed, and outcomes of theirs that were accepted or refused",
        );
        counter(SUBMITTED_JOBS, "Jobs submitted over HTTP");
        counter(
            BATCHES,
            "Batches by hop and the reason why they ended, since the store was made",
        );
        counter(
            BATCH_ITEMS,
            "Items of all batches by hop, since the store was made",
        );
        let gauge = |name: &'static str, text: &'static str| {
            recorder.describe_gauge(KeyName::from_const_str(name), None, text.into());
        };
        gauge(WORKERS, "Registered workers");
        gauge(STORE_BYTES, "Size of the store on disk");
        recorder.describe_histogram(
            KeyName::from_const_str(REQUEST_SECONDS),
            Some(Unit::Seconds),
            "How long requests took, by operation".into(),
        );
        Metrics { recorder }
    }

    fn count(&self, name: &'static str, labels: Vec<Label>, by: u64) {
        self.recorder
            .register_counter(&Key::from_parts(name, labels), &METADATA)
            .increment(by);
    }

    #[allow(clippy::cast_precision_loss, reason = "Prometheus knows only such numbers")]
    fn show(&self, name: &'static str, labels: Vec<Label>, value: u64) {
        self.recorder
            .register_gauge(&Key::from_parts(name, labels), &METADATA)
            .set(value as f64);
    }

    /// Counts a request. All requests without a rule count as one operation, so that callers cannot create labels.
    pub fn request(&self, rule: Option<&'static Rule>, status: StatusCode, took: Duration) {
        let (method, path) = rule.map_or(("", "none"), |rule| (rule.method, rule.path));
        let operation = [
            Label::from_static_parts("method", method),
            Label::from_static_parts("path", path),
        ];
        let mut labels = operation.to_vec();
        labels.push(Label::new("status", status.as_str().to_owned()));
        self.count(REQUESTS, labels, 1);
        let key = Key::from_parts(REQUEST_SECONDS, operation.to_vec());
        self.recorder
            .register_histogram(&key, &METADATA)
            .record(took.as_secs_f64());
    }

    /// Counts jobs of an exchange: `claimed`, `accepted` or `refused`.
    pub fn exchanged(&self, what: &'static str, jobs: u32) {
        if jobs > 0 {
            self.count(
                EXCHANGE_JOBS,
                vec![Label::from_static_parts("what", what)],
                u64::from(jobs),
            );
        }
    }

    /// Counts submitted jobs.
    pub fn submitted(&self, jobs: u64) {
        self.count(SUBMITTED_JOBS, Vec::new(), jobs);
    }

    /// Shows a count of the store.
    fn total(&self, name: &'static str, labels: Vec<Label>, value: u64) {
        self.recorder
            .register_counter(&Key::from_parts(name, labels), &METADATA)
            .absolute(value);
    }

    /// All metrics, including those of the store at this time, as text for Prometheus.
    pub fn render(&self, store: &StoreMetrics, now: Timestamp) -> String {
        for (hop, moved) in &store.hops.hops {
            let hop = Label::new("hop", hop.clone());
            self.total(BATCH_ITEMS, vec![hop.clone()], moved.items);
            for (reason, batches) in &moved.end_reasons {
                let reason = Label::from_static_parts("end_reason", reason.as_str());
                self.total(BATCHES, vec![hop.clone(), reason], *batches);
            }
        }
        self.show(WORKERS, Vec::new(), store.workers);
        self.show(STORE_BYTES, Vec::new(), store.size_bytes);
        self.upkeep();
        let mut text = lanes::render(&store.lanes, now);
        text.push_str(&self.recorder.handle().render());
        text
    }

    /// Folds measurements, which would otherwise grow until they are read.
    pub fn upkeep(&self) {
        self.recorder.handle().run_upkeep();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}
