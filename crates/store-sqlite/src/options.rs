//! The options of a SQLite store.

use std::sync::Arc;

use gristmill_model::{Clock, SplitMix64, SystemClock};
use gristmill_store::options::DebugRng;

use crate::limits::CHECKPOINT_PAGES;
use crate::worker::steady_clock::SteadyClock;

/// The faults that an acknowledged operation survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// A loss of power, or a crash of the system: each transaction is synced to disk before it is acknowledged.
    #[default]
    Full,
    /// A crash of this program, but not a loss of power: the latest transactions may then be lost, although they were
    /// acknowledged. The file stays sound. Several times faster for small transactions.
    Normal,
}

impl Synchronous {
    /// The value for `PRAGMA synchronous`.
    pub(crate) const fn pragma(self) -> &'static str {
        match self {
            Synchronous::Full => "FULL",
            Synchronous::Normal => "NORMAL",
        }
    }
}

/// How a store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// For reading and writing.
    #[default]
    Write,
    /// For reading and writing, or only for reading if this user may not write the file or its folder. Operations that
    /// write then fail with [`ReadOnly`](gristmill_store::StoreError::ReadOnly).
    WriteWherePermitted,
    /// Only for reading. No file is made or changed, except the index of a log that a crash has left.
    Read,
}

/// The options of a SQLite store.
#[derive(Debug)]
pub struct SqliteOptions {
    /// Whether the store is opened for writing.
    pub access: Access,
    /// The faults that an acknowledged operation survives.
    pub synchronous: Synchronous,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The clock that measures the silence of workers. `None` stands for the machine's monotonic clock if `clock` is
    /// the machine's, and for `clock` otherwise.
    pub steady_clock: Option<Arc<dyn SteadyClock>>,
    /// The random numbers for the jitter of retries.
    pub rng: Box<dyn DebugRng>,
    /// How long to wait for another process that writes to the file, before an operation fails with
    /// [`Locked`](gristmill_store::StoreError::Locked). Milliseconds.
    pub busy_timeout_ms: u32,
    /// Whether to make the file if there is none.
    pub create: bool,
    /// The maximum size of the file; beyond it, operations fail with
    /// [`DiskFull`](gristmill_store::StoreError::DiskFull). Bytes; `None` for no limit but the disk's.
    pub size_bytes_max: Option<u64>,
    /// The length of the write-ahead log at which the writer checkpoints it. Pages.
    pub checkpoint_pages: u32,
    /// Counts the statements that write, or that claims read by, to check the cost of operations.
    #[cfg(feature = "count-statements")]
    pub statements: Option<Arc<std::sync::atomic::AtomicU64>>,
}

/// How long an operation waits for other processes by default. Milliseconds. Longer than the longest transaction (a
/// rescue or a cancel of everything) is expected to take.
const BUSY_TIMEOUT_MS: u32 = 10_000;

impl SqliteOptions {
    /// `synchronous=FULL`, ten seconds of patience with other processes, and a file that is made if there is none and
    /// may grow as far as the disk allows.
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
    /// [`SqliteOptions::new`] with the machine's clock.
    fn default() -> Self {
        let started_at = SystemClock.now();
        let seed = (u64::from(std::process::id()) << 40) ^ started_at.0.unsigned_abs();
        SqliteOptions::new(Arc::new(SystemClock), seed)
    }
}
