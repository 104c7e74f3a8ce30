//! How a SQLite store is opened.

use std::sync::Arc;

use gristmill_model::{Clock, SplitMix64, SystemClock};
use gristmill_store::options::DebugRng;

use crate::limits::CHECKPOINT_PAGES;
use crate::worker::steady_clock::SteadyClock;

/// What an acknowledged operation survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// A loss of power, or a crash of the system: each transaction is synced to disk before it is
    /// acknowledged.
    #[default]
    Full,
    /// A crash of this program, but not a loss of power: the latest transactions may then be gone,
    /// although they were acknowledged. The file stays sound. Several times faster for small
    /// transactions.
    Normal,
}

impl Synchronous {
    /// As `PRAGMA synchronous` wants it.
    pub(crate) const fn pragma(self) -> &'static str {
        match self {
            Synchronous::Full => "FULL",
            Synchronous::Normal => "NORMAL",
        }
    }
}

/// What a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// For reading and writing.
    #[default]
    Write,
    /// For reading and writing, or for reading alone where this user may not write the file or its folder. Operations that
    /// write then fail with [`ReadOnly`](gristmill_store::StoreError::ReadOnly).
    WriteWherePermitted,
    /// For reading alone. No file is made or changed, but for the index of a log that a crash has left.
    Read,
}

/// How a SQLite store is opened.
#[derive(Debug)]
pub struct SqliteOptions {
    /// What for.
    pub access: Access,
    /// What an acknowledged operation survives.
    pub synchronous: Synchronous,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// The clock that measures the silence of workers. `None` stands for the machine's monotonic clock if `clock` is the
    /// machine's, and for `clock` otherwise.
    pub steady_clock: Option<Arc<dyn SteadyClock>>,
    /// Where the jitter of retries comes from.
    pub rng: Box<dyn DebugRng>,
    /// How long to wait for another process that writes to the file, before an operation fails with
    /// [`Locked`](gristmill_store::StoreError::Locked). Milliseconds.
    pub busy_timeout_ms: u32,
    /// Whether to make the file where there is none.
    pub create: bool,
    /// How large the file may grow; beyond it, operations fail with
    /// [`DiskFull`](gristmill_store::StoreError::DiskFull). Bytes; no limit but the disk's, where `None`.
    pub size_bytes_max: Option<u64>,
    /// How long the write-ahead log grows before the writer checkpoints it. Pages.
    pub checkpoint_pages: u32,
    /// Counts the statements that write, or that claims read by, for checks of what an operation costs.
    #[cfg(feature = "count-statements")]
    pub statements: Option<Arc<std::sync::atomic::AtomicU64>>,
}

/// How long an operation waits for other processes by default. Milliseconds. Longer than the longest
/// transaction (a rescue or a cancel of everything) is expected to take.
const BUSY_TIMEOUT_MS: u32 = 10_000;

impl SqliteOptions {
    /// `synchronous=FULL`, ten seconds of patience with other processes, a file that is made where
    /// there is none and may grow as far as the disk allows.
    pub fn new(clock: Arc<dyn Clock>, seed: u64) -> Self {
        SqliteOptions {
            access: Access::Write,
            synchronous: Synchronous::Full,
            clock,
            steady_clock: None,
            rng: Box::new(SplitMix64::new(seed)),
            busy_timeout_ms: BUSY_TIMEOUT_MS,
            create: true,
            size_bytes_max: None,
            checkpoint_pages: CHECKPOINT_PAGES,
            #[cfg(feature = "count-statements")]
            statements: None,
        }
    }
}

impl Default for SqliteOptions {
    /// As [`SqliteOptions::new`], with the machine's clock.
    fn default() -> Self {
        let started_at = SystemClock.now();
        let seed = (u64::from(std::process::id()) << 40) ^ started_at.0.unsigned_abs();
        SqliteOptions::new(Arc::new(SystemClock), seed)
    }
}
