//! How a PostgreSQL store is opened.

use std::sync::Arc;

use gristmill_model::{Clock, SplitMix64, SystemClock};
use gristmill_store::options::DebugRng;

use crate::limits::BUSY_TIMEOUT_MS;

/// How a PostgreSQL store is opened.
#[derive(Debug)]
pub struct PostgresOptions {
    /// Where the time comes from; the database's own, where `None`. The machines of a fleet have clocks that differ,
    /// and a worker's last heartbeat must not look old for that: so all go by the one clock that all can read.
    pub clock: Option<Arc<dyn Clock>>,
    /// Where the jitter of retries comes from.
    pub rng: Box<dyn DebugRng>,
    /// How long to wait for a lock of another transaction, before an operation fails with
    /// [`Locked`](gristmill_store::StoreError::Locked). A shorter `lock_timeout` of the server or the database stays.
    /// Milliseconds.
    pub busy_timeout_ms: u32,
}

impl PostgresOptions {
    /// With a clock and a seed, as tests want it.
    pub fn new(clock: Arc<dyn Clock>, seed: u64) -> Self {
        PostgresOptions {
            clock: Some(clock),
            rng: Box::new(SplitMix64::new(seed)),
            busy_timeout_ms: BUSY_TIMEOUT_MS,
        }
    }
}

impl Default for PostgresOptions {
    /// With the database's clock.
    fn default() -> Self {
        let seed = (u64::from(std::process::id()) << 40) ^ SystemClock.now().0.unsigned_abs();
        PostgresOptions {
            clock: None,
            rng: Box::new(SplitMix64::new(seed)),
            busy_timeout_ms: BUSY_TIMEOUT_MS,
        }
    }
}
