//! The limits of the extension module.

use std::time::Duration;

/// How often a blocking call checks for signals, such as Ctrl-C.
pub const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// The maximum nesting of lists, dicts and converted objects in a payload.
pub const PAYLOAD_DEPTH_MAX: u32 = 200;

/// The maximum number of bytes that functions printed and that are not shown yet; further output is not shown.
pub const PRINTED_BYTES_MAX: usize = 16 << 20;

/// The maximum number of nested forks that each used the package.
pub const FORKS_DEEP_MAX: usize = 64;

/// How long the interpreter's end waits for running calls into Python.
pub const CALLBACKS_END_WITHIN: Duration = Duration::from_secs(5);

/// The maximum number of bytes of calls of an executor that are not submitted; further calls wait.
pub const CALLS_BYTES_MAX: usize = 64 << 20;

/// The interval at which an executor asks the store for ends that nobody tells of, such as a cancel by another process.
pub const CALLS_LOOK_EVERY: Duration = Duration::from_secs(2);
