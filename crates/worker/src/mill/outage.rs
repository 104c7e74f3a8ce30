//! Outages of a source.

use std::time::{Duration, Instant};

/// The pause after the first failed try; it doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest pause between two tries to reach a source.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Since when a source has not answered, and when it is tried again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outage {
    since: Instant,
    pub again_at: Instant,
    pause: Duration,
}

impl Outage {
    /// A try has failed, the first one or one more.
    pub fn after(former: Option<Outage>, now: Instant) -> Outage {
        let (since, pause) = former.map_or((now, PAUSE_MIN), |former| (former.since, former.pause));
        Outage {
            since,
            again_at: now + pause,
            pause: (pause * 2).min(PAUSE_MAX),
        }
    }

    /// How long the source has not answered.
    pub fn lasted(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}
