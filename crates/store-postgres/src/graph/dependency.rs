//! Jobs that wait for others.
//!
//! Waiting jobs are rows of `blocked`, which claims do not read; each prerequisite of them is a row of `edge`. An
//! operation that ends jobs of an awaited batch settles the edges to them (`gristmill.settle`) in its transaction.

use std::collections::{BTreeMap, HashMap};

use gristmill_model::{BatchId, NewBatch, Positions};
use gristmill_store::StoreError;
use gristmill_store::rules::dependency::{Edge, WaitingJobs, check_stored, stored_prerequisites};
use gristmill_store::rules::open::Blocked;
use tokio_postgres::Row;

use crate::database::answers::Pending;
use crate::database::columns::{number, sum};
use crate::database::connection::Param;
use crate::database::rows::read_blocked;
use crate::database::transaction::Transaction;
use crate::failure::{Failure, Result};
use crate::multirange::Multirange;

/// Batches whose jobs have ended, each with the positions that have ended.
#[derive(Debug, Default)]
pub(crate) struct Ended(BTreeMap<BatchId, Positions>);

impl Ended {
    pub fn add(&mut self, batch: BatchId, positions: &Positions) {
        if !positions.is_empty() {
            let known = self.0.entry(batch).or_default();
            *known = known.union(positions);
        }
    }

    /// Adds what may have ended of a batch, perhaps long before. A flow that wakes on any child does not take that for
    /// news.
    pub fn add_all(&mut self, batch: BatchId) {
        self.0.insert(batch, Positions::all(i32::MAX.unsigned_abs()));
    }

    /// Adds the columns of batches and of positions that functions of the schema return; `NULL` where nothing has ended.
    pub fn add_columns(&mut self, row: &Row, first: usize) -> Result<()> {
        let batches: Option<Vec<i64>> = row.try_get(first)?;
        let positions: Option<Vec<Multirange>> = row.try_get(first + 1)?;
        let all = batches.into_iter().flatten().zip(positions.into_iter().flatten());
        all.for_each(|(batch, positions)| self.add(BatchId(batch), &positions.0));
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn batches(&self) -> Vec<i64> {
        self.0.keys().map(|batch| batch.0).collect()
    }

    /// The parameters of `gristmill.settle`.
    pub fn into_params(self) -> (Vec<i64>, Vec<Multirange>) {
        let all = self.0.into_iter();
        all.map(|(batch, positions)| (batch.0, Multirange(positions)))
            .unzip()
    }
}

impl Transaction {
    /// The number of jobs in each of these prerequisites. Locks their open jobs until the edges to them are stored.
    pub async fn lock_prerequisites(&self, stored: &[i64]) -> Result<HashMap<BatchId, u32>> {
        self.query("SELECT gristmill.lock_batches($1)", &[&stored])
            .await?;
        let rows = self
            .query(
                "SELECT id, count FROM gristmill.batch WHERE id = ANY ($1)",
                &[&stored],
            )
            .await?;
        rows.iter()
            .map(|row| Ok((BatchId(row.try_get(0)?), number(row, 1)?)))
            .collect()
    }

    /// Marks stored batches as awaited.
    pub async fn await_batches(&mut self, stored: &[i64]) -> Result<()> {
        self.writes.news.changed_slices = true;
        self.query("SELECT gristmill.await($1)", &[&stored]).await?;
        Ok(())
    }

    /// Settles the edges to ended jobs.
    pub async fn settle(&mut self, ended: Ended) -> Result<()> {
        match self.send_settle(ended).await? {
            Some(settling) => self.settled(settling).await,
            None => Ok(()),
        }
    }

    /// Sends the gathered writes and, behind them, what settles the edges to ended jobs. What is sent next sees the jobs that
    /// became claimable. `None` if nothing has ended.
    pub async fn send_settle(&mut self, ended: Ended) -> Result<Option<Pending<Vec<Row>>>> {
        if ended.is_empty() {
            return Ok(None);
        }
        self.flush_behind().await?;
        let (batches, meant) = ended.into_params();
        let params: Vec<Param> = vec![Box::new(batches), Box::new(meant), Box::new(self.now.0)];
        let settling = self.send("SELECT gristmill.settle($1, $2::int4multirange[], $3)", params);
        settling.await.map(Some)
    }

