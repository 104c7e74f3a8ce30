//! Clocks that are set back: what has been due stays due.
//!
//! A job that is to run at once can be claimed from the moment of its submit or retry on, by the store's clock. Where that
//! clock was fast and is set right, this moment would be in the future again. So a store that finds its clock set back makes
//! all jobs due that were due before.

use gristmill_model::Timestamp;

/// A clock that is set back by less does not count as set back: a job waits so long at most. Milliseconds.
pub const SET_BACK_MS_MIN: i64 = 1_000;

/// Whether a clock that has shown `latest` and shows `now` has been set back.
pub fn is_set_back(latest: Timestamp, now: Timestamp) -> bool {
    latest.since_ms(now) >= SET_BACK_MS_MIN
}
