//! Deduplication: at most one open job has a given key.

use serde::{Deserialize, Serialize};

/// The scope within which a key is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
    /// Jobs of the same kind, on all queues.
    #[default]
    Kind,
    /// Jobs on the same queue, of all kinds.
    Queue,
}

/// The action on a new job whose key another job has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDuplicate {
    /// Drops the new job. The other job stands for it, and gets the higher priority of the two while it waits.
    #[default]
    Skip,
    /// Replaces the other job, which is cancelled, even if it runs. An ended job is not replaced. Within its period, it
    /// stands for the new job.
    Replace,
    /// Runs the new payload after the other job, if that job is running. The last of several such payloads counts.
    /// Otherwise acts as [`Skip`](OnDuplicate::Skip).
    Rerun,
    /// Fails the whole submit, with an error that names the key.
    Reject,
}

/// The payload of a job that stands for several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DebouncedPayloads {
    /// The payload of the last submit.
    #[default]
    Last,
    /// All payloads as one JSON array, in the order of their submits, even if there is only one.
    Merged,
}

/// Debouncing: jobs with the same key become one job, which waits until submits stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Debounce {
    /// The delay from the last submit until the job can be claimed, in milliseconds.
    pub delay_ms: u64,
    /// The maximum delay from the first submit, in milliseconds; unlimited if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms_max: Option<u64>,
    /// The payload of the job.
    #[serde(default)]
    pub payloads: DebouncedPayloads,
}

/// The rules of deduplication of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Unique {
    /// The scope of the keys.
    pub scope: KeyScope,
    /// The action on a new job whose key another job has.
    pub on_duplicate: OnDuplicate,
    /// The minimum time for which a job keeps its key, from its submit, in milliseconds. A job also keeps its key until
    /// it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<u64>,
    /// Debouncing: a new job joins a job with its key that has not started. If that job has started, is debounced
    /// differently, or has reached its limit of payloads, the new job waits behind it. The new job is submitted when
    /// that job completes, or soon after it dies or expires, and is cancelled with it. Debouncing requires a key for
    /// each job, the default `on_duplicate`, and neither a period nor `run_at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debounce: Option<Debounce>,
}
