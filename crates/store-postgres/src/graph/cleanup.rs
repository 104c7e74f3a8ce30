//! Instances that clean up after cancelled flows. See `flow.rs` in the crate `store`.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use gristmill_model::limits::CLEANUP_WAITS_MS_MAX;
use gristmill_model::{BatchId, Positions, Timestamp};
use gristmill_store::rules::family::flow::{BEGINNING, next_cleanup_look};
use gristmill_store::{BatchPositions, Change, CleanupBatch, DueCleanup, StoreError};

use crate::database::Database;
use crate::database::pools::Purpose;
use crate::database::snapshot::Snapshot;
use crate::database::transaction::{Durability, Transaction};
use crate::failure::Result;
use crate::graph::dependency::Ended;
use crate::limits::EXPIRED_SLICES_PER_TRANSACTION;
use crate::multirange::Multirange;

/// Cancelled flows for which nobody has begun the cleanup, the earliest first.
pub(crate) async fn cleanups_due(
    snapshot: &Snapshot,
    ran_before: Timestamp,
    rows_max: u32,
) -> Result<Vec<DueCleanup>> {
    let rows = snapshot
        .query(
            "SELECT batch_id, positions, within_ms FROM ( \
             (SELECT * FROM gristmill.cleanup WHERE NOT was_running AND begins_at IS NOT NULL ORDER BY begins_at, id LIMIT $2) \
             UNION ALL \
             (SELECT * FROM gristmill.cleanup WHERE was_running AND begins_at <= $1 ORDER BY begins_at, id LIMIT $2)) u \
             ORDER BY begins_at, id LIMIT $2",
            &[&ran_before.0, &i64::from(rows_max)],
        )
        .await?;
    let due = rows.iter().map(|row| {
        Ok(DueCleanup {
            flows: BatchPositions {
                batch: BatchId(row.try_get(0)?),
                positions: row.try_get::<_, Multirange>(1)?.0,
            },
            within_ms: row.try_get::<_, i64>(2)?.unsigned_abs(),
        })
    });
    due.collect()
}

impl Transaction {
    /// Begins to clean up after flows, unless another process has begun that for one of them.
    pub async fn begin_cleanups(
        &mut self,
        flows: &[BatchPositions],
        cleanup: Option<&CleanupBatch>,
    ) -> Result<bool> {
        let batches: Vec<i64> = flows.iter().map(|jobs| jobs.batch.0).collect();
        let positions = flows.iter().map(|jobs| Multirange(jobs.positions.clone()));
        let positions: Vec<Multirange> = positions.collect();
        let taken = self
            .query_opt(
                "SELECT gristmill.take_cleanups($1, $2, $3)",
                &[&batches, &positions, &cleanup.is_some()],
            )
            .await?;
        if !taken.map_or(Ok(false), |row| row.try_get(0))? {
            return Ok(false);
        }
        let Some(CleanupBatch { batch, within_ms }) = cleanup else {
            return Ok(true);
        };
        let all = Multirange(Positions::all(batch.payloads.count()));
        let within_ms = within_ms.cast_signed();
        let looked_at = next_cleanup_look(within_ms, self.now, self.now);
        let mut ended = Ended::default();
        for id in self.next_batch_ids(1).await? {
            self.submit_planned(id, batch, &mut ended).await?;
            self.execute(
                "INSERT INTO gristmill.cleanup (batch_id, positions, within_ms, ends_at) VALUES ($1, $2, $3, $4)",
                &[&id.0, &all, &within_ms, &looked_at.0],
            )
            .await?;
        }
        self.settle(ended).await?;
        Ok(true)
    }

