//! Debounce: payloads that are added to jobs that have not started.

use std::collections::{BTreeSet, HashMap};

use gristmill_model::{
    BatchId, Debounce, DebouncedPayloads, JobId, KeyedBatch, PackedArray, Positions, Timestamp,
};
use gristmill_store::SubmittedJobs;
use gristmill_store::rules::keys::debounce::{Added, Collapsed, Sizes, with_added};
use gristmill_store::rules::keys::{KeyPlan, Owner, Wanted};
use rusqlite::{Connection, params};

use crate::claim::slice::NewSlice;
use crate::failure::Result;
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Stores the jobs of a batch whose keys are free. Adds the others to the jobs that have their keys, or keeps them
    /// behind these jobs.
    pub fn submit_debounced(
        &mut self,
        batch: &KeyedBatch,
        keys: &[Option<String>],
        debounce: Debounce,
    ) -> Result<SubmittedJobs> {
        let mut collapsed = Collapsed::of(batch, keys, debounce)?;
        collapsed.delay(debounce, self.now);
        let scope = self.scope_of(batch)?;
        let mut owners = self.key_owners(scope, &collapsed.batch.keys)?;
        // An ended job delays nobody, except those that wait already.
        owners.retain(|_, owner| owner.open || owner.rerun.is_some());
        let unstarted = self.postpone_unstarted(&collapsed, debounce, &owners)?;
        let met = collapsed.meet(debounce, &owners, &unstarted, self.now)?;
        self.keep_reruns(scope, &met.behind)?;
        for (place, job) in met.taking {
            self.add_payloads(job, &collapsed, place, debounce)?;
        }
        let wanted = Wanted::new(&collapsed.batch, &collapsed.keys)?;
        let plan = KeyPlan::of(&collapsed.batch, &wanted, &owners, &HashMap::new())?;
        for (of, positions) in &plan.skipped {
            self.raise(*of, positions, batch.batch.options.priority)?;
        }
        let stored = match plan.stored(&collapsed.batch)? {
            Some(stored) => Some(self.insert_keyed(&stored, scope, &[])?),
            None => None,
        };
        Ok(collapsed.answer(plan.answer(stored)))
    }

    /// Postpones the owners that take the added payloads, because they have not started and nothing waits behind them.
    /// Returns the postponed ones.
    fn postpone_unstarted(
        &mut self,
        collapsed: &Collapsed,
        debounce: Debounce,
        owners: &HashMap<u32, Owner>,
    ) -> Result<HashMap<BatchId, Positions>> {
        let (mut stored, mut sizes) = (HashMap::new(), Sizes::new());
        let open = owners.values().filter(|owner| owner.open);
        let batches: BTreeSet<BatchId> = open.map(|owner| owner.job.batch).collect();
        for batch in batches {
            let head = self.head(batch)?;
            stored.insert(batch, (head.options.unique, head.submitted_at));
            sizes.extend(self.added_sizes(batch, debounce)?);
        }
        let takers = collapsed.takers(debounce, owners, &sizes, self.now, |batch| {
            stored.get(&batch).copied()
        });
        let mut unstarted = HashMap::new();
        for (batch, (positions, run_at)) in takers {
            unstarted.insert(batch, self.postpone(batch, &positions, run_at)?);
        }
        Ok(unstarted)
    }

    /// Makes those of these positions of a batch that have not started claimable only from a moment on. Returns them.
    fn postpone(&mut self, batch: BatchId, positions: &Positions, run_at: Timestamp) -> Result<Positions> {
        let mut postponed = Positions::new();
        for slice in self.slices_of(batch)? {
            let taken = slice.positions.intersection(positions);
            if slice.attempt > 1 || slice.rescues > 0 || slice.family.is_some() || taken.is_empty() {
                continue;
            }
            if slice.run_at != run_at {
                self.shorten(&slice, &slice.positions.difference(&taken))?;
                let head = self.head(batch)?;
                let moved = NewSlice {
                    run_at,
                    ..slice.part(&taken)
                };
                self.insert_slice(batch, &head, &moved)?;
            }
            postponed = postponed.union(&taken);
        }
        for blocked in self.blocked_of(batch)? {
            let taken = blocked.positions.intersection(positions);
            if blocked.attempt > 1 || blocked.rescues > 0 || blocked.family.is_some() || taken.is_empty() {
                continue;
            }
            let split = self.split_blocked(&blocked, &taken)?;
            self.execute(
                "UPDATE blocked SET run_at = ?3 WHERE batch_id = ?1 AND part = ?2",
                params![batch.0, split.part, run_at.0],
            )?;
            postponed = postponed.union(&taken);
        }
        Ok(postponed)
    }

    /// The number of payloads and bytes that were added to the jobs of a batch.
    fn added_sizes(&self, batch: BatchId, debounce: Debounce) -> Result<Sizes> {
        if debounce.payloads == DebouncedPayloads::Last {
            return Ok(Sizes::new());
        }
        let rows = self.rows(
            "SELECT position, sum(count), sum(length(CAST(payloads AS BLOB))) FROM debounced WHERE batch_id = ?1 \
             GROUP BY position",
            [batch.0],
            |row| {
                let position = row.get(0)?;
                Ok((JobId { batch, position }, (row.get(1)?, row.get::<_, u32>(2)? as usize)))
            },
        )?;
        Ok(rows.into_iter().collect())
    }

    /// Adds the payload at a place of a batch to a job.
    fn add_payloads(&self, to: JobId, from: &Collapsed, place: u32, debounce: Debounce) -> Result<()> {
        self.execute(
            "INSERT OR REPLACE INTO debounced (batch_id, position, number, count, payloads) \
             SELECT ?1, ?2, iif(?3, (SELECT coalesce(max(number) + 1, 0) FROM debounced \
             WHERE batch_id = ?1 AND position = ?2), 0), ?4, ?5",
            params![
                to.batch.0,
                to.position,
                debounce.payloads == DebouncedPayloads::Merged,
                from.counts[place as usize],
                from.added[place as usize],
            ],
        )?;
        Ok(())
    }
}

/// The payloads of these jobs of a debounced batch, including the added ones.
pub(crate) fn debounced_payloads(
    connection: &Connection,
    batch: BatchId,
    positions: &Positions,
    payloads: PackedArray,
    debounce: Debounce,
) -> Result<PackedArray> {
    let mut statement = connection.prepare_cached(
        "SELECT position, payloads FROM debounced WHERE batch_id = ?1 ORDER BY position, number",
    )?;
    let mut rows = statement.query([batch.0])?;
    let mut added = Added::new();
    while let Some(row) = rows.next()? {
        added.entry(row.get(0)?).or_default().push(row.get(1)?);
    }
    if added.is_empty() {
        Ok(payloads)
    } else {
        Ok(with_added(&payloads, positions, &added, debounce)?)
    }
}
