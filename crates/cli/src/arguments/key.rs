//! The deduplication keys of `gristmill submit` and `gristmill schedule put`.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use gristmill_model::{Debounce, DebouncedPayloads, KeyScope, OnDuplicate, Unique};

use crate::arguments::hook::HookArguments;
use crate::span::{milliseconds, parse_span};

/// Deduplication keys.
#[derive(Debug, Args)]
pub struct KeyArguments {
    /// The deduplication key of each payload, in the order of the payloads; at most one open job has it
    #[arg(long = "key", value_name = "KEY", conflicts_with_all = ["input", "key_field"])]
    pub keys: Vec<String>,
    /// Take each job's key from this field of its payload; a job without the field has no key
    #[arg(long, value_name = "FIELD")]
    pub key_field: Option<String>,
    /// Action if another job has the key
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnDuplicate::Skip)]
    pub on_duplicate: OnDuplicate,
    /// The jobs among which a key is unique
    #[arg(long, value_enum, value_name = "SCOPE", default_value_t = KeyScope::Kind)]
    pub key_scope: KeyScope,
    /// Keep keys for at least this time, even after the job ends
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub key_period: Option<Duration>,
    /// Merge jobs with the same key into one, which runs this long after the last submit, with the last payload
    #[arg(long, value_name = "SPAN", conflicts_with_all = ["on_duplicate", "key_period", "delay"], value_parser = parse_span)]
    pub debounce: Option<Duration>,
    /// With --debounce: run at the latest this long after the first submit
    #[arg(long, value_name = "SPAN", requires = "debounce", value_parser = parse_span)]
    pub debounce_max: Option<Duration>,
    /// With --debounce: pass all payloads as a list
    #[arg(long, requires = "debounce")]
    pub debounce_merge: bool,
}

impl KeyArguments {
    /// Refuses options that exclude each other.
    pub fn check(&self, hooks: &HookArguments) -> anyhow::Result<()> {
        if self.debounce.is_some() && self.unique().is_none() {
            bail!("--debounce merges jobs with the same key: give --key or --key-field");
        }
        if hooks.hooks().is_some() && self.unique().is_some() {
            bail!(
                "jobs with keys cannot have hooks: omit --key and --key-field, or --on-success and --on-failure"
            );
        }
        Ok(())
    }

    /// The deduplication of the jobs; `None` without keys.
    pub fn unique(&self) -> Option<Unique> {
        if self.keys.is_empty() && self.key_field.is_none() {
            return None;
        }
        Some(Unique {
            scope: self.key_scope,
            on_duplicate: self.on_duplicate,
            period_ms: self.key_period.map(milliseconds),
            debounce: self.debounce.map(|delay| Debounce {
                delay_ms: milliseconds(delay),
                wait_ms_max: self.debounce_max.map(milliseconds),
                payloads: if self.debounce_merge {
                    DebouncedPayloads::Merged
                } else {
                    DebouncedPayloads::Last
                },
            }),
        })
    }
}
