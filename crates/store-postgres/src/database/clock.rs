//! The database's clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use gristmill_model::{Clock, SystemClock, Timestamp};

use crate::failure::Result;

/// Asks for the time of the database's clock. Milliseconds.
pub(crate) const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// The database's clock: its last known time plus the time since, by this machine's monotonic clock. A wall clock that
/// is set forward would make all workers look silent. The monotonic clock stands still while the machine is suspended,
/// so the store asks the database again and again.
#[derive(Debug)]
pub(crate) struct DatabaseClock {
    since: Instant,
    /// The time of the database's clock at `began`.
    began_ms: AtomicI64,
}

impl Default for DatabaseClock {
    /// A clock that follows this machine until it is compared.
    fn default() -> Self {
        DatabaseClock {
            since: Instant::now(),
            began_ms: AtomicI64::new(SystemClock.now().0),
        }
    }
}

impl DatabaseClock {
    /// Compares the clocks by an answer to [`NOW`]: the server read its own clock in the middle of the round trip, give
    /// or take half of its duration.
    pub async fn compare(&self, answer: impl Future<Output = Result<i64>>) -> Result<()> {
        let before_ms = self.passed_ms();
        let theirs_ms = answer.await?;
        let middle_ms = before_ms.midpoint(self.passed_ms());
        self.began_ms
            .store(theirs_ms.saturating_sub(middle_ms), Ordering::Relaxed);
        Ok(())
    }

    fn passed_ms(&self) -> i64 {
        i64::try_from(self.since.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.began_ms.load(Ordering::Relaxed)).plus_ms(self.passed_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the wall clock of this machine shows.
    #[test]
    fn time_passes_from_what_the_database_showed() {
        const DAY_MS: i64 = 86_400_000;
        let clock = DatabaseClock {
            since: Instant::now(),
            began_ms: AtomicI64::new(5),
        };
        let first = clock.now();
        assert!((5..DAY_MS).contains(&first.0), "{first}");
        assert!(clock.now() >= first);
    }
}
