//! Handles a clock that was set back: due jobs stay due.

use gristmill_model::Timestamp;

use crate::failure::Result;
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Makes all jobs due that were due when the clock showed `latest`, before it was set back.
    pub fn keep_due(&mut self, latest: Timestamp) -> Result<()> {
        let span = [self.now.0, latest.0];
        let slices = self.execute(
            "UPDATE slice SET run_at = ?1, strayed = 1 WHERE run_at > ?1 AND run_at <= ?2",
            span,
        )?;
        self.execute(
            "UPDATE held SET run_at = ?1 WHERE run_at > ?1 AND run_at <= ?2",
            span,
        )?;
        self.execute(
            "UPDATE blocked SET run_at = ?1 FROM batch b WHERE b.id = batch_id \
             AND coalesce(blocked.run_at, b.run_at) > ?1 AND coalesce(blocked.run_at, b.run_at) <= ?2",
            span,
        )?;
        self.memory.ranks.clear();
        self.woke = true;
        tracing::warn!(
            milliseconds = latest.since_ms(self.now),
            slices,
            "the clock was set back; jobs that were due stay due"
        );
        Ok(())
    }
}
