//! Deduplication keys.

use std::collections::{BTreeSet, HashMap};

use gristmill_model::{
    After, BatchId, JobId, JobState, KeyedBatch, NewBatch, OnDuplicate, PackedArray, Positions, Unique,
};
use gristmill_store::integrity::keys_sum;
use gristmill_store::rules::dependency::WaitingJobs;
use gristmill_store::rules::keys::rerun::{PlannedRerun, reruns};
use gristmill_store::rules::keys::{KeyPlan, Owner, Wanted, scope_id, stored_after};
use gristmill_store::rules::lanes::LaneName;
use gristmill_store::{BatchPositions, SubmittedJobs};
use rusqlite::params;

use crate::columns::read_positions;
use crate::failure::{Failure, Result};
use crate::graph::dependency::Ended;
use crate::labels::{BatchKeys, keys_of};
use crate::limits::FORGOTTEN_KEYS_PER_TRANSACTION;
use crate::sums::damaged;
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Stores batches whose jobs have keys. `keys` has the keys of each batch, unpacked.
    pub fn submit_keyed(
        &mut self,
        batches: &[KeyedBatch],
        keys: &[Vec<Option<String>>],
    ) -> Result<Vec<SubmittedJobs>> {
        self.check_prerequisites(batches.iter().map(|batch| &batch.batch))?;
        let mut submitted: Vec<SubmittedJobs> = Vec::with_capacity(batches.len());
        for (batch, keys) in batches.iter().zip(keys) {
            let after = stored_after(&batch.batch, &submitted.iter().collect::<Vec<_>>());
            if !after.is_empty() {
                // The job that stands for an earlier one may have been deleted.
                let waiting = NewBatch {
                    after: after.clone(),
                    ..batch.batch.clone()
                };
                self.check_prerequisites([&waiting])?;
            }
            submitted.push(self.submit_keyed_batch(batch, keys, after)?);
        }
        Ok(submitted)
    }

    /// Stores one of them. `after` has all stored prerequisites of the batch.
    fn submit_keyed_batch(
        &mut self,
        batch: &KeyedBatch,
        keys: &[Option<String>],
        after: Vec<After>,
    ) -> Result<SubmittedJobs> {
        if let Some(debounce) = batch.unique().debounce {
            return self.submit_debounced(batch, keys, debounce);
        }
        let wanted = Wanted::new(batch, keys)?;
        let scope = self.scope_of(batch)?;
        let owners = self.key_owners(scope, &batch.keys)?;
        let running = match batch.unique().on_duplicate {
            OnDuplicate::Rerun => self.running_of(owners.values().filter(|owner| owner.open))?,
            _ => HashMap::new(),
        };
        let plan = KeyPlan::of(batch, &wanted, &owners, &running)?;
        let (mut waiting, mut replaced) = (Vec::new(), Vec::new());
        for (of, positions) in &plan.replaced {
            waiting.extend(
                self.waiting_of(*of, positions)?
                    .into_iter()
                    .map(|waiting| (*of, waiting)),
            );
            replaced.push(BatchPositions {
                batch: *of,
                positions: positions.clone(),
            });
        }
        let ended = self.cancel_descendants(replaced)?;
        self.settle(ended)?;
        for (of, positions) in &plan.skipped {
            self.raise(*of, positions, batch.batch.options.priority)?;
        }
        self.keep_reruns(scope, &plan.reruns)?;
        let stored = match plan.stored(batch)? {
            Some(mut stored) => {
                stored.batch.after = after;
                Some(self.insert_keyed(&stored, scope, &plan.inherited(&waiting))?)
            }
            None => None,
        };
        Ok(plan.answer(stored))
    }

    /// Keeps jobs that run once more after other jobs.
    pub fn keep_reruns(&self, scope: i64, planned: &[PlannedRerun]) -> Result<()> {
        for planned in planned {
            self.execute(
                "UPDATE job_key SET rerun = ?3 WHERE scope = ?1 AND key = ?2",
                params![scope, planned.key, serde_json::to_string(&planned.rerun)?],
            )?;
        }
        Ok(())
    }

    pub fn scope_of(&mut self, batch: &KeyedBatch) -> Result<i64> {
        self.memory
            .intern_lane(self.connection, LaneName::of(&batch.batch))?;
        let scope = scope_id(&self.memory.lanes, batch.unique().scope, &batch.batch);
        scope.ok_or_else(|| Failure::Damaged("a kind or queue has no lane".to_owned()))
    }

    /// The owners of these keys, by place.
    pub fn key_owners(&self, scope: i64, keys: &PackedArray) -> Result<HashMap<u32, Owner>> {
        let owners = self.rows(
            "SELECT j.key, k.batch_id, k.position, k.open, k.rerun FROM json_each(?1) j \
             CROSS JOIN job_key k ON k.scope = ?2 AND k.key = j.value \
             WHERE k.open = 1 OR k.until > ?3 OR k.rerun IS NOT NULL",
            params![keys.as_str(), scope, self.now.0],
            |row| {
                let job = JobId {
                    batch: BatchId(row.get(1)?),
                    position: row.get(2)?,
                };
                let (open, rerun) = (row.get(3)?, row.get(4)?);
                Ok((row.get(0)?, Owner { job, open, rerun }))
            },
        )?;
        Ok(owners.into_iter().collect())
    }

    /// The running jobs of the batches of these owners.
    fn running_of<'o>(&self, owners: impl Iterator<Item = &'o Owner>) -> Result<HashMap<BatchId, Positions>> {
        let mut running: HashMap<BatchId, Positions> =
            owners.map(|owner| (owner.job.batch, Positions::new())).collect();
        if running.is_empty() {
            return Ok(running);
        }
        let mut statement = self
            .connection
            .prepare_cached("SELECT batch_id, positions FROM held")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if let Some(positions) = running.get_mut(&BatchId(row.get(0)?)) {
                *positions = positions.union(&read_positions(row, 1)?);
            }
        }
        Ok(running)
    }

    /// Stores a batch whose keys are free, or were released by replaced jobs.
    pub fn insert_keyed(
        &mut self,
        batch: &KeyedBatch,
        scope: i64,
        waiting: &[WaitingJobs],
    ) -> Result<BatchId> {
        let id = self.insert_batch(&batch.batch, &batch.batch.payloads, None, &[], waiting)?;
        self.execute(
            "INSERT INTO keyed (batch_id, scope, keys, sum) VALUES (?1, ?2, ?3, ?4)",
            params![
                id.0,
                scope,
                batch.keys.as_str(),
                keys_sum(id, scope, batch.keys.as_str())
            ],
        )?;
        self.execute(
            "INSERT OR REPLACE INTO job_key (scope, key, batch_id, position, open, until) \
             SELECT ?1, value, ?2, key, 1, ?3 FROM json_each(?4) WHERE type = 'text'",
            params![scope, id.0, self.until(batch.unique()), batch.keys.as_str()],
        )?;
        let head = self.head(id)?;
        let keys = batch.keys.clone();
        head.keys.get_or_init(|| BatchKeys { scope, keys });
        self.settle_submitted(std::slice::from_ref(&batch.batch), &[id])?;
        // Prerequisites of replaced jobs may have ended with them.
        let inherited: BTreeSet<BatchId> = waiting
            .iter()
            .flat_map(|waiting| waiting.edges.iter().map(|edge| edge.prerequisite))
            .collect();
        if !inherited.is_empty() {
            let ended = inherited.into_iter().map(Ended::looked_up);
            self.settle(ended.collect())?;
        }
        Ok(id)
    }

    fn until(&self, unique: Unique) -> Option<i64> {
        let period_ms = unique.period_ms?;
        Some(self.now.plus_ms(i64::try_from(period_ms).unwrap_or(i64::MAX)).0)
    }

    /// Releases the keys of jobs that ended in this state; a key with a period stays until that is over. Submits the
    /// jobs that were kept behind completed ones; jobs that are debounced behind dead or expired ones are due with the
    /// next expiry. Searches nothing if the batch has no keys.
    pub fn release_keys(&mut self, batch: BatchId, positions: &Positions, state: JobState) -> Result<()> {
        let head = self.head(batch)?;
        let Some(unique) = head.options.unique else {
            return Ok(());
        };
        let BatchKeys { scope, keys } = match head.keys.get() {
            Some(keys) => keys,
            None => {
                let keys = keys_of(self.connection, batch)?;
                let keys = keys.ok_or_else(|| damaged(batch, "keyed", "it has lost its keys"))?;
                head.keys.get_or_init(|| keys)
            }
        };
        let keys = keys.select(positions);
        let (completed, cancelled) = (state == JobState::Completed, state == JobState::Cancelled);
        let due = if completed || cancelled {
            0
        } else {
            self.execute(
                "UPDATE job_key SET open = 0, until = ?4 \
                 WHERE scope = ?1 AND key IN (SELECT value FROM json_each(?2)) AND batch_id = ?3 AND open = 1 \
                 AND rerun ->> '$.debounced' IS NOT NULL",
                params![scope, keys.as_str(), batch.0, self.now.0],
            )?
        };
        if due == keys.count() as usize {
            return Ok(());
        }
        let released = self.rows(
            "DELETE FROM job_key WHERE scope = ?1 AND key IN (SELECT value FROM json_each(?2)) AND batch_id = ?3 \
             AND open = 1 AND (until IS NULL OR until <= ?4 OR (?5 AND rerun IS NOT NULL)) \
             RETURNING iif(rerun IS NOT NULL, key, NULL), rerun",
            params![scope, keys.as_str(), batch.0, self.now.0, completed],
            |row| Ok((row.get::<_, Option<String>>(0)?, row.get::<_, Option<String>>(1)?)),
        )?;
        if unique.period_ms.is_some() {
            self.execute(
                "UPDATE job_key SET open = 0, rerun = NULL \
                 WHERE scope = ?1 AND key IN (SELECT value FROM json_each(?2)) AND batch_id = ?3 AND open = 1",
                params![scope, keys.as_str(), batch.0],
            )?;
        }
        let again: Vec<(String, String)> = released
            .into_iter()
            .filter_map(|(key, rerun)| key.zip(rerun))
            .collect();
        if completed {
            self.submit_again(&again)
        } else {
            Ok(())
        }
    }

    /// Submits the jobs that were kept with these keys, which are free now.
    fn submit_again(&mut self, again: &[(String, String)]) -> Result<()> {
        for batch in reruns(again)? {
            let scope = self.scope_of(&batch)?;
            self.insert_keyed(&batch, scope, &[])?;
        }
        Ok(())
    }

    /// The positions of a batch whose keys other jobs have by now: they cannot be retried.
    pub fn taken_keys(&mut self, batch: BatchId) -> Result<Positions> {
        if self.head(batch)?.options.unique.is_none() {
            return Ok(Positions::new());
        }
        let taken = self.rows(
            "SELECT j.key FROM keyed b CROSS JOIN json_each(b.keys) j CROSS JOIN job_key k \
             ON k.scope = b.scope AND k.key = j.value \
             WHERE b.batch_id = ?1 AND k.batch_id <> ?1 AND (k.open = 1 OR k.until > ?2 OR k.rerun IS NOT NULL)",
            params![batch.0, self.now.0],
            |row| row.get(0),
        )?;
        Ok(taken.into_iter().collect())
    }

    /// Returns their keys to jobs of a batch that are open again.
    pub fn take_keys_again(&mut self, batch: BatchId, positions: &Positions) -> Result<()> {
        if self.head(batch)?.options.unique.is_none() {
            return Ok(());
        }
        for range in positions.ranges() {
            self.execute(
                "INSERT INTO job_key (scope, key, batch_id, position, open) \
                 SELECT b.scope, j.value, b.batch_id, j.key, 1 FROM keyed b CROSS JOIN json_each(b.keys) j \
                 WHERE b.batch_id = ?1 AND j.key BETWEEN ?2 AND ?3 AND j.type = 'text' \
                 ON CONFLICT (scope, key) DO UPDATE SET open = 1, batch_id = excluded.batch_id, \
                 position = excluded.position, until = iif(batch_id = excluded.batch_id, until, NULL), \
                 rerun = iif(batch_id = excluded.batch_id, rerun, NULL)",
                params![batch.0, range.start, range.end - 1],
            )?;
        }
        Ok(())
    }

    /// Deletes some keys of ended jobs whose periods are over. Submits the jobs that waited behind them.
    pub fn forget_keys(&mut self) -> Result<()> {
        let gone = self.rows(
            "DELETE FROM job_key WHERE (scope, key) IN \
             (SELECT scope, key FROM job_key WHERE open = 0 AND until <= ?1 ORDER BY until LIMIT ?2) RETURNING key, rerun",
            params![self.now.0, FORGOTTEN_KEYS_PER_TRANSACTION],
            |row| Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?)),
        )?;
        let due = gone.into_iter().filter_map(|(key, rerun)| Some((key, rerun?)));
        self.submit_again(&due.collect::<Vec<_>>())
    }
}
