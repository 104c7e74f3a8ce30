//! Deletes whole batches that have ended.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet};

use gristmill_model::BatchId;
use gristmill_store::metrics::EndedJobs;
use gristmill_store::{PruneOptions, Pruned, StoreError};
use rusqlite::Connection;

use crate::SqliteStore;
use crate::columns::{POSITION_BITS, report_id};
use crate::failure::Result;
use crate::limits::{DELETED_LANES_PER_TRANSACTION, PRUNED_BATCHES_PER_TRANSACTION};
use crate::transaction::Transaction;

/// Ended batches after `?1`, by id: when they ended, whether they have dead jobs, and their numbers of jobs. It omits
/// batches of an unfinished run, whose output is not written yet, and children of open batches, because their parents
/// still read them. So does a cleanup after a cancelled flow that has not begun.
const ENDED: &str = "SELECT b.id, max(r.finished_at), max(r.state = 'dead'), b.count \
     FROM batch b CROSS JOIN report r ON r.id BETWEEN b.id << 14 AND (b.id << 14) + 16383 \
     WHERE b.id > ?1 AND (b.run_id IS NULL OR NOT EXISTS \
     (SELECT 1 FROM run WHERE run.id = b.run_id AND run.state <> 'finished')) \
     AND NOT EXISTS (SELECT 1 FROM child_batch c JOIN batch p ON p.id = c.parent_id WHERE c.batch_id = b.id AND p.count > \
     (SELECT coalesce(sum(o.count), 0) FROM report o WHERE o.id BETWEEN p.id << 14 AND (p.id << 14) + 16383)) \
     AND NOT EXISTS (SELECT 1 FROM cleanup u WHERE u.batch_id = b.id AND u.begins_at IS NOT NULL) \
     AND NOT EXISTS (SELECT 1 FROM child_batch c JOIN cleanup u ON u.batch_id = c.parent_id AND u.begins_at IS NOT NULL \
     WHERE c.batch_id = b.id) \
     GROUP BY b.id HAVING sum(r.count) = b.count";
const _: () = assert!(POSITION_BITS == 14);

/// When a batch ended, and its id: the order of age.
type EndedAt = (i64, i64);

/// Finds the batches that a prune deletes, one portion at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pruning {
    options: PruneOptions,
    /// The oldest batch that is kept because it is among the latest.
    keep_from: Option<EndedAt>,
}

impl Pruning {
    pub fn new(connection: &Connection, options: PruneOptions) -> Result<Self> {
        let keep = options.keep_batches as usize;
        let mut latest: BinaryHeap<Reverse<EndedAt>> = BinaryHeap::new();
        if keep > 0 {
            let mut statement = connection.prepare_cached(ENDED)?;
            let mut rows = statement.query([0])?;
            while let Some(row) = rows.next()? {
                latest.push(Reverse((row.get(1)?, row.get(0)?)));
                if latest.len() > keep {
                    latest.pop();
                }
            }
        }
        Ok(Pruning {
            options,
            keep_from: latest.pop().map(|Reverse(ended)| ended),
        })
    }

    /// The next batches to delete after `after`, with their numbers of jobs, by id ascending.
    pub fn next(&self, connection: &Connection, after: BatchId) -> Result<Vec<(BatchId, u64)>> {
        let mut statement = connection.prepare_cached(ENDED)?;
        let mut rows = statement.query([after.0])?;
        let mut found = Vec::new();
        while found.len() < PRUNED_BATCHES_PER_TRANSACTION
            && let Some(row) = rows.next()?
        {
            let ended: EndedAt = (row.get(1)?, row.get(0)?);
            let has_dead: bool = row.get(2)?;
            if ended.0 < self.options.finished_before.0
                && (self.options.dead_too || !has_dead)
                && self.keep_from.is_none_or(|keep_from| ended < keep_from)
            {
                found.push((BatchId(ended.1), row.get::<_, u32>(3)?.into()));
            }
        }
        Ok(found)
    }
}

