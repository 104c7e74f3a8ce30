//! The server's metrics, for Prometheus and OpenTelemetry.

mod lanes;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use gristmill_model::Timestamp;
use gristmill_protocol::metric::{MetricFamily, MetricKind, MetricRow, MetricValue};
use gristmill_store::StoreMetrics;

use crate::rules::Rule;

/// The method and the path of an operation.
type Operation = (&'static str, &'static str);

/// The counts of one server. They do not belong to the process, so that several servers can live in it.
#[derive(Debug, Default)]
pub struct Metrics {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    requests: BTreeMap<(Operation, u16), u64>,
    seconds: BTreeMap<Operation, Seconds>,
    exchanged: BTreeMap<&'static str, u64>,
    submitted: u64,
}

/// The durations of the requests of one operation.
#[derive(Debug, Clone, Copy, Default)]
struct Seconds {
    counts: [u64; SECONDS_BOUNDS.len() + 1],
    sum: f64,
}

/// The bounds of the histogram of request durations. Seconds.
const SECONDS_BOUNDS: &[f64] = &[0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

impl Metrics {
    /// Starts without counts.
    pub fn new() -> Self {
        Metrics::default()
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request. All requests without a rule count as one operation, so that callers cannot create labels.
    pub fn request(&self, rule: Option<&'static Rule>, status: StatusCode, took: Duration) {
        let operation = rule.map_or(("", "none"), |rule| (rule.method, rule.path));
        let seconds = took.as_secs_f64();
        let bucket = SECONDS_BOUNDS
            .iter()
            .take_while(|bound| seconds > **bound)
            .count();
        let mut counts = self.counts();
        *counts.requests.entry((operation, status.as_u16())).or_default() += 1;
        let durations = counts.seconds.entry(operation).or_default();
        durations.counts[bucket] += 1;
        durations.sum += seconds;
    }

    /// Counts jobs of an exchange: `claimed`, `accepted` or `refused`.
    pub fn exchanged(&self, what: &'static str, jobs: u32) {
        if jobs > 0 {
            *self.counts().exchanged.entry(what).or_default() += u64::from(jobs);
        }
    }

    /// Counts submitted jobs.
    pub fn submitted(&self, jobs: u64) {
        self.counts().submitted += jobs;
    }

    /// All metrics, including those of the store at this time.
    pub fn families(&self, store: &StoreMetrics, now: Timestamp) -> Vec<MetricFamily> {
        let counter = |name, help, rows| MetricFamily::counts(name, help, MetricKind::Counter, rows);
        let gauge =
            |name, help, value| MetricFamily::counts(name, help, MetricKind::Gauge, [(Vec::new(), value)]);
        let hops = || store.hops.hops.iter();
        let items = hops().map(|(hop, moved)| (vec![("hop", hop.clone())], moved.items));
        let batches = hops().flat_map(|(hop, moved)| {
            moved.end_reasons.iter().map(move |(reason, batches)| {
                let reason = ("end_reason", reason.as_str().to_owned());
                (vec![("hop", hop.clone()), reason], *batches)
            })
        });
        let counts = self.counts();
        let requests = counts.requests.iter().map(|((operation, status), requests)| {
            let status = ("status", status.to_string());
            (
                labels(*operation).into_iter().chain([status]).collect(),
                *requests,
            )
        });
        let exchanged = counts.exchanged.iter();
        let exchanged = exchanged.map(|(what, jobs)| (vec![("what", (*what).to_owned())], *jobs));
        let seconds = counts.seconds.iter().map(|(operation, seconds)| MetricRow {
            labels: labels(*operation),
            value: MetricValue::Histogram {
                bounds: SECONDS_BOUNDS,
                counts: seconds.counts.to_vec(),
                sum: seconds.sum,
            },
        });
        let mut families = lanes::families(&store.lanes, now);
        families.extend([
            counter(
                "gristmill_batches_total",
                "Batches by hop and the reason why they ended, since the store was made",
                batches.collect::<Vec<_>>(),
            ),
            counter(
                "gristmill_batch_items_total",
                "Items of all batches by hop, since the store was made",
                items.collect(),
            ),
            gauge("gristmill_workers", "Registered workers", store.workers),
            gauge(
                "gristmill_store_bytes",
                "Size of the store on disk",
                store.size_bytes,
            ),
            counter(
                "gristmill_http_requests_total",
                "Requests by operation and status",
                requests.collect(),
            ),
            MetricFamily {
                name: "gristmill_http_request_seconds",
                help: "How long requests took, by operation",
                kind: MetricKind::Histogram,
                rows: seconds.collect(),
            },
            counter(
                "gristmill_exchange_jobs_total",
                "Jobs that agents claimed, and outcomes of theirs that were accepted or refused",
                exchanged.collect(),
            ),
            counter(
                "gristmill_submitted_jobs_total",
                "Jobs submitted over HTTP",
                vec![(Vec::new(), counts.submitted)],
            ),
        ]);
        families
    }
}

fn labels((method, path): Operation) -> Vec<(&'static str, String)> {
    vec![("method", method.to_owned()), ("path", path.to_owned())]
}
