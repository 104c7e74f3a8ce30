//! Deletes whole batches that have ended.

use std::sync::Arc;

use futures::FutureExt;
use gristmill_model::BatchId;
use gristmill_store::{PruneOptions, Pruned, StoreError};
use tokio_postgres::Row;

use crate::database::Database;
use crate::database::columns::{number, sum};
use crate::database::pools::Purpose;
use crate::database::snapshot::Snapshot;
use crate::database::transaction::{Durability, Transaction};
use crate::failure::Result;
use crate::limits::{DELETED_LANES_PER_TRANSACTION, LANE_LOCKS_WAIT_MS, PRUNED_BATCHES_PER_TRANSACTION};

/// Ended batches from `$1` on: their ids, their numbers of jobs, when they ended, and whether they have dead jobs. It
/// omits batches of an unfinished run, whose output is not written yet, and children of open batches, because their
/// parents still read them. So does a cleanup after a cancelled flow that has not begun.
const ENDED: &str = "SELECT b.id, b.count, e.ended_at, e.has_dead FROM gristmill.batch b CROSS JOIN LATERAL \
     (SELECT max(r.finished_at) AS ended_at, bool_or(r.state = 'dead') AS has_dead, sum(r.count) AS jobs \
     FROM gristmill.report r WHERE r.batch_id = b.id) e \
     WHERE b.id >= $1 AND e.jobs = b.count AND (b.run_id IS NULL OR NOT EXISTS \
     (SELECT FROM gristmill.run WHERE run.id = b.run_id AND run.state <> 'finished')) \
     AND NOT EXISTS (SELECT FROM gristmill.child_batch c WHERE c.batch_id = b.id AND ( \
     EXISTS (SELECT FROM gristmill.slice s WHERE s.batch_id = c.parent_id) \
     OR EXISTS (SELECT FROM gristmill.held h WHERE h.batch_id = c.parent_id) \
     OR EXISTS (SELECT FROM gristmill.blocked w WHERE w.batch_id = c.parent_id) \
     OR EXISTS (SELECT FROM gristmill.cleanup u WHERE u.batch_id = c.parent_id AND u.begins_at IS NOT NULL))) \
     AND NOT EXISTS (SELECT FROM gristmill.cleanup u WHERE u.batch_id = b.id AND u.begins_at IS NOT NULL)";

/// Finds the batches that a prune deletes, one portion at a time.
#[derive(Debug, Clone, Copy)]
struct Pruning {
    options: PruneOptions,
    /// The oldest batch that is kept because it is among the latest: when it ended, and its id.
    keep_from: Option<(i64, i64)>,
}

impl Pruning {
    async fn new(snapshot: &Snapshot, options: PruneOptions) -> Result<Self> {
        let mut pruning = Pruning {
            options,
            keep_from: None,
        };
        if options.keep_batches > 0 {
            let sql = format!(
                "SELECT ended_at, id FROM ({ENDED}) ended ORDER BY ended_at DESC, id DESC OFFSET $2 LIMIT 1"
            );
            let skipped = i64::from(options.keep_batches) - 1;
            let oldest = snapshot.query_opt(&sql, &[&0_i64, &skipped]).await?;
            // If there are fewer, all of them are kept.
            pruning.keep_from = match oldest {
                Some(row) => Some((row.try_get(0)?, row.try_get(1)?)),
                None => Some((i64::MIN, i64::MIN)),
            };
        }
        Ok(pruning)
    }

    /// The next batches to delete after `after`, with their numbers of jobs, by id ascending.
    async fn next(&self, snapshot: &Snapshot, after: BatchId) -> Result<Vec<(BatchId, u64)>> {
        let (keep_at, keep_id) = self.keep_from.unwrap_or((i64::MAX, i64::MAX));
        let sql = format!(
            "SELECT id, count FROM ({ENDED}) ended WHERE ended_at < $2 AND ($3 OR NOT has_dead) \
             AND (ended_at, id) < ($4, $5) ORDER BY id LIMIT $6"
        );
        let rows = snapshot
            .query(
                &sql,
                &[
                    &(after.0 + 1),
                    &self.options.finished_before.0,
                    &self.options.dead_too,
                    &keep_at,
                    &keep_id,
                    &PRUNED_BATCHES_PER_TRANSACTION,
                ],
            )
            .await?;
        rows.iter()
            .map(|row| Ok((BatchId(row.try_get(0)?), u64::from(number(row, 1)?))))
            .collect()
    }
}

