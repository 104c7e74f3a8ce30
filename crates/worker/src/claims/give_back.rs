//! The return of held jobs that cannot begin soon: another worker may be idle.

use std::time::Duration;

/// Waiting jobs go back to the source if all slots are busy and none of the jobs begins within this time.
const STALLED_AFTER: Duration = Duration::from_millis(200);

/// A worker that holds too many jobs for this long gives the surplus back.
const SURPLUS_AFTER: Duration = Duration::from_millis(100);

/// A worker holds too many jobs if it holds more than this many times the jobs that it ends soon.
const SURPLUS_FACTOR: u64 = 4;

/// The state of giving back. Its times count from a fixed moment.
#[derive(Debug, Default)]
pub(crate) struct GiveBack {
    gave_at: Duration,
    /// The start of the time during which the worker holds too many jobs.
    surplus_since: Option<Duration>,
}

impl GiveBack {
    /// Notes that jobs went to a runner or back to the source.
    pub fn gave(&mut self, now: Duration) {
        self.gave_at = now;
    }

    /// Notes that no job waits, or that a slot is free.
    pub fn nothing_waits(&mut self) {
        self.surplus_since = None;
    }

    /// Reports whether all waiting jobs should go back. All slots are busy.
    pub fn is_stalled(&self, now: Duration) -> bool {
        now >= self.stalled_at()
    }

    /// The time at which waiting jobs go back, unless some of them begin earlier.
    pub fn stalled_at(&self) -> Duration {
        self.gave_at + STALLED_AFTER
    }

    /// The number of jobs to give back. `waiting` jobs wait, and the worker ends `fitting` jobs soon; `None` if its
    /// rate is unknown.
    pub fn surplus(&mut self, waiting: u64, fitting: Option<u64>, now: Duration) -> u64 {
        let Some(fitting) = fitting.filter(|fitting| waiting > fitting.saturating_mul(SURPLUS_FACTOR)) else {
            self.surplus_since = None;
            return 0;
        };
        if now < *self.surplus_since.get_or_insert(now) + SURPLUS_AFTER {
            return 0;
        }
        self.surplus_since = None;
        assert!(
            fitting < waiting,
            "a surplus of {waiting} waiting jobs leaves {fitting} of them"
        );
        waiting - fitting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn jobs_that_do_not_begin_in_time_go_back() {
        let mut give_back = GiveBack::default();
        give_back.gave(at(1_000));
        assert!(!give_back.is_stalled(at(1_199)));
        assert!(give_back.is_stalled(at(1_200)));
    }

    #[test]
    fn a_lasting_surplus_goes_back() {
        let mut give_back = GiveBack::default();
        assert_eq!(give_back.surplus(401, Some(100), at(0)), 0);
        assert_eq!(give_back.surplus(401, Some(100), at(99)), 0);
        assert_eq!(give_back.surplus(401, Some(100), at(100)), 301);
        assert_eq!(give_back.surplus(401, Some(100), at(101)), 0, "it starts anew");
        assert_eq!(give_back.surplus(400, Some(100), at(150)), 0);
        assert_eq!(
            give_back.surplus(401, Some(100), at(201)),
            0,
            "it ended meanwhile"
        );
        assert_eq!(give_back.surplus(401, None, at(500)), 0, "the rate is not known");
        assert_eq!(give_back.surplus(401, Some(100), at(600)), 0);
        give_back.nothing_waits();
        assert_eq!(give_back.surplus(401, Some(100), at(700)), 0, "there was none");
    }
}
