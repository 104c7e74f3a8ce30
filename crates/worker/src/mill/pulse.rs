//! The signs of a worker's loop that work can be done.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_store::{NEWS, Want};

use crate::mill::idleness::Idleness;
use crate::sync::{Mutex, MutexGuard, lock};

/// How long a claim or a report may be unanswered, or the loop without a turn, before the heart stops beating. Longer than a
/// store waits for a lock, and than a server that is asked again and again needs to come back. With the usual lease, others run
/// the jobs of such a worker within 50 seconds.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(30);

/// What the loop shows and the heart feels.
#[derive(Debug, Clone)]
pub(crate) struct Pulse {
    /// How often the loop turns at least.
    pub every: Duration,
    signs: Arc<Mutex<Signs>>,
}

#[derive(Debug)]
struct Signs {
    turned_at: Instant,
    /// When the source was asked that has not answered since.
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

    /// The loop turns.
    pub fn turned(&self, now: Instant) {
        self.lock().turned_at = now;
    }

    /// The source is asked for jobs or given reports, perhaps again.
    pub fn asked(&self, now: Instant) {
        self.lock().asked_at.get_or_insert(now);
    }

    /// The source has answered, or nothing is asked of it any more.
    pub fn answered(&self) {
        self.lock().asked_at = None;
    }

    /// The worker runs something, or wants nothing.
    pub fn is_busy(&self) {
        self.lock().idleness = None;
    }

    /// The worker runs nothing, claims in vain what `want` says, and asks why after a while.
    pub fn is_idle(&self, now: Instant, after: Duration, want: impl FnOnce() -> Want) {
        let mut signs = self.lock();
        if signs.idleness.is_none() {
            signs.idleness = Some(Idleness::since(now, want(), after));
        }
    }

    /// What the worker wants in vain, where it is time to ask why.
    pub fn ask_why(&self, now: Instant) -> Option<Want> {
        self.lock().idleness.as_mut()?.ask(now)
    }

    /// Whether nothing can be done, for so long that others should do it. Says so when that begins and ends.
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
                    "a claim or report has not been answered for {} s: without heartbeats from here, others run this worker's jobs",
                    time.as_secs()
                ),
                (None, Some(time)) => tracing::warn!(
                    target: NEWS,
                    "the worker's loop has not turned for {} s: without heartbeats from here, others run its jobs",
                    time.as_secs()
                ),
                (None, None) => tracing::warn!(target: NEWS, "the worker goes on, and its heart beats again"),
            }
        }
        is_stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_turns_and_is_answered_beats() {
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
