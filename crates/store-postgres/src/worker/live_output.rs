//! Followers of live output, and the latest output of running jobs.

use std::sync::Arc;

use gristmill_model::limits::{FOLLOWED_FOR_MS, LIVE_OUTPUT_KEPT_MS, LIVE_OUTPUT_ROWS_MAX};
use gristmill_model::{BatchId, Followed, JobId, KeptOutput, Printed, Timestamp, WorkerId};
use gristmill_store::live_output::{HeldJobs, OutputPage, batches_of, only_held};

use crate::database::snapshot::Snapshot;
use crate::database::transaction::Transaction;
use crate::failure::{Failure, Result};
use crate::multirange::Multirange;

const PUT: &str = "INSERT INTO gristmill.live_output (at, batch_id, position, kind, attempt, start, text) \
     SELECT $1, * FROM unnest($2::bigint[], $3::integer[], $4::text[], $5::integer[], $6::bigint[], $7::text[]) \
     WHERE EXISTS (SELECT FROM gristmill.following)";

const HELD: &str = "SELECT h.batch_id, l.kind, h.positions FROM gristmill.held h \
     JOIN gristmill.batch b ON b.id = h.batch_id JOIN gristmill.lane l ON l.id = b.lane_id \
     WHERE h.worker_id = $1 AND h.batch_id = ANY ($2)";

const FORGET: &str = "DELETE FROM gristmill.live_output WHERE at < $1 OR NOT EXISTS (SELECT FROM gristmill.following) \
     OR id <= (SELECT max(id) FROM gristmill.live_output) - $2";

const READ: &str = "SELECT id, at, batch_id, position, kind, attempt, start, text FROM gristmill.live_output \
     WHERE id > $1 ORDER BY id LIMIT $2";

impl Transaction {
    /// Begins to keep output for a follower.
    pub async fn follow(&self, follower: &str, packed: &str) -> Result<()> {
        self.execute(
            "INSERT INTO gristmill.following (id, until, followed) VALUES ($1, $2, $3) \
             ON CONFLICT (id) DO UPDATE SET until = excluded.until, followed = excluded.followed",
            &[&follower, &self.now.0.saturating_add(FOLLOWED_FOR_MS), &packed],
        )
        .await?;
        Ok(())
    }

    pub async fn unfollow(&self, follower: &str) -> Result<()> {
        self.execute("DELETE FROM gristmill.following WHERE id = $1", &[&follower])
            .await?;
        self.forget_output().await
    }

    /// Keeps output of jobs that a worker holds, and returns the jobs that it does not hold.
    pub async fn put_output(&self, worker: WorkerId, printed: &[Printed]) -> Result<Vec<JobId>> {
        self.forget_output().await?;
        let held = self.held_of_printed(worker, printed).await?;
        let (printed, refused) = only_held(&held, printed);
        if printed.is_empty() {
            return Ok(refused);
        }
        let batches: Vec<i64> = printed.iter().map(|piece| piece.job.batch.0).collect();
        let positions: Vec<i32> = printed
            .iter()
            .map(|piece| i32::try_from(piece.job.position).unwrap_or(i32::MAX))
            .collect();
        let kinds: Vec<&str> = printed.iter().map(|piece| &*piece.kind).collect();
        let attempts: Vec<i32> = printed
            .iter()
            .map(|piece| i32::try_from(piece.attempt).unwrap_or(i32::MAX))
            .collect();
        let starts: Vec<i64> = printed
            .iter()
            .map(|piece| i64::try_from(piece.offset).unwrap_or(i64::MAX))
            .collect();
        let texts: Vec<&str> = printed.iter().map(|piece| piece.text.as_str()).collect();
        self.execute(
            PUT,
            &[
                &self.now.0,
                &batches,
                &positions,
                &kinds,
                &attempts,
                &starts,
                &texts,
            ],
        )
        .await?;
        Ok(refused)
    }

    /// The jobs that a worker holds of the batches in the output.
    async fn held_of_printed(&self, worker: WorkerId, printed: &[Printed]) -> Result<Vec<HeldJobs>> {
        let rows = self.query(HELD, &[&worker.0, &batches_of(printed)]).await?;
        rows.iter()
            .map(|row| {
                Ok(HeldJobs {
                    batch: BatchId(row.try_get(0)?),
                    kind: Arc::from(row.try_get::<_, String>(1)?),
                    positions: row.try_get::<_, Multirange>(2)?.0,
                })
            })
            .collect()
    }

    /// Deletes output that is old, too much, or without followers.
    pub async fn forget_output(&self) -> Result<()> {
        self.execute(
            "DELETE FROM gristmill.following WHERE until <= $1",
            &[&self.now.0],
        )
        .await?;
        let kept_after = self.now.0.saturating_sub(LIVE_OUTPUT_KEPT_MS);
        self.execute(FORGET, &[&kept_after, &LIVE_OUTPUT_ROWS_MAX])
            .await?;
        Ok(())
    }
}

/// Pieces of output after a place.
pub(crate) async fn live_output(
    snapshot: &Snapshot,
    followed: &[Followed],
    after: i64,
) -> Result<OutputPage> {
    let mut page = OutputPage::after(after);
    for row in snapshot.query(READ, &[&after, &LIVE_OUTPUT_ROWS_MAX]).await? {
        let number = |column: usize| -> Result<u32> {
            let number: i32 = row.try_get(column)?;
            u32::try_from(number).map_err(|_| Failure::Damaged(format!("output has the number {number}")))
        };
        let kind: String = row.try_get(4)?;
        let piece = KeptOutput {
            id: row.try_get(0)?,
            at: Timestamp(row.try_get(1)?),
            printed: Printed {
                job: JobId {
                    batch: BatchId(row.try_get(2)?),
                    position: number(3)?,
                },
                kind: Arc::from(kind),
                attempt: number(5)?,
                offset: row.try_get::<_, i64>(6)?.unsigned_abs(),
                text: row.try_get(7)?,
            },
        };
        page.add(piece, followed);
    }
    Ok(page)
}
