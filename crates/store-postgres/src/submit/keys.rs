//! Deduplication keys.
//!
//! A lock on a lane's row serialises submits of jobs with keys of one kind or queue. It is the row of the first lane of
//! the kind or queue, depending on the scope. Only roles that may write lanes can take it. So between the search for
//! the owners of the keys and the submit, only a retry of jobs can take a key. The submit then begins again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures::FutureExt;
use gristmill_model::{
    After, BatchId, JobId, JobState, KeyedBatch, NewBatch, OnDuplicate, PackedArray, Positions,
};
use gristmill_store::integrity::keys_sum;
use gristmill_store::rules::contents::Content;
use gristmill_store::rules::dependency::{WaitingJobs, stored_prerequisites};
use gristmill_store::rules::keys::rerun::{PlannedRerun, reruns};
use gristmill_store::rules::keys::{KeyPlan, Owner, Wanted, scope_id, stored_after};
use gristmill_store::rules::lanes::LaneName;
use gristmill_store::{StoreError, SubmittedJobs};

use crate::database::Database;
use crate::database::handle_cache::BatchHead;
use crate::database::pools::Purpose;
use crate::database::transaction::{Durability, Transaction};
use crate::failure::{Failure, Result};
use crate::graph::dependency::{Ended, check_prerequisites};
use crate::limits::FORGOTTEN_KEYS_PER_TRANSACTION;
use crate::multirange::Multirange;
use crate::submit::Circumstances;

/// A batch whose jobs have keys, ready to be stored.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub batch: KeyedBatch,
    pub keys: Vec<Option<String>>,
}

/// A stored batch, to be kept in memory.
pub(crate) type Stored = (BatchId, BatchHead, PackedArray);

impl Database {
    /// Stores batches whose jobs have keys. `keys` has the keys of each batch, unpacked.
    pub async fn submit_keyed(
        self: &Arc<Self>,
        batches: Vec<KeyedBatch>,
        keys: Vec<Vec<Option<String>>>,
    ) -> std::result::Result<Vec<SubmittedJobs>, StoreError> {
        let mut prepared = Vec::with_capacity(batches.len());
        for (batch, keys) in batches.into_iter().zip(keys) {
            self.prepare(std::slice::from_ref(&batch.batch)).await?;
            prepared.push(Prepared { batch, keys });
        }
        let prepared = Arc::new(prepared);
        let submitted = self
            .write(Purpose::Change, Durability::Promised, move |transaction| {
                let prepared = prepared.clone();
                async move { transaction.submit_keyed(&prepared).await }.boxed()
            })
            .await?;
        let mut answers = Vec::with_capacity(submitted.len());
        for (answer, stored) in submitted {
            if let Some((id, head, payloads)) = stored {
                let content = Content::new(Arc::new(head), Some(payloads));
                self.cache.keep(id, content);
            }
            answers.push(answer);
        }
        Ok(answers)
    }
}

impl Transaction {
    /// Locks the scopes of these batches' keys until the transaction ends, and returns them. The scope of a kind and
    /// that of a queue may have the same first lane, and then wait for each other.
    pub async fn lock_scopes(&self, batches: &[Prepared]) -> Result<Vec<i32>> {
        let scopes = batches.iter().map(|batch| self.scope(&batch.batch));
        let scopes: Vec<i32> = scopes.collect::<Result<_>>()?;
        let lanes: BTreeSet<i32> = scopes.iter().map(|scope| scope / 2).collect();
        let lanes: Vec<i32> = lanes.into_iter().collect();
        if !lanes.is_empty() {
            let locked = self
                .query(
                    "SELECT id FROM gristmill.lane WHERE id = ANY ($1) ORDER BY id FOR UPDATE",
                    &[&lanes],
                )
                .await?;
            if locked.len() < lanes.len() {
                // Another lane is the first of its kind or queue now.
                let lanes = self.cache.lanes();
                let own = batches
                    .iter()
                    .filter_map(|batch| lanes.find(LaneName::of(&batch.batch.batch)));
                return Err(Failure::LanesGone(
                    own.filter_map(|id| lanes.get(id).cloned()).collect(),
                ));
            }
        }
        Ok(scopes)
    }

    /// The scope of a batch's keys. Its lane exists already.
    fn scope(&self, batch: &KeyedBatch) -> Result<i32> {
        self.cache.lane(LaneName::of(&batch.batch))?;
        let scope = scope_id(&self.cache.lanes(), batch.unique().scope, &batch.batch);
        let scope = scope.and_then(|scope| i32::try_from(scope).ok());
        scope.ok_or_else(|| Failure::Damaged("a kind or queue has no lane".to_owned()))
    }

