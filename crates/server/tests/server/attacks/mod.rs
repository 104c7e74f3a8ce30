//! Attacks by clients and their cost for the server: its memory, and the wait of a bystander.

mod bodies;
mod connections;
mod tokens;

use std::time::Duration;

/// The longest wait of a test for an event.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest wait of a bystander on a busy machine.
const BYSTANDER_WITHIN: Duration = Duration::from_secs(5);
