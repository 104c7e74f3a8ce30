//! Changes of jobs from outside (cancel, retry, discard, prioritise, pause and resume), by the same functions that SQL
//! clients call.

pub(crate) mod pause;
pub(crate) mod prune;
mod set_back;

use std::collections::{BTreeMap, HashSet};

use gristmill_model::limits::BATCH_JOBS_MAX;
use gristmill_model::positions::by_batch;
use gristmill_model::{BatchId, JobId, JobState, Positions};
use gristmill_store::query::Narrowed;
use gristmill_store::rules::family::flow::{cannot_retry_cleaned_up, cannot_retry_step};
use gristmill_store::{Change, Changed, JobFilter, Selection};
use tokio_postgres::types::ToSql;

use crate::database::columns::{number, sum};
use crate::database::connection::Param;
use crate::database::transaction::Transaction;
use crate::failure::Result;
use crate::graph::dependency::Ended;
use crate::limits::CHANGED_BATCHES_PER_STATEMENT;
use crate::multirange::Multirange;
use crate::query::filter::{Candidates, LOOK_BATCHES_MAX};
use crate::query::tag::Narrowing;

/// Cancels jobs with their descendants. The caller settles what that ended: the second and third column.
const CANCEL: &str =
    "SELECT cancelled, ended_ids, ended_positions FROM gristmill.cancel_trees($1, $2, $3, $4)";

/// The statement that carries a change out.
fn sql(change: &Change) -> &'static str {
    match change {
        Change::Cancel => CANCEL,
        Change::Retry => "SELECT gristmill.retry_with_keys($1, $2, $3, $4)",
        Change::Discard => "SELECT gristmill.discard_jobs($1, $2, $3, $4)",
        Change::Prioritise(_) => "SELECT gristmill.prioritise_jobs($1, $2, $3, $4, $5)",
        Change::Pause { .. } => "SELECT gristmill.pause_jobs($1, $2, $3, $4, $5, $6)",
        Change::Resume { .. } => "SELECT gristmill.resume_jobs($1, $2, $3, $4, $5)",
    }
}

/// The parameters of the statement after the jobs.
fn params(change: &Change) -> Vec<Param> {
    match change {
        Change::Cancel | Change::Retry | Change::Discard => Vec::new(),
        Change::Prioritise(priority) => vec![Box::new(-i32::from(*priority))],
        Change::Pause { reason, until } => {
            vec![Box::new(reason.clone()), Box::new(until.map(|until| until.0))]
        }
        Change::Resume { reason } => vec![Box::new(reason.clone())],
    }
}

impl Transaction {
    /// Changes jobs.
    pub async fn change(&mut self, selection: &Selection, change: &Change) -> Result<Changed> {
        let mut ended = Ended::default();
        let changed = match selection {
            Selection::Jobs(jobs) => {
                let meant = by_batch(jobs.iter().copied());
                if *change == Change::Retry {
                    self.refuse_steps(&meant).await?;
                    self.refuse_cleaned_up(&meant).await?;
                }
                self.change_named(change, meant, &[], &mut ended).await
            }
            Selection::Packed { jobs, states } => {
                let batches: Vec<i64> = jobs.iter().map(|jobs| jobs.batch.0).collect();
                let spared = self.spared(change, &batches).await?;
                let jobs = jobs.iter().filter(|jobs| !spared.contains(&jobs.batch.0));
                let meant = jobs.map(|jobs| (jobs.batch, jobs.positions.clone()));
                self.change_named(change, meant.collect(), states, &mut ended)
                    .await
            }
            Selection::Filter(filter) => self.change_matching(change, filter, &mut ended).await,
        }?;
        if changed.changed > 0 {
            match change {
                Change::Cancel => {
                    self.settle(ended).await?;
                    self.freed();
                }
                Change::Retry | Change::Resume { .. } => self.writes.news.woke = true,
                Change::Discard | Change::Prioritise(_) | Change::Pause { .. } => {}
            }
        }
        Ok(changed)
    }

