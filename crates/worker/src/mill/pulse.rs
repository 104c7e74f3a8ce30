//! The signs that a worker's loop can work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_store::{NEWS, Want};

use crate::mill::idleness::Idleness;
use crate::sync::{Mutex, MutexGuard, lock};

/// The time without an answer to a claim or report, or without a turn of the loop, after which the heart stops beating.
/// It is longer than a store waits for a lock, and longer than a restart of a server takes with retries. With the usual
/// lease, others run the jobs of such a worker within 50 seconds.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(30);

/// The signs that the loop sets and the heart reads.
#[derive(Debug, Clone)]
pub(crate) struct Pulse {
    /// The longest time between two turns of the loop.
    pub every: Duration,
    signs: Arc<Mutex<Signs>>,
}

#[derive(Debug)]
struct Signs {
    turned_at: Instant,
    /// The time of the oldest unanswered request to the source.
    asked_at: Option<Instant>,
    is_stalled: bool,
    /// Where the worker runs nothing.
    idleness: Option<Idleness>,
}

impl Pulse {
    /// The pulse of a loop that turns now.
    pub fn new(every: Duration, now: Instant) -> Pulse {
        Pulse {
            every,
            signs: Arc::new(Mutex::new(Signs {
                turned_at: now,
                asked_at: None,
                is_stalled: false,
                idleness: None,
            })),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Signs> {
        lock(&self.signs)
    }

    /// Notes a turn of the loop.
    pub fn turned(&self, now: Instant) {
        self.lock().turned_at = now;
    }

    /// Notes a claim or report to the source, perhaps a repeated one.
    pub fn asked(&self, now: Instant) {
        self.lock().asked_at.get_or_insert(now);
    }

    /// Notes that the source has answered, or that the worker asks for nothing.
    pub fn answered(&self) {
        self.lock().asked_at = None;
    }

    /// The worker runs something, or wants no jobs.
    pub fn is_busy(&self) {
        self.lock().idleness = None;
    }

    /// The worker runs nothing and its claims get no jobs. After a while it asks why.
    pub fn is_idle(&self, now: Instant, after: Duration, want: impl FnOnce() -> Want) {
        let mut signs = self.lock();
        if signs.idleness.is_none() {
            signs.idleness = Some(Idleness::since(now, want(), after));
        }
    }

    /// The claim that gets no jobs, when it is time to ask why.
    pub fn ask_why(&self, now: Instant) -> Option<Want> {
        self.lock().idleness.as_mut()?.ask(now)
    }

    /// Reports whether the worker was unable to work for so long that others should run its jobs. Logs the start and
    /// the end of this state.
    pub fn is_stalled(&self, now: Instant) -> bool {
        let mut signs = self.lock();
        let since = |at: Instant| now.saturating_duration_since(at);
        let silent = signs.asked_at.map(since).filter(|time| *time > STALLED_AFTER);
        let still = Some(since(signs.turned_at)).filter(|time| *time > STALLED_AFTER);
        let is_stalled = silent.is_some() || still.is_some();
        if std::mem::replace(&mut signs.is_stalled, is_stalled) != is_stalled {
            match (silent, still) {
                (Some(time), _) => tracing::warn!(
                    target: NEWS,
                    "the source has not answered a claim or report for {} s; the worker sends no heartbeats, so others run its jobs",
                    time.as_secs()
                ),
                (None, Some(time)) => tracing::warn!(
                    target: NEWS,
                    "the worker's loop has not turned for {} s; the worker sends no heartbeats, so others run its jobs",
                    time.as_secs()
                ),
                (None, None) => tracing::warn!(target: NEWS, "the worker works again and sends heartbeats"),
            }
        }
        is_stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_turns_and_gets_answers_beats() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let pulse = Pulse::new(Duration::from_secs(5), began);
        pulse.asked(at(1));
        pulse.turned(at(29));
        assert!(!pulse.is_stalled(at(31)));
        pulse.asked(at(30));
        assert!(pulse.is_stalled(at(32)), "asked again is not answered");
        pulse.answered();
        assert!(!pulse.is_stalled(at(59)));
        assert!(pulse.is_stalled(at(60)), "the loop stands still");
        pulse.turned(at(60));
        assert!(!pulse.is_stalled(at(61)));
    }
}
