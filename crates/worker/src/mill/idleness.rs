//! When a worker that claims in vain asks why.

use std::time::{Duration, Instant};

use gristmill_store::Want;

/// A worker asks again after so long, and after twice the time each further time: a queue may be paused for days.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The longest time until it asks again.
const ASKED_AGAIN_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// Since when a worker runs nothing, and when it asks what keeps jobs from it. A worker that runs jobs has none.
#[derive(Debug)]
pub(crate) struct Idleness {
    want: Want,
    ask_at: Instant,
    again_after: Duration,
}

impl Idleness {
    /// A worker that wants these jobs runs nothing since now, and asks why after a while.
    pub fn since(now: Instant, want: Want, after: Duration) -> Idleness {
        Idleness {
            want,
            ask_at: now + after,
            again_after: ASKED_AGAIN_AFTER,
        }
    }

    /// What is wanted, where it is time to ask. That counts as asked.
    pub fn ask(&mut self, now: Instant) -> Option<Want> {
        if now < self.ask_at {
            return None;
        }
        self.ask_at = now + self.again_after;
        self.again_after = (self.again_after * 2).min(ASKED_AGAIN_AFTER_MAX);
        Some(self.want.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_after_a_while_and_then_less_and_less_often() {
        let began = Instant::now();
        let want = Want {
            jobs_max: 1,
            queues: Vec::new(),
            kinds: Vec::new(),
            priority_min: None,
        };
        let mut idleness = Idleness::since(began, want, Duration::from_secs(10));
        let seconds = 0..20_000;
        let asked = seconds.filter(|second| idleness.ask(began + Duration::from_secs(*second)).is_some());
        let asked: Vec<u64> = asked.collect();
        assert_eq!(
            asked,
            [10, 70, 190, 430, 910, 1_870, 3_790, 7_390, 10_990, 14_590, 18_190]
        );
    }
}
