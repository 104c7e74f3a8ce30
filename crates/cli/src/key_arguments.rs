//! The deduplication keys of `gristmill submit`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use gristmill_model::{Debounce, DebouncedPayloads, KeyScope, OnDuplicate, Unique};

use crate::arguments::milliseconds;
use crate::span::parse_span;

/// Deduplication keys.
#[derive(Debug, Args)]
pub struct KeyArguments {
    /// A key, one for each payload: there is one job with it at a time
    #[arg(long = "key", value_name = "KEY", conflicts_with_all = ["input", "key_field"])]
    pub keys: Vec<String>,
    /// Take each job's key from this field of its payload; jobs without it have none
    #[arg(long, value_name = "FIELD")]
    pub key_field: Option<String>,
    /// What becomes of a job whose key another job has
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnDuplicateArgument::Skip)]
    pub on_duplicate: OnDuplicateArgument,
    /// Among which jobs a key stands for one
    #[arg(long, value_enum, value_name = "SCOPE", default_value_t = KeyScopeArgument::Kind)]
    pub key_scope: KeyScopeArgument,
    /// Jobs keep their keys at least for so long, over or not
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub key_period: Option<Duration>,
    /// Jobs with the same key become one, with the last payload, that is run so long after the last of them
    #[arg(long, value_name = "SPAN", conflicts_with_all = ["on_duplicate", "key_period", "delay"], value_parser = parse_span)]
    pub debounce: Option<Duration>,
    /// With --debounce: it is run so long after the first of them, however many still come
    #[arg(long, value_name = "SPAN", requires = "debounce", value_parser = parse_span)]
    pub debounce_max: Option<Duration>,
    /// With --debounce: it has all their payloads, as a list
    #[arg(long, requires = "debounce")]
    pub debounce_merge: bool,
}

/// What becomes of a job whose key another job has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnDuplicateArgument {
    /// The other one stands for it
    Skip,
    /// The other one is cancelled
    Replace,
    /// It runs once more after the other one, if that runs
    Rerun,
    /// Nothing is submitted
    Reject,
}

/// Among which jobs a key stands for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeyScopeArgument {
    /// Those of the same kind
    Kind,
    /// Those on the same queue
    Queue,
}

impl KeyArguments {
    /// How the keys are meant; `None` where there are none.
    pub fn unique(&self) -> Option<Unique> {
        if self.keys.is_empty() && self.key_field.is_none() {
            return None;
        }
        Some(Unique {
            scope: match self.key_scope {
                KeyScopeArgument::Kind => KeyScope::Kind,
                KeyScopeArgument::Queue => KeyScope::Queue,
            },
            on_duplicate: match self.on_duplicate {
                OnDuplicateArgument::Skip => OnDuplicate::Skip,
                OnDuplicateArgument::Replace => OnDuplicate::Replace,
                OnDuplicateArgument::Rerun => OnDuplicate::Rerun,
                OnDuplicateArgument::Reject => OnDuplicate::Reject,
            },
            period_ms: self.key_period.map(milliseconds),
            debounce: self.debounce.map(|delay| Debounce {
                delay_ms: milliseconds(delay),
                wait_ms_max: self.debounce_max.map(milliseconds),
                payloads: match self.debounce_merge {
                    true => DebouncedPayloads::Merged,
                    false => DebouncedPayloads::Last,
                },
            }),
        })
    }
}