    /// Stores batches whose jobs have keys.
    pub async fn submit_keyed(
        &mut self,
        batches: &[Prepared],
    ) -> Result<Vec<(SubmittedJobs, Option<Stored>)>> {
        let scopes = self.lock_scopes(batches).await?;
        let mut fresh = BTreeSet::new();
        let mut submitted: Vec<(SubmittedJobs, Option<Stored>)> = Vec::with_capacity(batches.len());
        for (batch, scope) in batches.iter().zip(scopes) {
            let earlier: Vec<&SubmittedJobs> = submitted.iter().map(|(answer, _)| answer).collect();
            let after = stored_after(&batch.batch.batch, &earlier);
            let (answer, stored) = self.submit_keyed_batch(batch, scope, after, &fresh).await?;
            fresh.extend(answer.batch);
            submitted.push((answer, stored));
        }
        Ok(submitted)
    }

    /// Stores one of them. `after` has all stored prerequisites of the batch. `fresh` are batches of this transaction,
    /// which may not be written yet.
    async fn submit_keyed_batch(
        &mut self,
        prepared: &Prepared,
        scope: i32,
        after: Vec<After>,
        fresh: &BTreeSet<BatchId>,
    ) -> Result<(SubmittedJobs, Option<Stored>)> {
        let Prepared { batch, keys } = prepared;
        if let Some(debounce) = batch.unique().debounce {
            return self.submit_debounced(prepared, scope, debounce, fresh).await;
        }
        let wanted = Wanted::new(batch, keys)?;
        let owners = self.key_owners(scope, &wanted).await?;
        let running = match batch.unique().on_duplicate {
            OnDuplicate::Rerun => {
                self.running_of(owners.values().filter(|owner| owner.open))
                    .await?
            }
            _ => HashMap::new(),
        };
        let plan = KeyPlan::of(batch, &wanted, &owners, &running)?;
        if plan
            .replaced
            .keys()
            .chain(plan.skipped.keys())
            .any(|batch| fresh.contains(batch))
            || !after.is_empty()
        {
            self.flush().await?;
        }
        let batch_after = NewBatch {
            after,
            ..batch.batch.clone()
        };
        let (prerequisites, waiting) = self.lock_awaited(&batch_after, &plan).await?;
        self.make_room(scope, &plan).await?;
        self.raise(&plan.skipped, batch.batch.options.priority).await?;
        self.keep_reruns(scope, &plan.reruns).await?;
        let Some(mut stored) = plan.stored(batch)? else {
            return Ok((plan.answer(None), None));
        };
        stored.batch.after = batch_after.after;
        let ids = self.next_batch_ids(1).await?;
        let id = *ids
            .first()
            .ok_or_else(|| Failure::Damaged("the sequence of batches gave no id".to_owned()))?;
        let head = self
            .insert_keyed(id, &stored, scope, &plan.inherited(&waiting))
            .await?;
        if !prerequisites.is_empty() {
            self.flush().await?;
            self.await_batches(&prerequisites).await?;
            let mut ended = Ended::default();
            prerequisites
                .iter()
                .for_each(|batch| ended.add_all(BatchId(*batch)));
            self.settle(ended).await?;
        }
        Ok((plan.answer(Some(id)), Some((id, head, stored.batch.payloads))))
    }

    /// Locks the prerequisites of a batch and those of the jobs that its jobs replace. Returns these batches, and the
    /// prerequisites of the replaced jobs.
    async fn lock_awaited(
        &self,
        batch: &NewBatch,
        plan: &KeyPlan,
    ) -> Result<(Vec<i64>, Vec<(BatchId, WaitingJobs)>)> {
        let mut prerequisites: BTreeSet<i64> = stored_prerequisites([batch])
            .into_keys()
            .map(|batch| batch.0)
            .collect();
        let mut locked = prerequisites.clone();
        if !plan.replaced.is_empty() {
            let replaced: Vec<i64> = plan.replaced.keys().map(|batch| batch.0).collect();
            let inherited = self.prerequisites_of(&replaced).await?;
            if !inherited.is_empty() {
                locked.extend(&inherited);
                locked.extend(replaced);
            }
            prerequisites.extend(inherited);
        }
        if locked.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let locked: Vec<i64> = locked.into_iter().collect();
        let counts = self.lock_prerequisites(&locked).await?;
        check_prerequisites([batch].into_iter(), &counts)?;
        // They may wait for less by now.
        let waiting = self.waiting_of(&plan.replaced).await?;
        let prerequisites = prerequisites.into_iter();
        let prerequisites = prerequisites.filter(|batch| counts.contains_key(&BatchId(*batch)));
        Ok((prerequisites.collect(), waiting))
    }

