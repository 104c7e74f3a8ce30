//! The database's clock.

use std::sync::atomic::{AtomicI64, Ordering};

use deadpool_postgres::ClientWrapper;
use gristmill_model::{Clock, SystemClock, Timestamp};

use crate::failure::Result;

/// The database's clock: this machine's, set right by how far it was off when it was compared last.
#[derive(Debug, Default)]
pub(crate) struct DatabaseClock {
    ahead_ms: AtomicI64,
}

impl DatabaseClock {
    /// Compares the clocks: the server looked at its own in the middle of the trip, within half of what that took.
    pub async fn compare(&self, client: &ClientWrapper) -> Result<()> {
        let before = SystemClock.now();
        let row = client
            .query_one(
                "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint",
                &[],
            )
            .await?;
        let after = SystemClock.now();
        let theirs = Timestamp(row.try_get(0)?);
        let ours = before.plus_ms(after.since_ms(before) / 2);
        self.ahead_ms.store(theirs.since_ms(ours), Ordering::Relaxed);
        Ok(())
    }
}

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        SystemClock.now().plus_ms(self.ahead_ms.load(Ordering::Relaxed))
    }
}