    /// Cancels some instances that had cleaned up by `due_by` for as long as they may. Returns how many, and whether there may be more. The
    /// time of those that have begun since the last look begins; those that no worker begins wait on, up to a limit. It is a transaction
    /// of its own: a cancel locks other batches than an expiry.
    pub async fn end_late_cleanups(&mut self, due_by: Timestamp) -> Result<(u64, bool)> {
        // Paused instances have not begun, either.
        let rows = self
            .query(
                "SELECT u.id, u.batch_id, u.positions, u.within_ms, u.has_begun, b.submitted_at, coalesce(new.positions, '{}') FROM \
                 (SELECT * FROM gristmill.cleanup WHERE ends_at <= $1 ORDER BY ends_at, id LIMIT $2 FOR UPDATE SKIP LOCKED) u \
                 JOIN gristmill.batch b ON b.id = u.batch_id LEFT JOIN LATERAL (SELECT range_agg(r) AS positions FROM \
                 (SELECT s.positions FROM gristmill.slice s WHERE s.batch_id = u.batch_id AND s.family = $3 AND s.attempt = 1 UNION ALL \
                 SELECT w.positions FROM gristmill.blocked w WHERE w.batch_id = u.batch_id AND w.family = $3 AND w.attempt = 1) o \
                 CROSS JOIN LATERAL unnest(o.positions) r) new ON true",
                &[&due_by.0, &EXPIRED_SLICES_PER_TRANSACTION, &BEGINNING],
            )
            .await?;
        if rows.is_empty() {
            return Ok((0, false));
        }
        let mut looked_at = Vec::<i64>::new();
        let mut next = Instances::default();
        let mut late: BTreeMap<i64, Positions> = BTreeMap::new();
        for row in &rows {
            let batch: i64 = row.try_get(1)?;
            let positions = row.try_get::<_, Multirange>(2)?.0;
            let within_ms: i64 = row.try_get(3)?;
            let new = positions.intersection(&row.try_get::<_, Multirange>(6)?.0);
            let begun = positions.difference(&new);
            let end = late.entry(batch).or_default();
            looked_at.push(row.try_get(0)?);
            match row.try_get(4)? {
                true => *end = end.union(&begun),
                false => next.add(batch, begun, within_ms, self.now.plus_ms(within_ms), true),
            }
            let submitted_at = Timestamp(row.try_get(5)?);
            if self.now >= submitted_at.plus_ms(CLEANUP_WAITS_MS_MAX) {
                *end = end.union(&new);
            } else {
                let looked_at = next_cleanup_look(within_ms, submitted_at, self.now);
                next.add(batch, new, within_ms, looked_at, false);
            }
        }
        self.execute("DELETE FROM gristmill.cleanup WHERE id = ANY ($1)", &[&looked_at])
            .await?;
        self.execute(
            "INSERT INTO gristmill.cleanup (batch_id, positions, within_ms, ends_at, has_begun) \
             SELECT * FROM unnest($1::bigint[], $2::int4multirange[], $3::bigint[], $4::bigint[], $5::boolean[])",
            &[&next.batches, &next.positions, &next.within_ms, &next.ends_at, &next.has_begun],
        )
        .await?;
        late.retain(|_, positions| !positions.is_empty());
        let mut changed = 0;
        if !late.is_empty() {
            let batches: Vec<i64> = late.keys().copied().collect();
            let meant: Vec<Multirange> = late.into_values().map(Multirange).collect();
            let mut ended = Ended::default();
            changed = self
                .change_in(&Change::Cancel, &batches, &meant, &[], &mut ended)
                .await?;
            self.settle(ended).await?;
            self.freed();
        }
        Ok((changed, rows.len() as i64 == EXPIRED_SLICES_PER_TRANSACTION))
    }
}

/// Rows of instances that clean up.
#[derive(Debug, Default)]
struct Instances {
    batches: Vec<i64>,
    positions: Vec<Multirange>,
    within_ms: Vec<i64>,
    ends_at: Vec<i64>,
    has_begun: Vec<bool>,
}

impl Instances {
    fn add(&mut self, batch: i64, positions: Positions, within_ms: i64, ends_at: Timestamp, has_begun: bool) {
        if !positions.is_empty() {
            self.batches.push(batch);
            self.positions.push(Multirange(positions));
            self.within_ms.push(within_ms);
            self.ends_at.push(ends_at.0);
            self.has_begun.push(has_begun);
        }
    }
}

impl Database {
    /// Cancels the instances that have cleaned up for as long as they may, in portions. Returns how many.
    pub async fn end_late_cleanups(self: &Arc<Self>) -> std::result::Result<u64, StoreError> {
        let now = self.now();
        let mut more = self
            .read(|snapshot| async move { ends_one(&snapshot, now).await })
            .await?;
        let mut total = 0;
        while more {
            let ended = self
                .write(Purpose::Work, Durability::Promised, move |transaction| {
                    async move { transaction.end_late_cleanups(now).await }.boxed()
                })
                .await?;
            (total, more) = (total + ended.0, ended.1);
        }
        Ok(total)
    }
}

/// Reports whether an instance that cleans up is to be looked at, or cancelled.
async fn ends_one(snapshot: &Snapshot, now: Timestamp) -> Result<bool> {
    let row = snapshot
        .query_opt(
            "SELECT EXISTS (SELECT FROM gristmill.cleanup WHERE ends_at <= $1)",
            &[&now.0],
        )
        .await?;
    row.map_or(Ok(false), |row| Ok(row.try_get(0)?))
}
