//! The limits of the extension module.

use std::time::Duration;

/// How often a blocking call looks for signals, such as Ctrl-C.
pub const SIGNALS_EVERY: Duration = Duration::from_millis(50);

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

/// How long the interpreter's end waits for calls into Python that have begun.
pub const CALLBACKS_END_WITHIN: Duration = Duration::from_secs(5);
