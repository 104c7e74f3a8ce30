//! The limits of requests. Shared limits are in `gristmill_model::limits`.

use gristmill_model::limits::TAGS_PER_JOB_MAX;

/// The largest number of jobs in one request. More jobs need several requests.
pub const JOBS_PER_REQUEST_MAX: usize = 100_000;

/// The number of batches and jobs that the jobs of one request may wait for.
pub const AFTER_PER_REQUEST_MAX: usize = 1_000;

/// The latest moment that a request may name: the end of the year 9999. Milliseconds since 1970.
pub const TIMESTAMP_MS_MAX: i64 = 253_402_300_799_999;

/// The longest delay or timeout: ten years. Milliseconds.
pub const SPAN_MS_MAX: u64 = 10 * 366 * 86_400_000;

/// The number of entries to read of a list or object that has its own limit: one more than the limit, so that the later
/// check names it.
pub const JOBS_READ_MAX: usize = JOBS_PER_REQUEST_MAX + 1;
/// See [`JOBS_READ_MAX`].
pub const AFTER_READ_MAX: usize = AFTER_PER_REQUEST_MAX + 1;
/// See [`JOBS_READ_MAX`].
pub const TAGS_READ_MAX: usize = TAGS_PER_JOB_MAX as usize + 1;
