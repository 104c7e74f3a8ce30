//! The options of a PostgreSQL store.

use std::sync::Arc;
use std::time::Duration;

use gristmill_model::{Clock, SplitMix64, SystemClock};
use gristmill_store::options::DebugRng;

use crate::database::session::Waits;
use crate::limits::{BUSY_TIMEOUT_MS, STATEMENT_TIMEOUT_MS, UNREACHABLE_MS_MAX};

/// The options of a PostgreSQL store.
#[derive(Debug)]
pub struct PostgresOptions {
    /// The clock; `None` for the clock of the database. The clocks of the machines in a fleet differ, and a worker's
    /// last heartbeat must not look old because of that: so all of them use the one clock that all can read.
    pub clock: Option<Arc<dyn Clock>>,
    /// The random numbers for the jitter of retries.
    pub rng: Box<dyn DebugRng>,
    /// How long to wait for a lock of another transaction, before an operation fails with
    /// [`Locked`](gristmill_store::StoreError::Locked). A shorter `lock_timeout` of the server or the database stays,
    /// unless it is shorter than a second. Milliseconds.
    pub busy_timeout_ms: u32,
    /// How long a statement may take in addition to its wait for a lock, before the server ends it. A shorter
    /// `statement_timeout` of the server or the database stays, unless it is shorter than 10 s. Milliseconds.
    pub statement_timeout_ms: u32,
    /// How long an operation tries to reach an unreachable database, before it fails with
    /// [`Unreachable`](gristmill_store::StoreError::Unreachable); without a limit if `None`. Milliseconds.
    pub unreachable_ms_max: Option<u64>,
}

impl PostgresOptions {
    /// Options with a clock and a seed, for tests.
    pub fn new(clock: Arc<dyn Clock>, seed: u64) -> Self {
        PostgresOptions {
            clock: Some(clock),
            rng: Box::new(SplitMix64::new(seed)),
            busy_timeout_ms: BUSY_TIMEOUT_MS,
            statement_timeout_ms: STATEMENT_TIMEOUT_MS,
            unreachable_ms_max: Some(UNREACHABLE_MS_MAX),
        }
    }

    pub(crate) fn waits(&self) -> Waits {
        let lock = Duration::from_millis(self.busy_timeout_ms.into());
        Waits {
            lock,
            statement: lock + Duration::from_millis(self.statement_timeout_ms.into()),
            unreachable: self.unreachable_ms_max.map(Duration::from_millis),
        }
    }
}

impl Default for PostgresOptions {
    /// Options with the database's clock.
    fn default() -> Self {
        let seed = (u64::from(std::process::id()) << 40) ^ SystemClock.now().0.unsigned_abs();
        PostgresOptions {
            clock: None,
            rng: Box::new(SplitMix64::new(seed)),
            busy_timeout_ms: BUSY_TIMEOUT_MS,
            statement_timeout_ms: STATEMENT_TIMEOUT_MS,
            unreachable_ms_max: Some(UNREACHABLE_MS_MAX),
        }
    }
}