/// Selects lanes without batches and without keys. It omits the last lane, because its id must not be given again.
macro_rules! without_jobs {
    ($lanes:literal) => {
        concat!(
            "SELECT l.id FROM gristmill.lane l WHERE ", $lanes, " AND l.id < (SELECT max(id) FROM gristmill.lane) \
             AND NOT EXISTS (SELECT FROM gristmill.batch b WHERE b.lane_id = l.id) \
             AND NOT EXISTS (SELECT FROM gristmill.keyed k WHERE k.scope / 2 = l.id) \
             AND NOT EXISTS (SELECT FROM gristmill.job_key k WHERE k.scope BETWEEN l.id * 2 AND l.id * 2 + 1)"
        )
    };
}

/// Retires lanes without jobs, up to `$1` of them.
const RETIRE: &str = concat!(
    "UPDATE gristmill.lane SET retired = true WHERE id = ANY (ARRAY(",
    without_jobs!("NOT l.retired"),
    " ORDER BY l.id LIMIT $1 FOR UPDATE SKIP LOCKED))"
);

/// The retired lanes `$1` that can be deleted.
const DELETABLE: &str = without_jobs!("l.retired AND l.id = ANY ($1)");

impl Database {
    /// Prunes one portion of batches after the other.
    pub async fn prune_in_portions(
        self: &Arc<Self>,
        options: PruneOptions,
    ) -> std::result::Result<Pruned, StoreError> {
        let pruning = self
            .read(|snapshot| async move { Pruning::new(&snapshot, options).await })
            .await?;
        let mut total = Pruned::default();
        let mut after = BatchId(0);
        loop {
            let batches = self
                .read(|snapshot| async move { pruning.next(&snapshot, after).await })
                .await?;
            let Some((last, _)) = batches.last() else {
                if !options.dry_run {
                    self.delete_empty_lanes().await?;
                }
                return Ok(total);
            };
            after = *last;
            let pruned = if options.dry_run {
                Pruned {
                    batches: batches.len() as u64,
                    jobs: batches.iter().map(|(_, jobs)| jobs).sum(),
                }
            } else {
                let batches = Arc::new(batches);
                self.write(Purpose::Work, Durability::Promised, move |transaction| {
                    let batches = batches.clone();
                    async move { transaction.prune(&batches).await }.boxed()
                })
                .await?
            };
            total.batches += pruned.batches;
            total.jobs += pruned.jobs;
        }
    }

