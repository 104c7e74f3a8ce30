//! Changing jobs from outside: cancel, retry, discard, prioritise, pause and resume, by the same functions that SQL clients call.

pub(crate) mod pause;
pub(crate) mod prune;

use std::collections::BTreeMap;

use gristmill_model::limits::BATCH_JOBS_MAX;
use gristmill_model::{BatchId, JobId, JobState, Positions, Timestamp};
use gristmill_store::query::Narrowed;
use gristmill_store::{Changed, JobFilter, Selection};
use tokio_postgres::types::ToSql;

use crate::database::columns::sum;
use crate::database::connection::Param;
use crate::database::transaction::Transaction;
use crate::failure::Result;
use crate::graph::dependency::Ended;
use crate::limits::CHANGED_BATCHES_PER_STATEMENT;
use crate::multirange::Multirange;
use crate::query::filter::{Candidates, LOOK_BATCHES_MAX};
use crate::query::tag::Narrowing;

/// A change of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change<'a> {
    Cancel,
    Retry,
    Discard,
    /// To this rank.
    Prioritise(i32),
    /// For this reason, until then.
    Pause(&'a str, Option<Timestamp>),
    /// The pause of this reason.
    Resume(Option<&'a str>),
}

impl Change<'_> {
    fn sql(self) -> &'static str {
        match self {
            Change::Cancel => "SELECT gristmill.cancel_with_keys($1, $2, $3, $4)",
            Change::Retry => "SELECT gristmill.retry_with_keys($1, $2, $3, $4)",
            Change::Discard => "SELECT gristmill.discard_jobs($1, $2, $3, $4)",
            Change::Prioritise(_) => "SELECT gristmill.prioritise_jobs($1, $2, $3, $4, $5)",
            Change::Pause(..) => "SELECT gristmill.pause_jobs($1, $2, $3, $4, $5, $6)",
            Change::Resume(_) => "SELECT gristmill.resume_jobs($1, $2, $3, $4, $5)",
        }
    }

    /// What its statement takes besides the jobs.
    fn params(self) -> Vec<Param> {
        match self {
            Change::Cancel | Change::Retry | Change::Discard => Vec::new(),
            Change::Prioritise(rank) => vec![Box::new(rank)],
            Change::Pause(reason, until) => {
                vec![Box::new(reason.to_owned()), Box::new(until.map(|until| until.0))]
            }
            Change::Resume(reason) => vec![Box::new(reason.map(str::to_owned))],
        }
    }

    /// The states that it can change.
    fn states(self) -> &'static [JobState] {
        match self {
            Change::Cancel | Change::Prioritise(_) | Change::Pause(..) => &[
                JobState::Blocked,
                JobState::Waiting,
                JobState::Scheduled,
                JobState::Paused,
                JobState::Running,
            ],
            Change::Retry => &[JobState::Dead, JobState::Cancelled, JobState::Expired],
            Change::Discard => &[JobState::Dead],
            Change::Resume(_) => &[JobState::Paused, JobState::Running],
        }
    }
}

impl Transaction {
    /// Cancels jobs that are not over.
    pub async fn cancel(&mut self, selection: &Selection) -> Result<Changed> {
        let mut ended = Ended::default();
        let changed = self.change(Change::Cancel, selection, &mut ended).await?;
        if changed.changed > 0 {
            self.settle(ended).await?;
            self.freed();
        }
        Ok(changed)
    }

    /// Makes dead, cancelled and expired jobs claimable again.
    pub async fn retry(&mut self, selection: &Selection) -> Result<Changed> {
        let changed = self
            .change(Change::Retry, selection, &mut Ended::default())
            .await?;
        self.writes.woke |= changed.changed > 0;
        Ok(changed)
    }

    /// Ends dead jobs as cancelled.
    pub async fn discard(&mut self, selection: &Selection) -> Result<Changed> {
        self.change(Change::Discard, selection, &mut Ended::default())
            .await
    }

