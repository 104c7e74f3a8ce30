//! The limits of requests. Shared limits are in `gristmill_model::limits`.

use gristmill_model::limits::{CONTROLS_MAX, TAGS_PER_JOB_MAX};

/// The largest number of jobs in one request. More jobs need several requests.
pub const JOBS_PER_REQUEST_MAX: usize = 100_000;

/// The number of batches and jobs that the jobs of one request may wait for.
pub const AFTER_PER_REQUEST_MAX: usize = 1_000;

/// The number of events for flows in one request.
pub const EVENTS_PER_REQUEST_MAX: usize = 1_000;

/// The number of flows of which one request reads what they keep.
pub const MEMOS_PER_REQUEST_MAX: usize = 100;

/// The latest moment that a request may name: the end of the year 9999. Milliseconds since 1970.
pub const TIMESTAMP_MS_MAX: i64 = 253_402_300_799_999;

/// The longest delay or timeout: ten years. Milliseconds.
pub const SPAN_MS_MAX: u64 = 10 * 366 * 86_400_000;

/// Batches of a run that are packed and not submitted.
pub const BATCHES_FED_MAX: usize = 4;

/// Bytes of payloads in one submit of a run, after which it takes no further batch.
pub const SUBMIT_BYTES_TARGET: usize = 4 << 20;

/// The number of entries of all lists and objects in one request, without payloads and values. It bounds the memory that a
/// short request can become.
pub const ENTRIES_PER_REQUEST_MAX: usize = 1_000_000;

/// The number of job ids in one cancel or retry.
pub const SELECTED_JOBS_MAX: usize = 10_000;

/// Bytes of a text to search for.
pub const SEARCH_TEXT_BYTES_MAX: usize = 200;

/// The number of newest jobs that one search reads, rounded up to a whole batch.
pub const SEARCH_JOBS_MAX: u64 = 100_000;

/// The number of batches that one search reads. Each costs two queries.
pub const SEARCH_BATCHES_MAX: usize = 1_000;

/// Bytes of payloads and values that one search reads, rounded up to a whole batch.
pub const SEARCH_BYTES_MAX: usize = 256 << 20;

/// The number of jobs that one search returns.
pub const SEARCH_ROWS_MAX: u32 = 100;

/// The number of batch ids that one listing reads, matching or not.
pub const BATCH_IDS_LOOKED_AT_MAX: i64 = 20_000;

/// The number of batches whose results one request may name.
pub const RESULT_BATCHES_MAX: usize = 1_000;

/// Bytes of outcomes in one answer that is not a stream.
pub const RESULT_BYTES_MAX: usize = 32 << 20;

/// The longest wait of one claim, or for results.
pub const WAIT_MS_MAX: u64 = 30_000;

/// Batches on one page of a listing.
pub const BATCH_ROWS_MAX: u32 = 200;

/// Runs in one listing, which counts the jobs of each.
pub const RUN_ROWS_MAX: u32 = 100;

/// Flows on a page where the request names no number.
pub const FLOWS_PER_PAGE: u32 = 50;

/// Flows on a page, at most. Each that waits takes several reads.
pub const FLOWS_PER_PAGE_MAX: u32 = 200;

/// Steps on a page where the request names no number.
pub const STEPS_PER_PAGE: u32 = 100;

/// Names in one condition of a filter: states, effects, tags.
pub const NAMES_READ_MAX: usize = 100;

/// The number of entries to read of a list or object that has its own limit: one more than the limit, so that the later
/// check names it.
pub const JOBS_READ_MAX: usize = JOBS_PER_REQUEST_MAX + 1;
/// See [`JOBS_READ_MAX`].
pub const AFTER_READ_MAX: usize = AFTER_PER_REQUEST_MAX + 1;
/// See [`JOBS_READ_MAX`].
pub const TAGS_READ_MAX: usize = TAGS_PER_JOB_MAX as usize + 1;
/// See [`JOBS_READ_MAX`].
pub const SELECTED_JOBS_READ_MAX: usize = SELECTED_JOBS_MAX + 1;
/// See [`JOBS_READ_MAX`].
pub const CONTROLS_READ_MAX: usize = CONTROLS_MAX + 1;
/// See [`JOBS_READ_MAX`].
pub const EVENTS_READ_MAX: usize = EVENTS_PER_REQUEST_MAX + 1;
/// See [`JOBS_READ_MAX`].
pub const MEMOS_READ_MAX: usize = MEMOS_PER_REQUEST_MAX + 1;
