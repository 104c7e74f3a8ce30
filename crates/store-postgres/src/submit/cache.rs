//! Cached values of jobs, for jobs of the same lane with the same payload.

use std::collections::HashMap;
use std::sync::Arc;

use gristmill_model::{BatchId, NewBatch, PackedArray, Positions, Timestamp};
use gristmill_store::integrity::cached_sum;
use gristmill_store::rules::cache::{Hits, Kept, Lookup, kept, kept_until};
use tokio_postgres::Row;

use crate::database::columns::number;
use crate::database::connection::Param;
use crate::database::handle_cache::BatchHead;
use crate::database::sums::{batch_columns, read_batch};
use crate::database::transaction::Transaction;
use crate::failure::Result;
use crate::limits::FORGOTTEN_KEYS_PER_TRANSACTION;

/// The values with these digests that were stored after `$2`, each with the place of its digest.
pub(crate) const HITS: &str = "SELECT (k.number - 1)::integer, c.value, c.digest, c.sum \
     FROM unnest($1::text[]) WITH ORDINALITY k (digest, number) JOIN gristmill.cached c ON c.digest = k.digest WHERE c.stored_at > $2";

/// The parameters of [`HITS`]; `None` for a batch without cached jobs.
pub(crate) fn hits_params(batch: &NewBatch, now: Timestamp) -> Option<Vec<Param>> {
    let lookup = Lookup::of(batch, &batch.payloads, now)?;
    Some(vec![Box::new(lookup.digests), Box::new(lookup.stored_after.0)])
}

/// Reads the rows of [`HITS`].
pub(crate) fn read_hits(rows: &[Row]) -> Result<Hits> {
    let mut hits = Hits::default();
    for row in rows {
        let (value, digest): (String, &str) = (row.try_get(1)?, row.try_get(2)?);
        // If a value is damaged, its job runs, which stores the value again.
        if cached_sum(digest, &value) == row.try_get::<_, i64>(3)? {
            hits.add(number(row, 0)?, value);
        }
    }
    Ok(hits)
}

impl Transaction {
    /// The cached values of a batch's jobs. Asks nothing if the batch is not cached.
    pub async fn hits(&self, batch: &NewBatch) -> Result<Hits> {
        match hits_params(batch, self.now) {
            None => Ok(Hits::default()),
            Some(params) => read_hits(&self.send(HITS, params).await?.await?),
        }
    }

    /// Stores the values of jobs that complete with this transaction, if their batches are cached.
    pub async fn keep_values(&self, heads: &HashMap<BatchId, Arc<BatchHead>>) -> Result<()> {
        let completed: Vec<(BatchId, Positions, PackedArray)> = self
            .writes
            .completed()
            .filter(|(batch, ..)| {
                heads
                    .get(batch)
                    .is_some_and(|head| head.options.cached_ms.is_some())
            })
            .map(|(batch, positions, values)| (batch, positions.clone(), values.clone()))
            .collect();
        if completed.is_empty() {
            return Ok(());
        }
        let is_known = |lane_id| self.cache.lanes().get(lane_id).is_some();
        if !completed.iter().all(|(batch, ..)| is_known(heads[batch].lane_id)) {
            // Another handle made the lane.
            self.refresh_lanes().await?;
        }
        let payloads = self
            .payloads_of(completed.iter().map(|(batch, ..)| *batch))
            .await?;
        let (mut all, mut untils) = (Kept::new(), HashMap::new());
        for (batch, positions, values) in &completed {
            let head = &heads[batch];
            let lane = self.cache.lanes().get(head.lane_id).cloned();
            let (Some(lane), Some(payloads)) = (lane, payloads.get(batch)) else {
                continue;
            };
            let until = kept_until(self.now, head.options.cached_ms.unwrap_or(0));
            for (digest, value) in kept(lane.name(), payloads, positions, values) {
                untils.insert(digest.clone(), until.0);
                all.insert(digest, value);
            }
        }
        // Sorted by digest, so that no two transactions wait for each other.
        let untils: Vec<i64> = all.keys().map(|digest| untils[digest]).collect();
        let sums: Vec<i64> = all
            .iter()
            .map(|(digest, value)| cached_sum(digest, value))
            .collect();
        let (digests, values): (Vec<String>, Vec<String>) = all.into_iter().unzip();
        self.execute(
            "INSERT INTO gristmill.cached AS c (digest, stored_at, until, value, sum) \
             SELECT unnest($1::text[]), $2, unnest($3::bigint[]), unnest($4::text[]), unnest($5::bigint[]) \
             ON CONFLICT (digest) DO UPDATE SET stored_at = excluded.stored_at, value = excluded.value, \
             sum = excluded.sum, until = greatest(c.until, excluded.until)",
            &[&digests, &self.now.0, &untils, &values, &sums],
        )
        .await?;
        Ok(())
    }

    /// The payloads of these batches.
    async fn payloads_of(
        &self,
        batches: impl Iterator<Item = BatchId>,
    ) -> Result<HashMap<BatchId, PackedArray>> {
        let (mut all, mut missing) = (HashMap::new(), Vec::new());
        for batch in batches {
            match self.cache.content(batch).and_then(|content| content.payloads) {
                Some(payloads) => {
                    all.insert(batch, payloads);
                }
                None => missing.push(batch.0),
            }
        }
        if missing.is_empty() {
            return Ok(all);
        }
        let rows = self
            .query(
                concat!(
                    "SELECT ",
                    batch_columns!(),
                    " FROM gristmill.batch b WHERE b.id = ANY ($1)"
                ),
                &[&missing],
            )
            .await?;
        for row in &rows {
            let (batch, _, payloads) = read_batch(row, 0)?;
            all.insert(batch, payloads);
        }
        Ok(all)
    }

    /// Deletes some expired values.
    pub async fn forget_values(&self) -> Result<()> {
        self.execute(
            "DELETE FROM gristmill.cached WHERE digest IN (SELECT digest FROM gristmill.cached WHERE until <= $1 \
             ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED)",
            &[&self.now.0, &FORGOTTEN_KEYS_PER_TRANSACTION],
        )
        .await?;
        Ok(())
    }
}
