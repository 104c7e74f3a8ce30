//! A time in which the system has too few files or too little memory for a process.

use std::time::{Duration, Instant};

use crate::limits::{SHORTAGE_MS_MAX, START_AGAIN_MS};

/// A time in which the system has too few files or too little memory for a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shortage {
    since: Instant,
    /// When a process is started again.
    again_at: Instant,
}

impl Shortage {
    /// The shortage after a failed start, beside the one before it. `None` where it has lasted too long.
    pub fn again(before: Option<Shortage>) -> Option<Shortage> {
        let now = Instant::now();
        let since = before.map_or(now, |before| before.since);
        let lasts = now.duration_since(since) < Duration::from_millis(SHORTAGE_MS_MAX);
        lasts.then(|| Shortage {
            since,
            again_at: now + Duration::from_millis(START_AGAIN_MS),
        })
    }

    /// Whether the next start is still to be waited for.
    pub fn waits(&self) -> bool {
        self.again_at > Instant::now()
    }
}
