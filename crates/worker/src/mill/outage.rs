//! Outages of a source.

use std::time::{Duration, Instant};

/// The pause after the first failed try; it doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest pause between two tries to reach a source.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// An outage is told from this time on, and again as often.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Since when a source has not answered, and when it is tried again. However long that is, a worker goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outage {
    since: Instant,
    pub again_at: Instant,
    pause: Duration,
    told_at: Option<Instant>,
}

impl Outage {
    /// A try has failed, the first one or one more.
    pub fn after(former: Option<Outage>, now: Instant) -> Outage {
        let former = former.unwrap_or(Outage {
            since: now,
            again_at: now,
            pause: PAUSE_MIN,
            told_at: None,
        });
        Outage {
            again_at: now + former.pause,
            pause: (former.pause * 2).min(PAUSE_MAX),
            ..former
        }
    }

    /// How long the source has not answered.
    pub fn lasted(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Whether the outage is to be told now. It counts as told then.
    pub fn is_news(&mut self, now: Instant) -> bool {
        let last = self.told_at.unwrap_or(self.since);
        let is_news = now.saturating_duration_since(last) >= TOLD_EVERY;
        if is_news {
            self.told_at = Some(now);
        }
        is_news
    }

    /// How long an outage that was told has lasted when it ends.
    pub fn told_after(&self, now: Instant) -> Option<Duration> {
        self.told_at.map(|_| self.lasted(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_once_a_minute() {
        let began = Instant::now();
        let mut outage = Outage::after(None, began);
        let mut told = Vec::new();
        for second in 0..=200 {
            let now = began + Duration::from_secs(second);
            outage = Outage::after(Some(outage), now);
            if outage.is_news(now) {
                told.push(second);
            }
        }
        assert_eq!(told, [60, 120, 180]);
        assert_eq!(outage.again_at, began + Duration::from_secs(202));
    }
}
