//! Debounce: payloads that are added to jobs that have not started.

use std::collections::{BTreeSet, HashMap};

use gristmill_model::{BatchId, Debounce, DebouncedPayloads, JobId, Positions};
use gristmill_store::SubmittedJobs;
use gristmill_store::rules::keys::debounce::{Added, Collapsed, Sizes};
use gristmill_store::rules::keys::{KeyPlan, Owner, Wanted};
use tokio_postgres::Row;

use crate::database::columns::number;
use crate::database::transaction::Transaction;
use crate::failure::{Failure, Result};
use crate::multirange::Multirange;
use crate::submit::keys::{Prepared, Stored};

/// The payloads that were added to the jobs of these batches, in order.
pub(crate) const ADDED: &str = "SELECT batch_id, position, payloads FROM gristmill.debounced WHERE batch_id = ANY ($1) \
     ORDER BY batch_id, position, number";

/// Reads the rows of [`ADDED`].
pub(crate) fn read_added(rows: &[Row]) -> Result<HashMap<BatchId, Added>> {
    let mut all: HashMap<BatchId, Added> = HashMap::new();
    for row in rows {
        let added = all.entry(BatchId(row.try_get(0)?)).or_default();
        added.entry(number(row, 1)?).or_default().push(row.try_get(2)?);
    }
    Ok(all)
}

impl Transaction {
    /// Stores the jobs of a batch whose keys are free. Adds the others to the jobs that have their keys, or keeps them
    /// behind these jobs. `fresh` are batches of this transaction, which may not be written yet.
    pub async fn submit_debounced(
        &mut self,
        prepared: &Prepared,
        scope: i32,
        debounce: Debounce,
        fresh: &BTreeSet<BatchId>,
    ) -> Result<(SubmittedJobs, Option<Stored>)> {
        let mut collapsed = Collapsed::of(&prepared.batch, &prepared.keys, debounce)?;
        collapsed.delay(debounce, self.now);
        let wanted = Wanted::new(&collapsed.batch, &collapsed.keys)?;
        let owners = self.key_owners(scope, &wanted).await?;
        if owners.values().any(|owner| fresh.contains(&owner.job.batch)) {
            self.flush().await?;
        }
        let unstarted = self.postpone_unstarted(&collapsed, debounce, &owners).await?;
        // An ended job delays nobody, except those that wait already.
        let (owned, over): (HashMap<u32, Owner>, HashMap<u32, Owner>) = owners
            .into_iter()
            .partition(|(_, owner)| owner.open || owner.rerun.is_some());
        self.take_keys(&collapsed, scope, &over).await?;
        let met = collapsed.meet(debounce, &owned, &unstarted, self.now)?;
        self.keep_reruns(scope, &met.behind).await?;
        self.add_payloads(&collapsed, debounce, &met.taking).await?;
        let plan = KeyPlan::of(&collapsed.batch, &wanted, &owned, &HashMap::new())?;
        self.raise(&plan.skipped, prepared.batch.batch.options.priority)
            .await?;
        let Some(stored) = plan.stored(&collapsed.batch)? else {
            return Ok((collapsed.answer(plan.answer(None)), None));
        };
        let ids = self.next_batch_ids(1).await?;
        let id = *ids
            .first()
            .ok_or_else(|| Failure::Damaged("the sequence of batches gave no id".to_owned()))?;
        let head = self.insert_keyed(id, &stored, scope, &[]).await?;
        let answer = collapsed.answer(plan.answer(Some(id)));
        Ok((answer, Some((id, head, stored.batch.payloads))))
    }

