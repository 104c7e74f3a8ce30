//! Flows that clean up after a cancel. See `flow.rs` in the crate `store`.

use std::sync::Arc;

use gristmill_model::{Positions, Report, WorkerId};
use gristmill_store::rules::ending::FailedAttempt;
use gristmill_store::rules::family::flow::{CancelMode, ending_in};

use crate::database::transaction::Transaction;
use crate::failure::Result;
use crate::graph::dependency::Ended;
use crate::limits::EXPIRED_SLICES_PER_TRANSACTION;
use crate::multirange::Multirange;

/// The flows of each of the batches `$1` that clean up and that the worker `$4` holds under a lease `$2` on an attempt `$3`.
const CLEANING: &str = "SELECT r.number, u.positions * h.positions \
     FROM unnest($1::bigint[], $2::bigint[], $3::integer[]) WITH ORDINALITY r (batch_id, lease_id, attempt, number) \
     JOIN gristmill.cleanup u ON u.batch_id = r.batch_id \
     JOIN gristmill.held h ON h.batch_id = r.batch_id AND h.lease_id = r.lease_id AND h.attempt = r.attempt AND h.worker_id = $4 \
     WHERE u.positions && h.positions";

impl Transaction {
    /// Ends flows that clean up as cancelled, where these reports would end them or begin them anew. Keeps the errors of those
    /// that failed. The reports then no longer hold them.
    pub async fn end_cleaned(
        &mut self,
        worker: WorkerId,
        worker_name: Option<&Arc<str>>,
        reports: &[&Report],
        ended: &mut Ended,
    ) -> Result<()> {
        let batches: Vec<i64> = reports.iter().map(|report| report.batch.0).collect();
        let leases: Vec<i64> = reports.iter().map(|report| report.lease.0).collect();
        let attempts: Vec<i32> = reports
            .iter()
            .map(|report| report.attempt.cast_signed())
            .collect();
        let rows = self
            .query(CLEANING, &[&batches, &leases, &attempts, &worker.0])
            .await?;
        let mut over = vec![Positions::new(); reports.len()];
        for row in &rows {
            let number = usize::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0);
            if let Some(over) = number.checked_sub(1).and_then(|place| over.get_mut(place)) {
                *over = over.union(&row.try_get::<_, Multirange>(1)?.0);
            }
        }
        for (report, cleaning) in reports.iter().zip(over) {
            let over = ending_in(report).intersection(&cleaning);
            if over.is_empty() {
                continue;
            }
            for failed in report
                .failed
                .iter()
                .filter(|failed| over.contains(failed.position))
            {
                let attempt = FailedAttempt {
                    duration_us: failed.duration_us,
                    worker: worker_name.map(|name| &**name),
                    ..FailedAttempt::unreported(
                        failed.position,
                        report.lease.0,
                        report.last_attempt(),
                        &failed.error,
                    )
                };
                self.writes.insert_failure(self.now, report.batch, &attempt)?;
            }
            let gone = self
                .cancel_trees(&[report.batch.0], &[Multirange(over)], CancelMode::AtOnce)
                .await?;
            ended.merge(gone);
        }
        Ok(())
    }

    /// Ends flows that have cleaned up for as long as they may. Returns how many.
    pub async fn end_late_cleanups(&mut self, ended: &mut Ended) -> Result<u64> {
        let rows = self
            .query(
                "SELECT u.batch_id, range_agg(r) FROM (SELECT * FROM gristmill.cleanup WHERE ends_at <= $1 \
                 ORDER BY ends_at LIMIT $2) u CROSS JOIN LATERAL unnest(u.positions) r GROUP BY u.batch_id ORDER BY u.batch_id",
                &[&self.now.0, &EXPIRED_SLICES_PER_TRANSACTION],
            )
            .await?;
        if rows.is_empty() {
            return Ok(0);
        }
        let (mut batches, mut positions) = (Vec::<i64>::new(), Vec::new());
        for row in &rows {
            batches.push(row.try_get(0)?);
            positions.push(row.try_get::<_, Multirange>(1)?);
        }
        let gone = self
            .cancel_trees(&batches, &positions, CancelMode::AtOnce)
            .await?;
        // What ended otherwise meanwhile, such as with its worker, has a time still.
        self.query("SELECT gristmill.end_cleanup($1, $2)", &[&batches, &positions])
            .await?;
        self.freed();
        let count = gone.count_in(&batches);
        ended.merge(gone);
        Ok(count)
    }
}
