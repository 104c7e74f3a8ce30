//! Deduplication: at most one open job has a given key.

use serde::{Deserialize, Serialize};

/// The jobs among which a key is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
    /// Jobs of the same kind, on all queues.
    #[default]
    Kind,
    /// Jobs on the same queue, of all kinds.
    Queue,
}

/// The action on a job whose key another job has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDuplicate {
    /// The store drops it. The other job stands for it, with the higher priority of the two while it waits.
    #[default]
    Skip,
    /// It replaces the other job, which is cancelled, running or not. An ended job cannot be replaced: within its
    /// period it stands for the new one.
    Replace,
    /// If the other job is running, the new payload becomes a job that runs after it (of several such, the last one).
    /// Otherwise as [`Skip`](OnDuplicate::Skip).
    Rerun,
    /// The whole submit fails, with an error that names the key.
    Reject,
}

/// The payload of a job that stands for several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DebouncedPayloads {
    /// The last one.
    #[default]
    Last,
    /// All payloads as one JSON array, in the order of their submits; also for a single one.
    Merged,
}

/// Debouncing: jobs with the same key become one, which waits until submits cease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Debounce {
    /// The delay after the last submit before the job can be claimed. Milliseconds.
    pub delay_ms: u64,
    /// The maximum delay after the first submit; unlimited if `None`. Milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms_max: Option<u64>,
    /// Its payload.
    #[serde(default)]
    pub payloads: DebouncedPayloads,
}

/// The rules of deduplication of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Unique {
    /// Among which jobs.
    pub scope: KeyScope,
    /// The action on a job whose key another job has.
    pub on_duplicate: OnDuplicate,
    /// The minimum time that a job keeps its key, from its submit; it also keeps the key until it ends. Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<u64>,
    /// Debouncing: a new job becomes part of a job with its key that has not started. Behind a job that has started, is
    /// not debounced in the same way, or has reached its limit of payloads, the new job waits: it is submitted when that
    /// job completes, or soon after it dies or expires, and is cancelled with it. Requires a key for each job, the
    /// default `on_duplicate`, and no period or `run_at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debounce: Option<Debounce>,
}
