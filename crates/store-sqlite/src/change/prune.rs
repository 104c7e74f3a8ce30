//! Deleting whole batches that have ended.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gristmill_model::BatchId;
use gristmill_store::{PruneOptions, Pruned, StoreError};
use rusqlite::Connection;

use crate::SqliteStore;
use crate::columns::{POSITION_BITS, report_id};
use crate::failure::Result;
use crate::limits::PRUNED_BATCHES_PER_TRANSACTION;
use crate::transaction::Transaction;

/// Ended batches after `?1`, by id: when they ended, whether jobs of them are dead, and how many they
/// have. Batches of a run that is not finished are not among them: its output is yet to be written. Nor are children of
/// batches that are open: their parents look at them yet.
const ENDED: &str = "SELECT b.id, max(r.finished_at), max(r.state = 'dead'), b.count \
     FROM batch b CROSS JOIN report r ON r.id BETWEEN b.id << 14 AND (b.id << 14) + 16383 \
     WHERE b.id > ?1 AND (b.run_id IS NULL OR NOT EXISTS \
     (SELECT 1 FROM run WHERE run.id = b.run_id AND run.state <> 'finished')) \
     AND NOT EXISTS (SELECT 1 FROM child_batch c JOIN batch p ON p.id = c.parent_id WHERE c.batch_id = b.id AND p.count > \
     (SELECT coalesce(sum(o.count), 0) FROM report o WHERE o.id BETWEEN p.id << 14 AND (p.id << 14) + 16383)) \
     GROUP BY b.id HAVING sum(r.count) = b.count";
const _: () = assert!(POSITION_BITS == 14);

/// When a batch ended, and its id: the order of age.
type EndedAt = (i64, i64);

/// Finds the batches that a prune deletes, a portion at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pruning {
    options: PruneOptions,
    /// The oldest batch that is kept for being among the latest.
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

    /// The next batches to be deleted after `after`, with their numbers of jobs, by id ascending.
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

impl Transaction<'_> {
    /// Deletes those of the batches that have ended still.
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
        self.execute("DELETE FROM child_batch WHERE batch_id = ?1", [batch.0])?;
        self.delete_tags(batch)?;
        self.execute("DELETE FROM keyed WHERE batch_id = ?1", [batch.0])?;
        self.execute("DELETE FROM debounced WHERE batch_id = ?1", [batch.0])?;
        self.execute("DELETE FROM batch WHERE id = ?1", [batch.0])?;
        self.execute(
            "UPDATE sequence SET next_value = ?1 + 1 WHERE name = 'batch' AND next_value <= ?1",
            [batch.0],
        )?;
        Ok(())
    }
}

impl SqliteStore {
    /// Prunes a portion of batches after the other.
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