    /// Postpones the owners that take the added payloads, because they have not started and nothing waits behind them.
    /// Returns the postponed ones.
    async fn postpone_unstarted(
        &mut self,
        collapsed: &Collapsed,
        debounce: Debounce,
        owners: &HashMap<u32, Owner>,
    ) -> Result<HashMap<BatchId, Positions>> {
        let mut unstarted: HashMap<BatchId, Positions> = HashMap::new();
        if owners.is_empty() {
            return Ok(unstarted);
        }
        let batches: BTreeSet<BatchId> = owners.values().map(|owner| owner.job.batch).collect();
        let batches: Vec<BatchId> = batches.into_iter().collect();
        let heads = self.heads(&batches).await?;
        let sizes = self.added_sizes(&batches, debounce).await?;
        let takers = collapsed.takers(debounce, owners, &sizes, self.now, |batch| {
            let head = heads.get(&batch);
            head.map(|head| (head.options.unique, head.submitted_at))
        });
        let (mut ids, mut positions, mut run_ats) = (Vec::new(), Vec::new(), Vec::new());
        for (batch, (meant, run_at)) in takers {
            ids.push(batch.0);
            positions.push(Multirange(meant));
            run_ats.push(run_at.0);
        }
        if !ids.is_empty() {
            let rows = self
                .query(
                    "SELECT batch_id, positions FROM gristmill.postpone_jobs($1, $2, $3)",
                    &[&ids, &positions, &run_ats],
                )
                .await?;
            for row in &rows {
                let all = unstarted.entry(BatchId(row.try_get(0)?)).or_default();
                *all = all.union(&row.try_get::<_, Multirange>(1)?.0);
            }
            // Those that waited until a moment now wait until another one.
            self.writes.news.woke = true;
        }
        Ok(unstarted)
    }

    /// Takes keys from jobs that have ended, and whose periods have not.
    async fn take_keys(&self, collapsed: &Collapsed, scope: i32, over: &HashMap<u32, Owner>) -> Result<()> {
        if over.is_empty() {
            return Ok(());
        }
        let keys = over.keys().map(|place| &collapsed.keys[*place as usize]);
        let keys: Vec<&str> = keys.filter_map(|key| key.as_deref()).collect();
        self.execute(
            "DELETE FROM gristmill.job_key WHERE scope = $1 AND key = ANY ($2) AND NOT open AND rerun IS NULL",
            &[&scope, &keys],
        )
        .await?;
        Ok(())
    }

    /// The number of payloads and bytes that were added to the jobs of these batches.
    async fn added_sizes(&self, batches: &[BatchId], debounce: Debounce) -> Result<Sizes> {
        if debounce.payloads == DebouncedPayloads::Last {
            return Ok(Sizes::new());
        }
        let batches: Vec<i64> = batches.iter().map(|batch| batch.0).collect();
        let rows = self
            .query(
                "SELECT batch_id, position, sum(count)::integer, sum(octet_length(payloads))::integer \
                 FROM gristmill.debounced WHERE batch_id = ANY ($1) GROUP BY batch_id, position",
                &[&batches],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let job = JobId {
                    batch: BatchId(row.try_get(0)?),
                    position: number(row, 1)?,
                };
                Ok((job, (number(row, 2)?, number(row, 3)? as usize)))
            })
            .collect()
    }

    async fn add_payloads(
        &self,
        collapsed: &Collapsed,
        debounce: Debounce,
        taking: &[(u32, JobId)],
    ) -> Result<()> {
        if taking.is_empty() {
            return Ok(());
        }
        let (mut batches, mut positions) = (Vec::new(), Vec::new());
        let (mut counts, mut payloads) = (Vec::new(), Vec::new());
        for (place, job) in taking {
            batches.push(job.batch.0);
            positions.push(job.position.cast_signed());
            counts.push(collapsed.counts[*place as usize].cast_signed());
            payloads.push(collapsed.added[*place as usize].as_str());
        }
        let is_merged = debounce.payloads == DebouncedPayloads::Merged;
        self.execute(
            "INSERT INTO gristmill.debounced (batch_id, position, number, count, payloads) \
             SELECT k.batch_id, k.position, CASE WHEN $5 THEN coalesce((SELECT max(d.number) + 1 FROM gristmill.debounced d \
             WHERE d.batch_id = k.batch_id AND d.position = k.position), 0) ELSE 0 END, k.count, k.payloads \
             FROM unnest($1::bigint[], $2::integer[], $3::integer[], $4::text[]) k (batch_id, position, count, payloads) \
             ON CONFLICT (batch_id, position, number) DO UPDATE SET count = excluded.count, payloads = excluded.payloads",
            &[&batches, &positions, &counts, &payloads, &is_merged],
        )
        .await?;
        Ok(())
    }
}
