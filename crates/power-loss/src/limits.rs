//! The limits of the crate.

/// The bytes that a disk writes as a whole. A larger write can be torn at their boundaries.
pub const SECTOR_BYTES: usize = 512;

/// The largest number of events in a trace: a few hundred megabytes of pages.
pub const EVENTS_MAX: usize = 100_000;

/// The number of faults that keep their seeds. Further faults are only counted.
pub const FAULTS_KEPT_MAX: usize = 20;

/// The pages of the log after which a workload's store checkpoints. The number is small, so that a short trace has
/// several checkpoints.
pub const CHECKPOINT_PAGES: u32 = 60;

/// The rows of one query of a check.
pub const ROWS_MAX: u32 = 10_000;

/// The exchanges after which a check stops trying to empty a store.
pub const EXCHANGES_MAX: usize = 1_000;

/// One image in this many gets a deep check: all of its jobs run, and all of its input is ingested.
pub const DEEP_EVERY: u64 = 8;
