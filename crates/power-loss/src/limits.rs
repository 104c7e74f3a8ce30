//! The limits of the crate.

/// Bytes that a disk writes as a whole. A larger write can be torn between them.
pub const SECTOR_BYTES: usize = 512;

/// Events of one trace, at most: some hundred megabytes of pages.
pub const EVENTS_MAX: usize = 100_000;

/// Faults that are kept with their seeds; all others are only counted.
pub const FAULTS_KEPT_MAX: usize = 20;

/// Pages of the log after which a workload's store checkpoints it: so few that a short trace has several checkpoints.
pub const CHECKPOINT_PAGES: u32 = 60;

/// Rows of one query of a check.
pub const ROWS_MAX: u32 = 10_000;

/// Exchanges after which a check gives up to empty a store.
pub const EXCHANGES_MAX: usize = 1_000;

/// One image in so many is also worked to its end: all of its jobs are run, all of its input is ingested.
pub const DEEP_EVERY: u64 = 8;
