//! Runs.

use gristmill_model::limits::BATCH_JOBS_MAX;
use gristmill_model::{NewBatch, Positions, RunId, Timestamp};
use gristmill_store::run::RunProgress;
use gristmill_store::{NewRun, Run, RunAdvance, RunState, StoreError};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use crate::database::columns::sum;
use crate::database::snapshot::Snapshot;
use crate::database::transaction::Transaction;
use crate::failure::{Failure, Result};
use crate::multirange::Multirange;

const COLUMNS: &str = "id, name, description, state, jobs, bytes, lines, crc32, created_at";

fn read_run(row: &Row) -> Result<Run> {
    let state: &str = row.try_get(3)?;
    Ok(Run {
        id: RunId(row.try_get(0)?),
        name: row.try_get(1)?,
        description: row.try_get(2)?,
        state: RunState::named(state)
            .ok_or_else(|| Failure::Damaged(format!("a run has the state `{state}`")))?,
        progress: RunProgress {
            jobs: sum(row, 4)?,
            bytes: sum(row, 5)?,
            lines: sum(row, 6)?,
            crc32: u32::try_from(row.try_get::<_, i64>(7)?).unwrap_or_default(),
        },
        created_at: Timestamp(row.try_get(8)?),
    })
}

/// The run of that name.
pub(crate) async fn run_named(snapshot: &Snapshot, name: &str) -> Result<Option<Run>> {
    let sql = format!("SELECT {COLUMNS} FROM gristmill.run WHERE name = $1");
    let row = snapshot.query_opt(&sql, &[&name]).await?;
    row.as_ref().map(read_run).transpose()
}

/// All runs, latest first.
pub(crate) async fn runs(snapshot: &Snapshot) -> Result<Vec<Run>> {
    let sql = format!("SELECT {COLUMNS} FROM gristmill.run ORDER BY id DESC");
    snapshot.query(&sql, &[]).await?.iter().map(read_run).collect()
}

impl Transaction {
    /// Begins a run.
    pub async fn create_run(&mut self, run: &NewRun) -> Result<Run> {
        let sql = format!(
            "INSERT INTO gristmill.run (name, description, state, jobs, bytes, lines, crc32, created_at) \
             VALUES ($1, $2, $3, 0, 0, 0, 0, $4) ON CONFLICT (name) DO NOTHING RETURNING {COLUMNS}"
        );
        let state = RunState::Submitting.name();
        match self
            .query_opt(&sql, &[&run.name, &run.description, &state, &self.now.0])
            .await?
        {
            Some(row) => read_run(&row),
            None => Err(StoreError::RunExists(run.name.clone()).into()),
        }
    }

    /// Advances a run in its input.
    pub async fn advance_run(&mut self, advance: &RunAdvance) -> Result<()> {
        let progress = advance.progress;
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let changed = self
            .execute(
                "UPDATE gristmill.run SET state = $2, jobs = $3, bytes = $4, lines = $5, crc32 = $6 WHERE id = $1",
                &[
                    &advance.run.0,
                    &advance.state.name(),
                    &number(progress.jobs),
                    &number(progress.bytes),
                    &number(progress.lines),
                    &i64::from(progress.crc32),
                ],
            )
            .await?;
        known(advance.run, changed)
    }

    /// Changes what a run stores.
    pub async fn update_run(&mut self, run: RunId, new: &NewRun, state: RunState) -> Result<()> {
        let changed = self
            .execute(
                "UPDATE gristmill.run SET name = $2, description = $3, state = $4 WHERE id = $1",
                &[&run.0, &new.name, &new.description, &state.name()],
            )
            .await;
        match changed {
            Ok(changed) => known(run, changed),
            Err(Failure::Postgres(error)) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
                Err(StoreError::RunExists(new.name.clone()).into())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Finishes a run, and stores its hook's job if the run was not finished before.
    pub async fn finish_run(&mut self, run: RunId, new: &NewRun, hook: &NewBatch) -> Result<()> {
        let row = self
            .query_opt(
                "SELECT state FROM gristmill.run WHERE id = $1 FOR UPDATE",
                &[&run.0],
            )
            .await?;
        let state: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
        self.update_run(run, new, RunState::Finished).await?;
        if state.as_deref() != Some(RunState::Finished.name()) {
            for id in self.next_batch_ids(1).await? {
                self.insert_batch(id, hook)?;
            }
        }
        Ok(())
    }

    /// Deletes a run with all its batches. The row of the run goes first: a concurrent submit to the run waits for
    /// this, and then finds no run.
    pub async fn delete_run(&mut self, run: RunId) -> Result<()> {
        let deleted = self
            .execute("DELETE FROM gristmill.run WHERE id = $1", &[&run.0])
            .await?;
        known(run, deleted)?;
        let batches = self
            .query(
                "SELECT id FROM gristmill.batch WHERE run_id = $1 ORDER BY id",
                &[&run.0],
            )
            .await?;
        let batches: Vec<i64> = batches
            .iter()
            .map(|row| row.try_get(0))
            .collect::<std::result::Result<_, _>>()?;
        let all = vec![Multirange(Positions::all(BATCH_JOBS_MAX)); batches.len()];
        let ended = self.cancel_trees(&batches, &all).await?;
        self.settle(ended).await?;
        self.delete_batches(&batches).await?;
        Ok(())
    }
}

fn known(run: RunId, changed: u64) -> Result<()> {
    match changed {
        0 => Err(StoreError::RunUnknown(run).into()),
        _ => Ok(()),
    }
}
