//! Attacks by clients, with what they cost the server: its memory, and the wait of a bystander.

mod bodies;
mod connections;
mod tokens;

use std::time::Duration;

/// No test waits longer for what must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a bystander waits at most, on a busy machine.
const BYSTANDER_WITHIN: Duration = Duration::from_secs(5);
