//! The rules of the deduplication keys of a submit.

use gristmill_model::limits::KEY_PERIOD_MS_MAX;
use gristmill_model::{Debounce, DebouncedPayloads, KeyScope, OnDuplicate, Unique};
use serde::{Deserialize, Serialize};

use crate::refused::Refused;

/// The rules of deduplication. Each field has a default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct UniqueOptions {
    /// The jobs among which a key is unique; `kind` by default.
    scope: Option<KeyScope>,
    /// The action on duplicates; `skip` by default.
    on_duplicate: Option<OnDuplicate>,
    /// The minimum time that a job keeps its key, from its submit; it also keeps the key until it ends. Milliseconds.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 316_224_000_000_i64))]
    period_ms: Option<u64>,
    /// Debouncing: jobs with the same key become one, which waits until submits cease. Not with `on_duplicate`,
    /// `period_ms`, `run_at` and `delay_ms`.
    debounce: Option<DebounceOptions>,
}

/// The merging of jobs with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DebounceOptions {
    /// The delay after the last submit before the job can be claimed. Milliseconds.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 316_224_000_000_i64))]
    delay_ms: u64,
    /// The maximum delay after the first submit. Milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 316_224_000_000_i64))]
    wait_ms_max: Option<u64>,
    /// Its payload; `last` by default.
    #[serde(default)]
    payloads: DebouncedPayloads,
}

impl From<DebounceOptions> for Debounce {
    fn from(options: DebounceOptions) -> Self {
        Debounce {
            delay_ms: options.delay_ms,
            wait_ms_max: options.wait_ms_max,
            payloads: options.payloads,
        }
    }
}

impl UniqueOptions {
    /// The rules in the form of a batch.
    pub fn check(&self) -> Result<Unique, Refused> {
        if let Some(period_ms) = self
            .period_ms
            .filter(|period_ms| !(1..=KEY_PERIOD_MS_MAX).contains(period_ms))
        {
            return Err(Refused::invalid(
                format!("`unique.period_ms` is {period_ms}"),
                format!("give 1 to {KEY_PERIOD_MS_MAX}"),
            ));
        }
        Ok(Unique {
            scope: self.scope.unwrap_or_default(),
            on_duplicate: self.on_duplicate.unwrap_or_default(),
            period_ms: self.period_ms,
            debounce: self.debounce.map(Debounce::from),
        })
    }
}