    /// Deletes the lanes without jobs and keys, in portions. If others hold locks, the rest stays for the next time.
    ///
    /// It first retires a lane, in a transaction of its own. Then it waits for a moment without a transaction that
    /// stores batches: every transaction that had not seen the retired lane has then ended. So it can count the lane's
    /// batches, and no more come.
    pub async fn delete_empty_lanes(self: &Arc<Self>) -> std::result::Result<(), StoreError> {
        loop {
            let deleted = self.delete_some_lanes().await;
            match deleted {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error @ StoreError::Locked { .. }) => {
                    tracing::debug!(%error, "names of kinds, queues and groups without jobs are left for the next prune");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes a portion of the lanes without jobs, and returns their number.
    async fn delete_some_lanes(self: &Arc<Self>) -> std::result::Result<u64, StoreError> {
        let retired = self
            .write(Purpose::Change, Durability::Promised, |transaction| {
                async move { transaction.retire_lanes().await }.boxed()
            })
            .await?;
        if !retired {
            return Ok(0);
        }
        self.write(Purpose::Change, Durability::Needless, |transaction| {
            async move { transaction.await_submits().await }.boxed()
        })
        .await?;
        let deleted = self
            .write(Purpose::Change, Durability::Promised, |transaction| {
                async move { transaction.delete_retired_lanes().await }.boxed()
            })
            .await?;
        self.recheck_lanes().await?;
        Ok(deleted)
    }
}

impl Transaction {
    /// Retires a portion of the lanes without jobs. Reports whether there are retired lanes, including earlier ones.
    async fn retire_lanes(&mut self) -> Result<bool> {
        self.wait_for_locks(LANE_LOCKS_WAIT_MS).await?;
        self.execute(RETIRE, &[&DELETED_LANES_PER_TRANSACTION]).await?;
        let any = self
            .query_opt("SELECT EXISTS (SELECT FROM gristmill.lane WHERE retired)", &[])
            .await?;
        Ok(any.map_or(Ok(false), |row| row.try_get(0))?)
    }

    /// Waits until all transactions that have stored batches by now have ended. Later ones wait behind this lock.
    async fn await_submits(&mut self) -> Result<()> {
        self.wait_for_locks(LANE_LOCKS_WAIT_MS).await?;
        self.execute("LOCK TABLE gristmill.batch IN SHARE ROW EXCLUSIVE MODE", &[])
            .await?;
        Ok(())
    }

    async fn wait_for_locks(&self, at_most_ms: u32) -> Result<()> {
        let at_most_ms = at_most_ms.to_string();
        self.query("SELECT set_config('lock_timeout', $1, true)", &[&at_most_ms])
            .await?;
        Ok(())
    }

    /// Deletes a portion of the retired lanes. A retired lane that has jobs after all becomes a normal one. The counts
    /// of ended jobs go to other lanes of the same queue and kind, if there are some.
    async fn delete_retired_lanes(&mut self) -> Result<u64> {
        self.wait_for_locks(LANE_LOCKS_WAIT_MS).await?;
        let ids = |rows: Vec<Row>| {
            rows.iter()
                .map(|row| row.try_get(0))
                .collect::<std::result::Result<Vec<i32>, _>>()
        };
        let locked = self
            .query(
                "SELECT id FROM gristmill.lane WHERE retired ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED",
                &[&DELETED_LANES_PER_TRANSACTION],
            )
            .await?;
        let locked = ids(locked)?;
        // A separate statement sees everything that was committed before the locks were taken.
        let deleted = ids(self.query(DELETABLE, &[&locked]).await?)?;
        self.execute(
            "UPDATE gristmill.lane SET retired = false WHERE id = ANY ($1) AND NOT id = ANY ($2)",
            &[&locked, &deleted],
        )
        .await?;
        self.hand_on_ended(&deleted).await?;
        self.execute("DELETE FROM gristmill.lane WHERE id = ANY ($1)", &[&deleted])
            .await
    }

    /// Deletes those of the batches that are still ended. A batch that another transaction is changing stays for the
    /// next time.
    async fn prune(&mut self, batches: &[(BatchId, u64)]) -> Result<Pruned> {
        let ids: Vec<i64> = batches.iter().map(|(batch, _)| batch.0).collect();
        let locked = self
            .query(
                "SELECT id FROM gristmill.batch WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED",
                &[&ids],
            )
            .await?;
        let locked: Vec<i64> = locked
            .iter()
            .map(|row| row.try_get(0))
            .collect::<std::result::Result<_, _>>()?;
        // A separate statement sees everything that was committed before the locks were taken.
        let ended = self
            .query(
                "SELECT b.id FROM gristmill.batch b WHERE b.id = ANY ($1) \
                 AND NOT EXISTS (SELECT FROM gristmill.slice s WHERE s.batch_id = b.id) \
                 AND NOT EXISTS (SELECT FROM gristmill.held h WHERE h.batch_id = b.id) \
                 AND NOT EXISTS (SELECT FROM gristmill.blocked w WHERE w.batch_id = b.id)",
                &[&locked],
            )
            .await?;
        let ended: Vec<i64> = ended
            .iter()
            .map(|row| row.try_get(0))
            .collect::<std::result::Result<_, _>>()?;
        self.delete_batches(&ended).await
    }

    /// Deletes batches with the rows of their ended jobs.
    pub async fn delete_batches(&mut self, batches: &[i64]) -> Result<Pruned> {
        for table in [
            "edge",
            "report",
            "failure",
            "keyed",
            "tag",
            "debounced",
            "suspension",
            "kept_event",
            "returned_event",
            "cleanup",
            "child_batch",
            "step_batch",
        ] {
            let sql = format!("DELETE FROM gristmill.{table} WHERE batch_id = ANY ($1)");
            self.execute(&sql, &[&batches]).await?;
        }
        let deleted = self
            .query_opt(
                "WITH deleted AS (DELETE FROM gristmill.batch WHERE id = ANY ($1) RETURNING count) \
                 SELECT count(*), coalesce(sum(count), 0) FROM deleted",
                &[&batches],
            )
            .await?;
        match deleted {
            Some(row) => Ok(Pruned {
                batches: sum(&row, 0)?,
                jobs: sum(&row, 1)?,
            }),
            None => Ok(Pruned::default()),
        }
    }
}
