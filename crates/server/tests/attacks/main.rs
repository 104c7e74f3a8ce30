//! Attacks by clients, with what they cost the server: its memory, and the wait of a bystander.

#[path = "../support/mod.rs"]
mod support;
mod tokens;

use std::time::Duration;

/// No test waits longer for what must happen.
const PATIENCE: Duration = Duration::from_secs(60);