    /// The batches that a change by conditions spares: a cancel can be repeated, and leaves instances that clean up after flows, with
    /// their steps.
    async fn spared(&self, change: &Change, batches: &[i64]) -> Result<HashSet<i64>> {
        if *change != Change::Cancel {
            return Ok(HashSet::new());
        }
        let sql = "WITH RECURSIVE up (batch_id, id) AS (SELECT b, b FROM unnest($1::bigint[]) b \
                   WHERE EXISTS (SELECT FROM gristmill.cleanup WHERE ends_at IS NOT NULL) \
                   UNION ALL SELECT up.batch_id, c.parent_id FROM up JOIN gristmill.child_batch c ON c.batch_id = up.id) \
                   SELECT DISTINCT up.batch_id FROM up JOIN gristmill.cleanup u ON u.batch_id = up.id AND u.ends_at IS NOT NULL";
        let rows = self.query(sql, &[&batches]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Refuses to retry named jobs if one of them is a step of a flow that has ended.
    async fn refuse_steps(&self, meant: &BTreeMap<BatchId, Positions>) -> Result<()> {
        let batches: Vec<i64> = meant.keys().map(|batch| batch.0).collect();
        let positions: Vec<Multirange> = meant.values().cloned().map(Multirange).collect();
        let sql = "SELECT step_batch, step_position, flow_batch, flow_position FROM gristmill.ended_step($1, $2) \
                   WHERE step_batch IS NOT NULL";
        let Some(row) = self.query_opt(sql, &[&batches, &positions]).await? else {
            return Ok(());
        };
        let job = |column: usize| -> Result<JobId> {
            Ok(JobId {
                batch: BatchId(row.try_get(column)?),
                position: number(&row, column + 1)?,
            })
        };
        Err(cannot_retry_step(job(0)?, job(2)?).into())
    }

    /// Refuses to retry named flows if one of them is cleaned up after.
    async fn refuse_cleaned_up(&self, meant: &BTreeMap<BatchId, Positions>) -> Result<()> {
        let batches: Vec<i64> = meant.keys().map(|batch| batch.0).collect();
        let sql = "SELECT batch_id, positions FROM gristmill.cleanup WHERE batch_id = ANY ($1) AND ends_at IS NULL ORDER BY batch_id, id";
        for row in self.query(sql, &[&batches]).await? {
            let batch = BatchId(row.try_get(0)?);
            let cleaned_up = row.try_get::<_, Multirange>(1)?.0;
            let found = meant.get(&batch).map(|meant| meant.intersection(&cleaned_up));
            if let Some(position) = found.and_then(|found| found.first()) {
                return Err(cannot_retry_cleaned_up(JobId { batch, position }).into());
            }
        }
        Ok(())
    }

    /// Changes those of the named jobs that are in one of the states (in any, if none is named).
    async fn change_named(
        &mut self,
        change: &Change,
        meant: BTreeMap<BatchId, Positions>,
        states: &[JobState],
        ended: &mut Ended,
    ) -> Result<Changed> {
        let names: Vec<&str> = states.iter().map(|state| state.name()).collect();
        let named: u64 = meant.values().map(|positions| u64::from(positions.len())).sum();
        let (batches, meant): (Vec<i64>, Vec<Multirange>) = meant
            .into_iter()
            .map(|(batch, positions)| (batch.0, Multirange(positions)))
            .unzip();
        let changed = self.change_in(change, &batches, &meant, &names, ended).await?;
        assert!(changed <= named, "only named jobs change");
        Ok(Changed {
            changed,
            unchanged: named.saturating_sub(changed),
        })
    }

    /// Changes the matching jobs, a portion per statement, all in this transaction. It locks all of the batches before
    /// it changes the first portion (see `gristmill.lock_batches`).
    async fn change_matching(
        &mut self,
        change: &Change,
        filter: &JobFilter,
        ended: &mut Ended,
    ) -> Result<Changed> {
        let is_meant = |state: &&JobState| filter.states.is_empty() || filter.states.contains(*state);
        let states: Vec<JobState> = change.states().iter().filter(is_meant).copied().collect();
        let mut changed = Changed::default();
        if states.is_empty() {
            return Ok(changed);
        }
        let names: Vec<&str> = states.iter().map(|state| state.name()).collect();
        let narrowed = match Narrowing::of(filter) {
            None => None,
            Some(narrowing) => {
                let rows = self.query(&narrowing.sql, &narrowing.conditions.params()).await?;
                Some(Narrowing::read(&rows)?)
            }
        };
        let mut batches = self.matching(filter, narrowed.as_ref(), &states).await?;
        if filter.batch.is_none() {
            let spared = self.spared(change, &batches).await?;
            batches.retain(|batch| !spared.contains(batch));
        }
        self.execute(
            "SELECT FROM gristmill.batch WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE",
            &[&batches],
        )
        .await?;
        for batches in batches.chunks(CHANGED_BATCHES_PER_STATEMENT) {
            let meant = |batch: &i64| match &narrowed {
                None => Multirange(Positions::all(BATCH_JOBS_MAX)),
                Some(narrowed) => Multirange(narrowed.get(&BatchId(*batch)).cloned().unwrap_or_default()),
            };
            let meant: Vec<Multirange> = batches.iter().map(meant).collect();
            changed.changed += self.change_in(change, batches, &meant, &names, ended).await?;
        }
        Ok(changed)
    }

    /// The matching batches that may have jobs in these states, by id ascending. It ignores batches that are submitted
    /// meanwhile, so that it always ends.
    async fn matching(
        &mut self,
        filter: &JobFilter,
        narrowed: Option<&Narrowed>,
        states: &[JobState],
    ) -> Result<Vec<i64>> {
        let last = self.query_opt("SELECT max(id) FROM gristmill.batch", &[]).await?;
        let last: Option<i64> = last.map(|row| row.try_get(0)).transpose()?.flatten();
        let candidates = Candidates::new(filter, narrowed, states, "b.id");
        let mut batches: Vec<i64> = Vec::new();
        loop {
            let first = batches.last().map_or(0, |batch| batch + 1);
            let rows = self
                .query(candidates.sql(), &candidates.params(&first, &LOOK_BATCHES_MAX))
                .await?;
            for row in &rows {
                let batch: i64 = row.try_get(0)?;
                if last.is_none_or(|last| batch > last) {
                    return Ok(batches);
                }
                batches.push(batch);
            }
            if (rows.len() as i64) < LOOK_BATCHES_MAX {
                return Ok(batches);
            }
        }
    }

    /// Cancels jobs in any state that are open, with their descendants. The caller settles what that ended.
    pub async fn cancel_trees(&mut self, batches: &[i64], meant: &[Multirange]) -> Result<Ended> {
        let mut ended = Ended::default();
        self.change_in(&Change::Cancel, batches, meant, &[], &mut ended)
            .await?;
        Ok(ended)
    }

    pub async fn change_in(
        &mut self,
        change: &Change,
        batches: &[i64],
        meant: &[Multirange],
        states: &[&str],
        ended: &mut Ended,
    ) -> Result<u64> {
        self.writes.news.changed_slices = true;
        let others = params(change);
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&batches, &meant, &states, &self.now.0];
        params.extend(others.iter().map(|param| &**param as &(dyn ToSql + Sync)));
        let Some(row) = self.query_opt(sql(change), &params).await? else {
            return Ok(0);
        };
        if *change == Change::Cancel {
            ended.add_columns(&row, 1)?;
        }
        sum(&row, 0)
    }
}
