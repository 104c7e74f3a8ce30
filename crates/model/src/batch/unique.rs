//! Deduplication: at most one open job has a given key.

use serde::{Deserialize, Serialize};

/// The scope within which a key is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = KeyScopeName))]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
    /// Jobs of the same kind.
    ///
    /// On all queues. Not with a token that gives access to some queues only.
    #[default]
    Kind,
    /// Jobs on the same queue.
    Queue,
}

/// The action if another job has the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = OnDuplicateName))]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum OnDuplicate {
    /// Keep the other job, and submit nothing.
    ///
    /// The other job stands for this one, with the higher priority of the two.
    #[default]
    Skip,
    // An ended job cannot be replaced: within its period it stands for the new one.
    /// Cancel the other job, and submit this one.
    Replace,
    // Of several such jobs, the last one runs.
    /// If the other job is running, run this one after it; else as skip.
    Rerun,
    /// Fail, and submit nothing at all.
    Reject,
}

/// The payload of a job that stands for several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = DebouncedPayloadsName))]
#[serde(rename_all = "lowercase")]
pub enum DebouncedPayloads {
    /// The payload of the last submit.
    #[default]
    Last,
    // Also for a single one.
    /// All of them as a list, in their order.
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