/// Lanes that may be deleted: they have no batches and no keys, and are not the last one.
const WITHOUT_JOBS: &str = "SELECT id FROM lane l WHERE id < (SELECT max(id) FROM lane) \
     AND id NOT IN (SELECT lane_id FROM batch) AND id NOT IN (SELECT scope / 2 FROM keyed) \
     AND NOT EXISTS (SELECT 1 FROM job_key k WHERE k.scope BETWEEN l.id * 2 AND l.id * 2 + 1) ORDER BY id LIMIT ?1";

/// Lanes that have jobs or keys since the batch `?1`.
const WITH_NEW_JOBS: &str = "SELECT lane_id FROM batch WHERE id > ?1 UNION SELECT scope / 2 FROM keyed WHERE batch_id > ?1 \
     UNION SELECT scope / 2 FROM job_key WHERE batch_id > ?1";

/// Lanes without jobs, as of a certain last batch.
#[derive(Debug)]
struct EmptyLanes {
    lanes: Vec<i64>,
    last_batch: i64,
}

impl EmptyLanes {
    fn find(connection: &Connection) -> Result<EmptyLanes> {
        let mut statement = connection.prepare_cached(WITHOUT_JOBS)?;
        let lanes = statement.query_map([DELETED_LANES_PER_TRANSACTION], |row| row.get(0))?;
        let lanes = lanes.collect::<rusqlite::Result<Vec<i64>>>()?;
        let last_batch =
            connection.query_row("SELECT coalesce(max(id), 0) FROM batch", [], |row| row.get(0))?;
        Ok(EmptyLanes { lanes, last_batch })
    }
}

