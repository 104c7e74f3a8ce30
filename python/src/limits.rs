//! The limits of the extension module.

use std::time::Duration;

/// How often a blocking call looks for signals, such as Ctrl-C.
pub const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Jobs in one batch.
pub const BATCH_JOBS: u32 = 1_000;

/// Bytes of payloads in one submit, after which the next one begins.
pub const SUBMIT_BYTES: usize = 4 << 20;

/// Batches of a map that are packed and not submitted.
pub const BATCHES_FED_MAX: usize = 4;

/// How deeply lists, dicts and converted objects may nest in a payload.
pub const PAYLOAD_DEPTH_MAX: u32 = 200;

/// When a job is looked at for the first time after it has not ended; each further wait is twice as long.
pub const LOOK_FIRST_AFTER: Duration = Duration::from_millis(25);

/// How often it is looked at at the least: a notification can be lost.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Bytes that functions printed and that are not shown yet; what comes then is not shown.
pub const PRINTED_BYTES_MAX: usize = 16 << 20;

/// How deep a process may be a fork of forks that each used the package.
pub const FORKS_DEEP_MAX: usize = 64;

/// Bytes of the answer to one operation of the API.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;

/// How long the interpreter's end waits for calls into Python that have begun.
pub const CALLBACKS_END_WITHIN: Duration = Duration::from_secs(5);
