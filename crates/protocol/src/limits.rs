//! The limits of messages. Shared limits are in `gristmill_model::limits`.

use gristmill_model::limits::PROGRESS_JOBS_MAX;

/// The largest payload or value in a request. Bytes.
pub const ITEM_BYTES_MAX: usize = 16 << 20;

/// The largest number of entries in all lists and objects of an exchange, without payloads and values. It bounds the
/// memory that a short message can become.
pub const ENTRIES_PER_EXCHANGE_MAX: usize = 300_000;

/// The number of kinds that one claim may name.
pub const KINDS_MAX: usize = 1_000;

/// The number of reports in one exchange: one for each leased slice, and some more for parts.
pub const REPORTS_PER_EXCHANGE_MAX: usize = 10_000;

/// Bytes of logs in one exchange; an agent drops the excess.
pub const LOG_BYTES_PER_EXCHANGE_MAX: usize = 16 << 20;

/// The number of entries to read of a list that has its own limit: one more than the limit, so that the later check names it.
pub const REPORTS_READ_MAX: usize = REPORTS_PER_EXCHANGE_MAX + 1;

/// See [`REPORTS_READ_MAX`].
pub const KINDS_READ_MAX: usize = KINDS_MAX + 1;

/// See [`REPORTS_READ_MAX`].
pub const PROGRESS_JOBS_READ_MAX: usize = PROGRESS_JOBS_MAX + 1;

/// The number of failed jobs, earlier failures, logs and spawning jobs to read of one report, each.
pub const REPORTED_READ_MAX: usize = 200_000;
