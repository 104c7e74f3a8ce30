//! The order, the jobs, and the answer; the same for every driver of this benchmark.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One piece of work to measure.
#[derive(Debug, Deserialize)]
pub struct Order {
    /// `gristmill` or `bare`.
    pub contender: String,
    /// `submit_batches`, `drain`, `submit_single` or `latency`; for Gristmill also `exchange`, `fill`, `claims` and the
    /// works of [`scheduler`](crate::scheduler).
    pub work: String,
    /// The database file, which must not exist yet, or the URL of an empty PostgreSQL database.
    pub store: String,
    /// `full` or `normal`, for a file.
    #[serde(default)]
    pub synchronous: String,
    /// Measured jobs.
    #[serde(default)]
    pub jobs: usize,
    /// Jobs before them that are not measured.
    #[serde(default)]
    pub warm_up_jobs: usize,
    /// Jobs in a batch.
    #[serde(default)]
    pub batch_jobs: usize,
    /// The number of concurrent callers.
    #[serde(default)]
    pub callers: usize,
    /// The number of jobs that are sent, or may begin, each second.
    #[serde(default)]
    pub rate_per_second: f64,
    /// Tags of each job.
    #[serde(default)]
    pub tags: usize,
    /// Jobs of a chain, or of a fan-in without the waiting one.
    #[serde(default)]
    pub length: usize,
    /// The number of concurrent chains or fan-ins.
    #[serde(default)]
    pub together: usize,
    /// Attempts of each job.
    #[serde(default)]
    pub attempts: usize,
    /// Groups of jobs.
    #[serde(default)]
    pub groups: usize,
    /// The running jobs that each group may have: one limit that saturates no group, and one that saturates all.
    #[serde(default)]
    pub limits: Vec<u32>,
    /// The measured seconds of its clock.
    #[serde(default)]
    pub seconds: u32,
}

/// A payload of exactly 100 bytes as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Payload {
    /// The job's number, of 8 digits.
    pub id: String,
    to: String,
    pad: String,
}

/// The payloads of `count` jobs, numbered from `from`.
pub fn payloads(from: usize, count: usize) -> Vec<Payload> {
    (from..from + count)
        .map(|id| Payload {
            id: format!("{id:08}"),
            to: "user@example.com".to_owned(),
            pad: "x".repeat(50),
        })
        .collect()
}

/// The answer for `jobs` jobs: how long they took.
pub fn rate(jobs: usize, began: Instant) -> Value {
    serde_json::json!({"jobs": jobs, "seconds": began.elapsed().as_secs_f64()})
}

/// The answer for latencies: percentiles in milliseconds.
pub fn latencies(mut latencies_ms: Vec<f64>) -> Value {
    latencies_ms.sort_by(f64::total_cmp);
    let at = |share: f64| latencies_ms[((latencies_ms.len() - 1) as f64 * share).round() as usize];
    serde_json::json!({"samples": latencies_ms.len(), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0)})
}
