//! Debounce: payloads that are added to jobs which have not started.

use std::collections::{BTreeMap, HashMap};

use gristmill_model::{
    BatchId, Debounce, DebouncedPayloads, JobId, KeyedBatch, PackedArray, Positions, Timestamp,
};
use gristmill_store::SubmittedJobs;
use gristmill_store::rules::keys::debounce::{
    Added, Additions, Collapsed, Sizes, has_room, is_alike, ready_at, with_added,
};
use gristmill_store::rules::keys::rerun::PlannedRerun;
use gristmill_store::rules::keys::{KeyPlan, Owner, Wanted};
use rusqlite::{Connection, params};

use crate::claim::slice::NewSlice;
use crate::failure::Result;
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Stores the jobs of a batch whose keys are free. Adds the others to the jobs that have their keys, or keeps them behind
    /// those.
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
        let unstarted = self.postpone_unstarted(&collapsed, debounce, &owners)?;
        let (mut additions, mut behind) = (Additions::new(), Vec::new());
        // A job that has ended keeps nobody waiting, but for those that wait already.
        owners.retain(|_, owner| owner.open || owner.rerun.is_some());
        for (place, owner) in &owners {
            let unstarted = unstarted.get(&owner.job.batch);
            if unstarted.is_some_and(|unstarted| unstarted.contains(owner.job.position)) {
                let index = *place as usize;
                let added = (collapsed.counts[index], collapsed.added[index].clone());
                let batch = additions.entry(owner.job.batch).or_default();
                batch.insert(owner.job.position, added);
            } else {
                let planned = PlannedRerun::debounced(&collapsed, *place, owner, debounce, self.now)?;
                behind.push(planned);
            }
        }
        self.keep_reruns(scope, &behind)?;
        for (of, added) in &additions {
            self.add_payloads(*of, added, debounce)?;
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

    /// Postpones the owners that take the added payloads, since they have not started and nothing waits behind them. Returns
    /// those.
    fn postpone_unstarted(
        &mut self,
        collapsed: &Collapsed,
        debounce: Debounce,
        owners: &HashMap<u32, Owner>,
    ) -> Result<HashMap<BatchId, Positions>> {
        let mut by_batch: BTreeMap<BatchId, Positions> = BTreeMap::new();
        for owner in owners
            .values()
            .filter(|owner| owner.open && owner.rerun.is_none())
        {
            by_batch
                .entry(owner.job.batch)
                .or_default()
                .insert(owner.job.position);
        }
        let (mut sizes, mut unstarted) = (Sizes::new(), HashMap::new());
        for (of, positions) in by_batch {
            let head = self.head(of)?;
            if !is_alike(head.options.unique, &collapsed.batch.batch) {
                continue;
            }
            sizes.extend(self.added_sizes(of, debounce)?);
            let full: Positions = owners
                .iter()
                .filter(|(place, owner)| {
                    let (count, added) = (
                        collapsed.counts[**place as usize],
                        &collapsed.added[**place as usize],
                    );
                    owner.job.batch == of && !has_room(debounce, sizes.get(&owner.job), count, added)
                })
                .map(|(_, owner)| owner.job.position)
                .collect();
            let run_at = ready_at(debounce, head.submitted_at, self.now);
            unstarted.insert(of, self.postpone(of, &positions.difference(&full), run_at)?);
        }
        Ok(unstarted)
    }

    /// Lets those of these positions of a batch that have not started be claimed from a moment on. Returns which those are.
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
                    positions: &taken,
                    rank: slice.rank,
                    run_at,
                    attempt: slice.attempt,
                    rescues: slice.rescues,
                    expires_at: slice.expires_at,
                    family: None,
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

    /// How much was added to the jobs of a batch.
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

    fn add_payloads(
        &self,
        batch: BatchId,
        added: &BTreeMap<u32, (u32, String)>,
        debounce: Debounce,
    ) -> Result<()> {
        let rows: Vec<(u32, u32, &str)> = added
            .iter()
            .map(|(position, (count, payloads))| (*position, *count, payloads.as_str()))
            .collect();
        self.execute(
            "INSERT OR REPLACE INTO debounced (batch_id, position, number, count, payloads) \
             SELECT ?1, value ->> 0, iif(?3, coalesce((SELECT max(d.number) + 1 FROM debounced d \
             WHERE d.batch_id = ?1 AND d.position = value ->> 0), 0), 0), value ->> 1, value ->> 2 FROM json_each(?2)",
            params![
                batch.0,
                serde_json::to_string(&rows)?,
                debounce.payloads == DebouncedPayloads::Merged
            ],
        )?;
        Ok(())
    }
}

/// The payloads of these jobs of a debounced batch, with those that were added.
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
    match added.is_empty() {
        true => Ok(payloads),
        false => Ok(with_added(&payloads, positions, &added, debounce)?),
    }
}
