//! The limits of this crate, each with its unit and reason.

use std::time::Duration;

/// Bytes of spans, or of logs, that wait for their export. Further ones are dropped and counted. About 10,000 spans.
pub const QUEUE_BYTES_MAX: usize = 4 << 20;

/// Bytes of one request, roughly: receivers refuse large ones (the Collector's limit is 20 MiB).
pub const REQUEST_BYTES_TARGET: usize = 512 << 10;

/// Bytes of one text of a span or a log. A longer one is cut.
pub const TEXT_BYTES_MAX: usize = 1_024;

/// Fields of one span or log.
pub const FIELDS_MAX: usize = 32;

/// Bytes of an answer of a receiver that are read.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Times that a receiver is asked to take one request, before its contents are dropped and counted.
pub const ATTEMPTS_MAX: u32 = 5;

/// The pause after the first failed attempt. It doubles with each further one.
pub const RETRY_PAUSE_FIRST: Duration = Duration::from_secs(1);

/// The longest pause that a receiver can ask for.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long the program's end waits for the last exports.
pub const FLUSH_GRACE: Duration = Duration::from_secs(2);

/// How often the log can say that a receiver fails.
pub const COMPLAINT_EVERY: Duration = Duration::from_secs(60);

/// Metrics that one export has. The server's own are far fewer.
pub const METRICS_MAX: usize = 1_000;
