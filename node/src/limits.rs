//! The limits of the addon.

use std::time::Duration;

/// The largest request that begins in JavaScript's thread, which reads it there. Bytes.
pub const OWN_THREAD_BYTES_MAX: usize = 64 << 10;

/// The interval at which a running micro-batch looks whether it is drained and which of its jobs were cancelled.
pub const SIGNALS_EVERY: Duration = Duration::from_millis(20);

/// The inputs of jobs that finalize in one message, about: a text of JavaScript holds 512 MiB, and many messages do not wait. Bytes.
pub const FINALIZING_BYTES_PER_MESSAGE: usize = 32 << 20;

/// The events that one call returns at most.
pub const EVENTS_TAKEN_MAX: usize = 1_000;

/// The longest wait of one call. Milliseconds. A caller that waits longer calls again, so that a process which gives up
/// waiting can end.
pub const WAIT_MS_MAX: u32 = 1_000;

/// The time for which a runner may gather outcomes before it answers them.
pub const GATHERS_FOR: Duration = Duration::from_millis(2);
