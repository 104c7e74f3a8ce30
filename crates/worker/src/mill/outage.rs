//! Outages of a source.

use std::time::{Duration, Instant};

/// The pause after the first failed try. It doubles after each further one.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest pause between two tries to reach a source.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The time after which an outage is reported, and the interval of further reports.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// An outage of a source: its start, and the time of the next try. The worker keeps trying, however long it lasts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outage {
    since: Instant,
    pub again_at: Instant,
    pause: Duration,
    told_at: Option<Instant>,
}

impl Outage {
    /// The outage after a failed try.
    pub fn after(former: Option<Outage>, now: Instant) -> Outage {
        let former = former.unwrap_or(Outage {
            since: now,
            again_at: now,
            pause: PAUSE_MIN,
            told_at: None,
        });
        assert!(
            former.since <= now && former.pause <= PAUSE_MAX,
            "an outage starts in the past, and its pauses have a limit"
        );
        Outage {
            again_at: now + former.pause,
            pause: (former.pause * 2).min(PAUSE_MAX),
            ..former
        }
    }

    /// The duration of the outage so far.
    pub fn lasted(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Reports whether the outage should be reported now. It then counts as reported.
    pub fn is_news(&mut self, now: Instant) -> bool {
        let last = self.told_at.unwrap_or(self.since);
        let is_news = now.saturating_duration_since(last) >= TOLD_EVERY;
        if is_news {
            self.told_at = Some(now);
        }
        is_news
    }

    /// The duration of an ended outage, if it was reported.
    pub fn told_after(&self, now: Instant) -> Option<Duration> {
        self.told_at.map(|_| self.lasted(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_reported_once_a_minute() {
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
