//! Deduplication: at most one open job has a given key.

use serde::{Deserialize, Serialize};

/// The scope within which a key is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = KeyScopeName))]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
    /// Those of the same kind, on whatever queue. Not with a token that reaches some queues only.
    #[default]
    Kind,
    /// Those on the same queue, of whatever kind.
    Queue,
}

/// The action if another job has the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = OnDuplicateName))]
#[serde(rename_all = "lowercase")]
pub enum OnDuplicate {
    /// It is left out; the other one stands for it, with the higher priority of the two.
    #[default]
    Skip,
    // An ended job cannot be replaced: within its period it stands for the new one.
    /// It takes the place of the other one, which is cancelled.
    Replace,
    // Of several such jobs, the last one runs.
    /// It runs once more after the other one, where that runs, has completed; otherwise it is left out.
    Rerun,
    /// The whole submit is refused.
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
