//! The limits of messages. Shared limits are in `gristmill_model::limits`.

use gristmill_model::limits::PROGRESS_JOBS_MAX;

/// Bytes of one payload or value at most, as a request brings it.
pub const ITEM_BYTES_MAX: usize = 16 << 20;

/// Entries of all lists and objects of an exchange, payloads and values aside, at most: bounds the memory that a short message
/// becomes.
pub const ENTRIES_PER_EXCHANGE_MAX: usize = 300_000;

/// Kinds that one claim may name.
pub const KINDS_MAX: usize = 1_000;

/// Reports in one exchange: one a leased slice, and some for parts.
pub const REPORTS_PER_EXCHANGE_MAX: usize = 10_000;

/// Bytes of logs in one exchange; an agent drops the excess.
pub const LOG_BYTES_PER_EXCHANGE_MAX: usize = 16 << 20;

/// Entries that are read of a list with a limit of its own: one more than that, so that the later check names it.
pub const REPORTS_READ_MAX: usize = REPORTS_PER_EXCHANGE_MAX + 1;

/// See [`REPORTS_READ_MAX`].
pub const KINDS_READ_MAX: usize = KINDS_MAX + 1;

/// See [`REPORTS_READ_MAX`].
pub const PROGRESS_JOBS_READ_MAX: usize = PROGRESS_JOBS_MAX + 1;

/// Failed jobs, earlier failures, logs and spawning jobs that are read of one report each.
pub const REPORTED_READ_MAX: usize = 200_000;