impl Transaction<'_> {
    /// Deletes those of the lanes that still have no jobs. The counts of ended jobs go to other lanes of the same queue
    /// and kind, if there are some.
    fn delete_empty_lanes(&mut self, empty: &EmptyLanes) -> Result<u64> {
        let busy: Vec<i64> = self.rows(WITH_NEW_JOBS, [empty.last_batch], |row| row.get(0))?;
        let busy: HashSet<i64> = busy.into_iter().collect();
        let last: Option<i64> = self.row("SELECT max(id) FROM lane", [], |row| row.get(0))?;
        let mut gone = Vec::new();
        for lane in empty
            .lanes
            .iter()
            .filter(|lane| !busy.contains(*lane) && Some(**lane) != last)
        {
            let deleted = self.row(
                "DELETE FROM lane WHERE id = ?1 RETURNING queue, kind",
                [lane],
                |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)),
            )?;
            let Some((queue, kind)) = deleted else {
                continue;
            };
            let ended: Option<String> = self.row(
                "DELETE FROM lane_stat WHERE lane_id = ?1 RETURNING ended",
                [lane],
                |row| row.get(0),
            )?;
            self.execute("DELETE FROM lane_total WHERE lane_id = ?1", [lane])?;
            gone.push((queue, kind, ended));
            self.memory.ranks.remove(lane);
        }
        let mut ended: BTreeMap<(String, String), EndedJobs> = BTreeMap::new();
        let deleted = gone.len() as u64;
        for (queue, kind, jobs) in gone {
            if let Some(jobs) = jobs {
                ended
                    .entry((queue, kind))
                    .or_default()
                    .add(&serde_json::from_str(&jobs)?);
            }
        }
        for ((queue, kind), jobs) in ended {
            let heir = "SELECT id FROM lane WHERE queue = ?1 AND kind = ?2 ORDER BY job_group LIMIT 1";
            if let Some(heir) = self.row(heir, [queue, kind], |row| row.get(0))? {
                self.add_ended_of_lane(heir, &jobs)?;
            }
        }
        self.execute(
            "UPDATE sequence SET next_value = next_value + ?1 WHERE name = 'lanes_deleted'",
            [deleted as i64],
        )?;
        self.memory.forget_deleted_lanes(self.connection)?;
        Ok(deleted)
    }

    /// Deletes those of the batches that are still ended.
    pub fn prune(&mut self, batches: &[(BatchId, u64)]) -> Result<Pruned> {
        let mut pruned = Pruned::default();
        for (batch, jobs) in batches {
            let ended: Option<Option<i64>> = self.row(
                "SELECT sum(count) FROM report WHERE id BETWEEN ?1 AND ?2",
                [report_id(*batch, 0), report_id(BatchId(batch.0 + 1), 0) - 1],
                |row| row.get(0),
            )?;
            if ended.flatten() == Some(*jobs as i64) {
                self.delete_batch(*batch)?;
                pruned.batches += 1;
                pruned.jobs += jobs;
            }
        }
        Ok(pruned)
    }

    /// Deletes a batch with the rows of its ended jobs.
    pub fn delete_batch(&mut self, batch: BatchId) -> Result<()> {
        let reports = [report_id(batch, 0), report_id(BatchId(batch.0 + 1), 0) - 1];
        self.execute("DELETE FROM report WHERE id BETWEEN ?1 AND ?2", reports)?;
        self.execute("DELETE FROM report_durations WHERE id BETWEEN ?1 AND ?2", reports)?;
        self.execute("DELETE FROM failure WHERE batch_id = ?1", [batch.0])?;
        self.execute("DELETE FROM suspension WHERE batch_id = ?1", [batch.0])?;
        self.execute("DELETE FROM kept_event WHERE batch_id = ?1", [batch.0])?;
        self.execute("DELETE FROM returned_event WHERE batch_id = ?1", [batch.0])?;
        self.execute("DELETE FROM cleanup WHERE batch_id = ?1", [batch.0])?;
        self.execute("DELETE FROM child_batch WHERE batch_id = ?1", [batch.0])?;
        self.execute("DELETE FROM step_batch WHERE batch_id = ?1", [batch.0])?;
        self.delete_tags(batch)?;
        self.execute("DELETE FROM keyed WHERE batch_id = ?1", [batch.0])?;
        self.execute("DELETE FROM debounced WHERE batch_id = ?1", [batch.0])?;
        self.subtract_from_totals(batch)?;
        self.execute("DELETE FROM batch WHERE id = ?1", [batch.0])?;
        self.execute(
            "UPDATE sequence SET next_value = ?1 + 1 WHERE name = 'batch' AND next_value <= ?1",
            [batch.0],
        )?;
        Ok(())
    }
}

impl SqliteStore {
    /// Deletes the lanes without jobs and keys, in portions.
    async fn delete_empty_lanes(&self) -> std::result::Result<(), StoreError> {
        loop {
            let empty = self.read(EmptyLanes::find).await?;
            if empty.lanes.is_empty() {
                return Ok(());
            }
            let deleted = self
                .write(0, move |transaction| transaction.delete_empty_lanes(&empty))
                .await?;
            if deleted == 0 {
                // All of them have jobs by now.
                return Ok(());
            }
        }
    }

    /// Prunes one portion of batches after the other.
    pub(crate) async fn prune_in_portions(
        &self,
        options: PruneOptions,
    ) -> std::result::Result<Pruned, StoreError> {
        let pruning = self
            .read(move |connection| Pruning::new(connection, options))
            .await?;
        let mut total = Pruned::default();
        let mut after = BatchId(0);
        loop {
            let batches = self
                .read(move |connection| pruning.next(connection, after))
                .await?;
            let Some((last, _)) = batches.last() else {
                if !options.dry_run {
                    self.delete_empty_lanes().await?;
                    self.shrink_or_warn().await;
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
                self.write(0, move |transaction| transaction.prune(&batches))
                    .await?
            };
            total.batches += pruned.batches;
            total.jobs += pruned.jobs;
        }
    }
}
