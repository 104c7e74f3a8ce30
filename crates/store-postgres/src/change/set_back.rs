//! Handles a clock that was set back: due jobs stay due.

use gristmill_model::Timestamp;

use crate::database::transaction::Transaction;
use crate::failure::Result;

/// The statements, in the order in which rows are locked.
const KEEP_DUE: [&str; 3] = [
    "UPDATE gristmill.slice s SET run_at = $1 FROM (SELECT batch_id, id FROM gristmill.slice \
     WHERE run_at > $1 AND run_at <= $2 ORDER BY batch_id, id FOR UPDATE) due \
     WHERE (s.batch_id, s.id) = (due.batch_id, due.id)",
    "UPDATE gristmill.held h SET run_at = $1 FROM (SELECT lease_id, batch_id, attempt, first_position FROM gristmill.held \
     WHERE run_at > $1 AND run_at <= $2 ORDER BY batch_id, lease_id, attempt, first_position FOR UPDATE) due \
     WHERE (h.lease_id, h.batch_id, h.attempt, h.first_position) \
     = (due.lease_id, due.batch_id, due.attempt, due.first_position)",
    "UPDATE gristmill.blocked w SET run_at = $1 FROM (SELECT w.batch_id, w.part FROM gristmill.blocked w \
     JOIN gristmill.batch b ON b.id = w.batch_id WHERE coalesce(w.run_at, b.run_at) > $1 \
     AND coalesce(w.run_at, b.run_at) <= $2 ORDER BY w.batch_id, w.part FOR UPDATE OF w) due \
     WHERE (w.batch_id, w.part) = (due.batch_id, due.part)",
];

impl Transaction {
    /// Makes all jobs due that were due when the clock showed `latest`, before it was set back.
    pub async fn keep_due(&mut self, latest: Timestamp) -> Result<()> {
        for sql in KEEP_DUE {
            self.execute(sql, &[&self.now.0, &latest.0]).await?;
        }
        self.writes.news.woke = true;
        tracing::warn!(
            milliseconds = latest.since_ms(self.now),
            "the clock was set back; jobs that were due stay due"
        );
        Ok(())
    }
}
