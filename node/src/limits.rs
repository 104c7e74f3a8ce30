//! The limits of the addon.

use std::time::Duration;

/// The interval at which a running micro-batch looks whether it is drained and which of its jobs were cancelled.
pub const SIGNALS_EVERY: Duration = Duration::from_millis(20);

/// When an open job is first looked at again; each further wait is twice as long.
pub const LOOK_FIRST_AFTER: Duration = Duration::from_millis(25);

/// The longest wait between two looks, because a notification can be lost.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The events that one call returns at most.
pub const EVENTS_TAKEN_MAX: usize = 1_000;

/// The longest wait of one call. Milliseconds. A caller that waits longer calls again, so that a process which gives up
/// waiting can end.
pub const WAIT_MS_MAX: u32 = 1_000;

/// The time for which a runner may gather outcomes before it answers them.
pub const GATHERS_FOR: Duration = Duration::from_millis(2);
