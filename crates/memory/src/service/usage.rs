//! The cost of model calls.

use serde::{Deserialize, Serialize};

/// The cost of model calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Calls that were answered.
    pub calls: u32,
    /// Calls that were refused or failed, and tried again.
    pub retries: u32,
    /// Tokens that were sent.
    pub input_tokens: u64,
    /// Tokens that came back.
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
}
