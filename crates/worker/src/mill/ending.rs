//! The end of a worker that was asked to stop. It comes, whatever the jobs and the source do.

use std::time::{Duration, Instant};

use super::Mill;
use crate::source::{SourceError, SourceErrorKind};

/// The time for which a stopping worker tries to report outcomes to a source that does not answer. It is longer than
/// most restarts of a database. It is shorter than the patience of supervisors: 30 s in Kubernetes, 90 s in systemd.
pub(crate) const LAST_REPORTS_MAX: Duration = Duration::from_secs(20);

/// The same time if `grace` has already passed. The jobs that could end have ended by then.
pub(crate) const LAST_REPORTS_AFTER_GRACE_MAX: Duration = Duration::from_secs(3);

/// The state of the end of a worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    since: Instant,
    /// The last time at which a job ended or the source answered.
    moved_at: Instant,
    /// The time at which the running jobs were released.
    released_at: Option<Instant>,
}

impl Ending {
    pub fn begun(now: Instant) -> Ending {
        Ending {
            since: now,
            moved_at: now,
            released_at: None,
        }
    }
}

impl Mill {
    /// Notes that a job ended or the source answered.
    pub(super) fn note_movement(&mut self) {
        if let Some(ending) = &mut self.ending {
            ending.moved_at = Instant::now();
        }
    }

    /// The next time at which [`come_to_an_end`](Mill::come_to_an_end) acts.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        let ending = self.ending?;
        let grace_ends = self.settings.grace.map(|grace| ending.since + grace);
        match (ending.released_at, self.deliveries.is_empty()) {
            (Some(released_at), _) => Some(released_at + LAST_REPORTS_AFTER_GRACE_MAX),
            (None, false) => grace_ends,
            (None, true) => {
                let most = ending.moved_at + LAST_REPORTS_MAX;
                Some(grace_ends.map_or(most, |ends| ends.min(most)))
            }
        }
    }

    /// Releases running jobs after their grace period, and gives up a source that does not answer.
    pub(super) fn come_to_an_end(&mut self) {
        let now = Instant::now();
        if self.ends_at().is_none_or(|at| at > now) {
            return;
        }
        let is_running = !self.deliveries.is_empty();
        if let Some(ending) = self
            .ending
            .as_mut()
            .filter(|ending| is_running && ending.released_at.is_none())
        {
            ending.released_at = Some(now);
            tracing::info!(
                deliveries = self.deliveries.len(),
                "the running jobs are released, because the grace period of the stopping worker is over"
            );
            for delivery in self.deliveries.values() {
                delivery.release();
            }
            return;
        }
        self.deliveries.clear();
        self.fatal.get_or_insert_with(|| SourceError {
            message: "the worker stopped before its last outcomes were reported, because their receiver does not answer; \
             these jobs run again"
                .to_owned(),
            kind: SourceErrorKind::Transient,
        });
    }
}