    /// Gives jobs that are not over another priority.
    pub async fn prioritise(&mut self, selection: &Selection, priority: i16) -> Result<Changed> {
        let change = Change::Prioritise(-i32::from(priority));
        self.change(change, selection, &mut Ended::default()).await
    }

    /// Keeps jobs that are not over from being claimed.
    pub async fn pause_jobs(
        &mut self,
        selection: &Selection,
        reason: &str,
        until: Option<Timestamp>,
    ) -> Result<Changed> {
        let change = Change::Pause(reason, until);
        self.change(change, selection, &mut Ended::default()).await
    }

    /// Ends pauses of jobs.
    pub async fn resume_jobs(&mut self, selection: &Selection, reason: Option<&str>) -> Result<Changed> {
        let change = Change::Resume(reason);
        let changed = self.change(change, selection, &mut Ended::default()).await?;
        self.writes.woke |= changed.changed > 0;
        Ok(changed)
    }

    async fn change(
        &mut self,
        change: Change<'_>,
        selection: &Selection,
        ended: &mut Ended,
    ) -> Result<Changed> {
        match selection {
            Selection::Jobs(jobs) => self.change_named(change, jobs, ended).await,
            Selection::Filter(filter) => self.change_matching(change, filter, ended).await,
        }
    }

    async fn change_named(
        &mut self,
        change: Change<'_>,
        jobs: &[JobId],
        ended: &mut Ended,
    ) -> Result<Changed> {
        let mut meant: BTreeMap<BatchId, Positions> = BTreeMap::new();
        for job in jobs {
            meant.entry(job.batch).or_default().insert(job.position);
        }
        let named: u64 = meant.values().map(|positions| u64::from(positions.len())).sum();
        let (batches, meant): (Vec<i64>, Vec<Multirange>) = meant
            .into_iter()
            .map(|(batch, positions)| (batch.0, Multirange(positions)))
            .unzip();
        batches.iter().for_each(|batch| ended.add_all(BatchId(*batch)));
        let changed = self.change_in(change, &batches, &meant, &[]).await?;
        Ok(Changed {
            changed,
            unchanged: named.saturating_sub(changed),
        })
    }

    /// Changes what matches, a statement a portion, all in this transaction. All of the batches are locked before the
    /// first portion is changed (see `gristmill.lock_batches`).
    async fn change_matching(
        &mut self,
        change: Change<'_>,
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
        let batches = self.matching(filter, narrowed.as_ref(), &states).await?;
        self.execute(
            "SELECT FROM gristmill.batch WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE",
            &[&batches],
        )
        .await?;
        batches.iter().for_each(|batch| ended.add_all(BatchId(*batch)));
        for batches in batches.chunks(CHANGED_BATCHES_PER_STATEMENT) {
            let meant = |batch: &i64| match &narrowed {
                None => Multirange(Positions::all(BATCH_JOBS_MAX)),
                Some(narrowed) => Multirange(narrowed.get(&BatchId(*batch)).cloned().unwrap_or_default()),
            };
            let meant: Vec<Multirange> = batches.iter().map(meant).collect();
            changed.changed += self.change_in(change, batches, &meant, &names).await?;
        }
        Ok(changed)
    }

    /// The batches that match and may have jobs in these states, by id ascending. Those that are submitted meanwhile are
    /// left out, so that this ends however many they are.
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

    async fn change_in(
        &mut self,
        change: Change<'_>,
        batches: &[i64],
        meant: &[Multirange],
        states: &[&str],
    ) -> Result<u64> {
        let others = change.params();
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&batches, &meant, &states, &self.now.0];
        params.extend(others.iter().map(|param| &**param as &(dyn ToSql + Sync)));
        let row = self.query_opt(change.sql(), &params).await?;
        row.map_or(Ok(0), |row| sum(&row, 0))
    }
}
