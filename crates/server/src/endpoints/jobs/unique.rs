//! How the deduplication keys of a submit are meant.

use gristmill_model::limits::KEY_PERIOD_MS_MAX;
use gristmill_model::{Debounce, DebouncedPayloads, KeyScope, OnDuplicate, Unique};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::caller::{Caller, QueueScope};
use crate::error::ApiError;

/// The jobs among which a key is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyScopeName {
    /// Those of the same kind, on whatever queue. Not with a token that reaches some queues only.
    Kind,
    /// Those on the same queue, of whatever kind.
    Queue,
}

/// The action if another job has the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnDuplicateName {
    /// It is left out; the other one stands for it, with the higher priority of the two.
    Skip,
    /// It takes the place of the other one, which is cancelled.
    Replace,
    /// It runs once more after the other one, where that runs, has completed; otherwise it is left out.
    Rerun,
    /// The whole submit is refused.
    Reject,
}

/// The rules of deduplication. Each field has a default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UniqueOptions {
    /// The jobs among which a key is unique; `kind` by default.
    scope: Option<KeyScopeName>,
    /// The action on duplicates; `skip` by default.
    on_duplicate: Option<OnDuplicateName>,
    /// The minimum time that a job keeps its key, from its submit; it also keeps the key until it ends. Milliseconds.
    #[schema(minimum = 1, maximum = 316_224_000_000_i64)]
    period_ms: Option<u64>,
    /// Debouncing: jobs with the same key become one, which waits until submits cease. Not with `on_duplicate`,
    /// `period_ms`, `run_at` and `delay_ms`.
    debounce: Option<DebounceOptions>,
}

/// The payload of a job that stands for several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DebouncedPayloadsName {
    /// The last one.
    #[default]
    Last,
    /// All of them as a list, in their order.
    Merged,
}

/// The merging of jobs with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DebounceOptions {
    /// The delay after the last submit before the job can be claimed. Milliseconds.
    #[schema(minimum = 1, maximum = 316_224_000_000_i64)]
    delay_ms: u64,
    /// The maximum delay after the first submit. Milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 316_224_000_000_i64)]
    wait_ms_max: Option<u64>,
    /// Its payload; `last` by default.
    #[serde(default)]
    payloads: DebouncedPayloadsName,
}

impl From<DebounceOptions> for Debounce {
    fn from(options: DebounceOptions) -> Self {
        Debounce {
            delay_ms: options.delay_ms,
            wait_ms_max: options.wait_ms_max,
            payloads: match options.payloads {
                DebouncedPayloadsName::Last => DebouncedPayloads::Last,
                DebouncedPayloadsName::Merged => DebouncedPayloads::Merged,
            },
        }
    }
}

impl UniqueOptions {
    /// As a batch has them. A key of a kind could reach jobs on queues that the caller does not.
    pub fn check(&self, caller: &Caller) -> Result<Unique, ApiError> {
        let scope = match self.scope {
            None | Some(KeyScopeName::Kind) => KeyScope::Kind,
            Some(KeyScopeName::Queue) => KeyScope::Queue,
        };
        if scope == KeyScope::Kind && caller.queues != QueueScope::All {
            return Err(ApiError::forbidden(
                "keys of a kind apply to all queues, and the token gives access to some queues only",
                "give `unique` with the scope `queue`",
            ));
        }
        if let Some(period_ms) = self
            .period_ms
            .filter(|period_ms| !(1..=KEY_PERIOD_MS_MAX).contains(period_ms))
        {
            return Err(ApiError::invalid(
                format!("`unique.period_ms` is {period_ms}"),
                format!("give 1 to {KEY_PERIOD_MS_MAX}"),
            ));
        }
        Ok(Unique {
            scope,
            on_duplicate: match self.on_duplicate {
                None | Some(OnDuplicateName::Skip) => OnDuplicate::Skip,
                Some(OnDuplicateName::Replace) => OnDuplicate::Replace,
                Some(OnDuplicateName::Rerun) => OnDuplicate::Rerun,
                Some(OnDuplicateName::Reject) => OnDuplicate::Reject,
            },
            period_ms: self.period_ms,
            debounce: self.debounce.map(Debounce::from),
        })
    }
}
