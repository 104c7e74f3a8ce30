//! The limits of this crate, each with its unit and reason.

use std::time::Duration;

/// The bytes of spans, or of logs, that wait for their export: about 10,000 spans. Further records are dropped and counted.
pub const QUEUE_BYTES_MAX: usize = 4 << 20;

/// The target size of a request in bytes. Receivers refuse large requests; the Collector's limit is 20 MiB.
pub const REQUEST_BYTES_TARGET: usize = 512 << 10;

/// The bytes of a text in a span or a log. A longer text is cut.
pub const TEXT_BYTES_MAX: usize = 1_024;

/// The largest number of fields in a span or a log.
pub const FIELDS_MAX: usize = 32;

/// The largest number of bytes read from a receiver's answer.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The number of attempts for one request. Afterwards its records are dropped and counted.
pub const ATTEMPTS_MAX: u32 = 5;

/// The pause after the first failed attempt. It doubles after each further failure.
pub const RETRY_PAUSE_FIRST: Duration = Duration::from_secs(1);

/// The longest pause between two attempts. A receiver cannot ask for a longer one.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);

/// The time that the end of the program waits for the last exports.
pub const FLUSH_GRACE: Duration = Duration::from_secs(2);

/// The shortest time between two errors in the log about a failing receiver.
pub const COMPLAINT_EVERY: Duration = Duration::from_secs(60);

/// The largest number of metrics in one export. The server has far fewer.
pub const METRICS_MAX: usize = 1_000;