    /// The owners of these keys, by place.
    pub async fn key_owners(&self, scope: i32, wanted: &Wanted<'_>) -> Result<HashMap<u32, Owner>> {
        let keys: Vec<&str> = wanted.last.keys().copied().collect();
        let rows = self
            .query(
                "SELECT key, batch_id, position, open, rerun FROM gristmill.job_key \
                 WHERE scope = $1 AND key = ANY ($2) AND (open OR until > $3 OR rerun IS NOT NULL)",
                &[&scope, &keys, &self.now.0],
            )
            .await?;
        let mut owners = HashMap::with_capacity(rows.len());
        for row in &rows {
            let key: &str = row.try_get(0)?;
            let job = JobId {
                batch: BatchId(row.try_get(1)?),
                position: row.try_get::<_, i32>(2)?.unsigned_abs(),
            };
            let (open, rerun) = (row.try_get(3)?, row.try_get(4)?);
            if let Some(index) = wanted.last.get(key) {
                owners.insert(*index, Owner { job, open, rerun });
            }
        }
        Ok(owners)
    }

    /// The running jobs of the batches of these owners.
    async fn running_of<'o>(
        &self,
        owners: impl Iterator<Item = &'o Owner>,
    ) -> Result<HashMap<BatchId, Positions>> {
        let batches: BTreeSet<i64> = owners.map(|owner| owner.job.batch.0).collect();
        let batches: Vec<i64> = batches.into_iter().collect();
        let rows = self
            .query(
                "SELECT batch_id, positions FROM gristmill.held WHERE batch_id = ANY ($1)",
                &[&batches],
            )
            .await?;
        let mut running: HashMap<BatchId, Positions> = HashMap::new();
        for row in &rows {
            let positions = row.try_get::<_, Multirange>(1)?.0;
            let all = running.entry(BatchId(row.try_get(0)?)).or_default();
            *all = all.union(&positions);
        }
        Ok(running)
    }

    /// Cancels the replaced jobs.
    async fn make_room(&mut self, scope: i32, plan: &KeyPlan) -> Result<()> {
        if plan.replaced.is_empty() {
            return Ok(());
        }
        let (batches, positions) = columns(&plan.replaced);
        let ended = self.cancel_trees(&batches, &positions).await?;
        // Only their periods remain.
        self.execute(
            "DELETE FROM gristmill.job_key WHERE scope = $1 AND key = ANY ($2) AND batch_id = ANY ($3)",
            &[&scope, &plan.replaced_keys, &batches],
        )
        .await?;
        self.settle(ended).await?;
        Ok(())
    }

    /// Raises the priority of waiting jobs among these, if it is higher.
    pub async fn raise(&mut self, jobs: &BTreeMap<BatchId, Positions>, priority: i16) -> Result<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let (batches, positions) = columns(jobs);
        let row = self
            .query_opt(
                "SELECT gristmill.raise_jobs($1, $2, $3)",
                &[&batches, &positions, &-i32::from(priority)],
            )
            .await?;
        self.writes.news.woke |= row.map_or(Ok(false), |row| row.try_get(0))?;
        Ok(())
    }

    /// Keeps jobs that run once more after other jobs. The other jobs must still be open.
    pub async fn keep_reruns(&self, scope: i32, planned: &[PlannedRerun]) -> Result<()> {
        if planned.is_empty() {
            return Ok(());
        }
        let (mut keys, mut batches, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        for planned in planned {
            keys.push(planned.key.as_str());
            batches.push(planned.owner.batch.0);
            texts.push(serde_json::to_string(&planned.rerun)?);
        }
        let kept = self
            .execute(
                "UPDATE gristmill.job_key k SET rerun = r.rerun \
                 FROM unnest($2::text[], $3::bigint[], $4::text[]) r (key, batch_id, rerun) \
                 WHERE k.scope = $1 AND k.key = r.key AND k.batch_id = r.batch_id AND (k.open OR k.rerun IS NOT NULL)",
                &[&scope, &keys, &batches, &texts],
            )
            .await?;
        // A job that has ended meanwhile no longer stands for the new one.
        if kept == planned.len() as u64 {
            Ok(())
        } else {
            Err(Failure::Overtaken)
        }
    }

    /// Stores a batch whose keys are free.
    pub async fn insert_keyed(
        &mut self,
        id: BatchId,
        batch: &KeyedBatch,
        scope: i32,
        waiting: &[WaitingJobs],
    ) -> Result<BatchHead> {
        let until = batch.unique().period_ms.map(|period_ms| {
            let period_ms = i64::try_from(period_ms).unwrap_or(i64::MAX);
            self.now.plus_ms(period_ms).0
        });
        self.execute(
            "INSERT INTO gristmill.keyed (batch_id, scope, keys, sum) VALUES ($1, $2, $3, $4)",
            &[
                &id.0,
                &scope,
                &batch.keys.as_str(),
                &keys_sum(id, i64::from(scope), batch.keys.as_str()),
            ],
        )
        .await?;
        let all = Multirange(Positions::all(batch.keys.count()));
        let row = self
            .query_opt(
                "WITH e AS MATERIALIZED (SELECT * FROM gristmill.keys_at(ARRAY[$1::bigint], ARRAY[$2::int4multirange])), \
                 taken AS (INSERT INTO gristmill.job_key AS k (scope, key, batch_id, position, open, until) \
                 SELECT e.scope, e.key, e.batch_id, e.position, true, $3 FROM e ORDER BY e.scope, e.key COLLATE \"C\" \
                 ON CONFLICT (scope, key) DO UPDATE SET batch_id = excluded.batch_id, position = excluded.position, \
                 open = true, until = excluded.until, rerun = NULL \
                 WHERE NOT k.open AND (k.until IS NULL OR k.until <= $4) AND k.rerun IS NULL RETURNING 1) \
                 SELECT (SELECT count(*) FROM e) = (SELECT count(*) FROM taken)",
                &[&id.0, &all, &until, &self.now.0],
            )
            .await?;
        let has_all: bool = row.map(|row| row.try_get(0)).transpose()?.unwrap_or_default();
        if !has_all {
            return Err(Failure::Overtaken);
        }
        let circumstances = Circumstances {
            waiting,
            key_bytes: batch.keys.as_str().len(),
            ..Circumstances::default()
        };
        let lane = self.lane(LaneName::of(&batch.batch))?;
        self.writes
            .submit(self.now, id, lane, &batch.batch, circumstances)
    }

    /// Releases the keys of jobs that end with this transaction, submits jobs that were kept behind completed ones, and
    /// stores cached values. Asks nothing if no batch has keys or cached values.
    pub async fn release_keys(&mut self) -> Result<()> {
        let ended: BTreeSet<BatchId> = self.writes.ended().map(|(batch, _, _)| batch).collect();
        if ended.is_empty() || std::mem::replace(&mut self.keys_are_released, true) {
            return Ok(());
        }
        let ended: Vec<BatchId> = ended.into_iter().collect();
        let heads = self.heads(&ended).await?;
        self.keep_values(&heads).await?;
        let is_keyed = |batch: &BatchId| {
            let head = heads.get(batch);
            head.is_some_and(|head| head.options.unique.is_some())
        };
        let mut again = Vec::new();
        for (has_completed, state) in [(true, JobState::Completed), (false, JobState::Dead)] {
            let (mut batches, mut positions) = (Vec::new(), Vec::new());
            for (batch, ended, completed) in self.writes.ended() {
                if has_completed == completed && is_keyed(&batch) {
                    batches.push(batch.0);
                    positions.push(Multirange(ended.clone()));
                }
            }
            if batches.is_empty() {
                continue;
            }
            let rows = self
                .query(
                    "SELECT key, rerun FROM gristmill.release_keys($1, $2, $3, $4)",
                    &[&batches, &positions, &state.name(), &self.now.0],
                )
                .await?;
            for row in &rows {
                again.push((row.try_get(0)?, row.try_get(1)?));
            }
        }
        self.submit_again(&again).await
    }

    /// Submits the jobs that were kept with these keys, which are free now.
    async fn submit_again(&mut self, again: &[(String, String)]) -> Result<()> {
        for batch in &reruns(again)? {
            // The lane was made when the job was kept, perhaps by another process, and may have been deleted.
            self.refresh_lanes().await?;
            let scope = self.scope(batch)?;
            let ids = self.next_batch_ids(1).await?;
            for id in ids {
                self.insert_keyed(id, batch, scope, &[]).await?;
            }
        }
        self.ran_again |= !again.is_empty();
        Ok(())
    }

    /// Deletes some keys of ended jobs whose periods are over. Submits the jobs that waited behind them.
    pub async fn forget_keys(&mut self) -> Result<()> {
        let rows = self
            .query(
                "DELETE FROM gristmill.job_key WHERE (scope, key) IN (SELECT scope, key FROM gristmill.job_key \
                 WHERE NOT open AND until <= $1 ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING key, rerun",
                &[&self.now.0, &FORGOTTEN_KEYS_PER_TRANSACTION],
            )
            .await?;
        let mut due: Vec<(String, String)> = Vec::new();
        for row in &rows {
            if let Some(rerun) = row.try_get(1)? {
                due.push((row.try_get(0)?, rerun));
            }
        }
        self.submit_again(&due).await
    }
}

fn columns(jobs: &BTreeMap<BatchId, Positions>) -> (Vec<i64>, Vec<Multirange>) {
    jobs.iter()
        .map(|(batch, positions)| (batch.0, Multirange(positions.clone())))
        .unzip()
}