    /// Waits for the answer to [`send_settle`](Transaction::send_settle).
    pub async fn settled(&mut self, settling: Pending<Vec<Row>>) -> Result<()> {
        let rows = settling.await?;
        self.writes.news.jobs_made += rows.first().map_or(Ok(0), |row| sum(row, 0))?;
        Ok(())
    }

    /// The stored batches that jobs of these batches wait for before they begin.
    pub async fn prerequisites_of(&self, batches: &[i64]) -> Result<Vec<i64>> {
        let rows = self
            .query(
                "SELECT DISTINCT prerequisite_id FROM gristmill.edge WHERE batch_id = ANY ($1) AND on_failure <> 'children'",
                &[&batches],
            )
            .await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// The prerequisites of these jobs, by part; jobs that have begun are omitted. The batches of both must be locked.
    pub async fn waiting_of(
        &self,
        jobs: &BTreeMap<BatchId, Positions>,
    ) -> Result<Vec<(BatchId, WaitingJobs)>> {
        let (batches, positions): (Vec<i64>, Vec<Multirange>) = jobs
            .iter()
            .map(|(batch, positions)| (batch.0, Multirange(positions.clone())))
            .unzip();
        let rows = self
            .query(
                "SELECT w.batch_id, w.part, w.positions * m.positions, e.prerequisite_id, e.on_failure, e.positions \
                 FROM unnest($1::bigint[], $2::int4multirange[]) m (batch_id, positions) \
                 JOIN gristmill.blocked w ON w.batch_id = m.batch_id AND w.positions && m.positions \
                 JOIN gristmill.edge e ON e.batch_id = w.batch_id AND e.part = w.part AND e.on_failure <> 'children' \
                 ORDER BY w.batch_id, w.part",
                &[&batches, &positions],
            )
            .await?;
        let mut all: Vec<(BatchId, WaitingJobs)> = Vec::new();
        let mut last = None;
        for row in &rows {
            let part: (i64, i32) = (row.try_get(0)?, row.try_get(1)?);
            if last != Some(part) {
                let positions = row.try_get::<_, Multirange>(2)?.0;
                let edges = Vec::new();
                all.push((BatchId(part.0), WaitingJobs { positions, edges }));
                last = Some(part);
            }
            let on_failure: &str = row.try_get(4)?;
            let edge = Edge {
                prerequisite: BatchId(row.try_get(3)?),
                on_failure: on_failure
                    .parse()
                    .map_err(|error| Failure::Damaged(format!("an edge: {error}")))?,
                positions: row.try_get::<_, Option<Multirange>>(5)?.map(|only| only.0),
            };
            all.iter_mut()
                .last()
                .into_iter()
                .for_each(|(_, waiting)| waiting.edges.push(edge.clone()));
        }
        Ok(all)
    }

    /// The jobs that waited for longer than they may, locked, except those that others are working on.
    pub async fn expired_blocked(&self, rows_max: i64) -> Result<Vec<Blocked>> {
        let rows = self
            .query(
                "SELECT batch_id, part, attempt, rescues, expires_at, positions, rank, family FROM gristmill.blocked \
                 WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED",
                &[&self.now.0, &rows_max],
            )
            .await?;
        rows.iter().map(read_blocked).collect()
    }
}

/// Refuses batches that wait for jobs that do not exist.
pub(crate) fn check_prerequisites<'a>(
    batches: impl Iterator<Item = &'a NewBatch>,
    counts: &HashMap<BatchId, u32>,
) -> std::result::Result<(), StoreError> {
    for (batch, last) in stored_prerequisites(batches) {
        check_stored(batch, counts.get(&batch).copied(), last)?;
    }
    Ok(())
}
