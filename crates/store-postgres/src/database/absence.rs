//! Tracks whether the database is unreachable, and logs that: after a moment, then once a minute, and when it is back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gristmill_store::NEWS;
use tokio::time::Instant;

use crate::limits::{AWAY_TOLD_AFTER, AWAY_TOLD_EVERY};

/// Tracks whether the database of a handle is unreachable.
#[derive(Debug, Default)]
pub(crate) struct Absence {
    is_away: AtomicBool,
    away: Mutex<Option<Away>>,
}

/// When the absence began, and when it was last logged.
#[derive(Debug, Clone, Copy)]
struct Away {
    since: Instant,
    told_at: Option<Instant>,
}

impl Absence {
    fn lock(&self) -> MutexGuard<'_, Option<Away>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a failed attempt to reach the database.
    pub fn note(&self, database: &str, reason: &str, now: Instant) {
        // Messages are logged under the lock, so that they come in the order of the events.
        let mut away = self.lock();
        if let Some(lasts_s) = self.news(&mut away, now) {
            tracing::warn!(target: NEWS, "{database} has not answered for {lasts_s} s: {reason}; trying on");
        }
    }

    /// How long the database has been unreachable, if that is to be logged now. Seconds.
    fn news(&self, away: &mut Option<Away>, now: Instant) -> Option<u64> {
        self.is_away.store(true, Ordering::Release);
        let away = away.get_or_insert(Away {
            since: now,
            told_at: None,
        });
        let is_due = match away.told_at {
            None => now.duration_since(away.since) >= AWAY_TOLD_AFTER,
            Some(told_at) => now.duration_since(told_at) >= AWAY_TOLD_EVERY,
        };
        is_due.then(|| {
            away.told_at = Some(now);
            now.duration_since(away.since).as_secs()
        })
    }

    /// Records that the database has answered.
    pub fn end(&self, database: &str, now: Instant) {
        if !self.is_away.load(Ordering::Acquire) {
            return;
        }
        let mut away = self.lock();
        self.is_away.store(false, Ordering::Release);
        if let Some(away) = away.take().filter(|away| away.told_at.is_some()) {
            let lasted_s = now.duration_since(away.since).as_secs();
            tracing::warn!(target: NEWS, "{database} answers again, after {lasted_s} s");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_absence_is_told_after_a_moment_and_once_a_minute() {
        let began = Instant::now();
        let absence = Absence::default();
        let told: Vec<u64> = (0..=130)
            .filter_map(|second| absence.news(&mut absence.lock(), began + Duration::from_secs(second)))
            .collect();
        assert_eq!(told, [5, 65, 125]);
        absence.end("it", began + Duration::from_secs(131));
        assert_eq!(
            absence.news(&mut absence.lock(), began + Duration::from_secs(140)),
            None,
            "a new absence begins"
        );
    }
}
