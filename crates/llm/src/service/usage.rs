//! The cost of model calls.

use serde::{Deserialize, Serialize};

/// The cost of model calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Number of answered calls.
    pub calls: u32,
    /// Number of calls that were rejected or failed, and retried.
    pub retries: u32,
    /// Number of tokens sent.
    pub input_tokens: u64,
    /// Number of tokens received.
    pub output_tokens: u64,
}

impl Usage {
    /// Adds another cost.
    pub fn add(&mut self, other: &Usage) {
        self.calls += other.calls;
        self.retries += other.retries;
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
    }

    /// The usage since an earlier moment of the same work.
    pub fn since(&self, earlier: &Usage) -> Usage {
        assert!(
            self.calls >= earlier.calls && self.retries >= earlier.retries,
            "the cost of a run only grows"
        );
        Usage {
            calls: self.calls - earlier.calls,
            retries: self.retries - earlier.retries,
            input_tokens: self.input_tokens - earlier.input_tokens,
            output_tokens: self.output_tokens - earlier.output_tokens,
        }
    }
}
