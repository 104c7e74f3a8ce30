//! Runs.

use gristmill_model::limits::BATCH_JOBS_MAX;
use gristmill_model::{BatchId, NewBatch, Positions, RunId, Timestamp};
use gristmill_store::run::RunProgress;
use gristmill_store::{BatchPositions, NewRun, Run, RunAdvance, RunState, StoreError};
use rusqlite::{Connection, params};

use crate::failure::{Failure, Result};
use crate::transaction::Transaction;

const COLUMNS: &str = "id, name, description, state, jobs, bytes, lines, crc32, created_at";

fn read_run(row: &rusqlite::Row<'_>) -> Result<Run> {
    let state = row.get_ref(3)?.as_str().map_err(rusqlite::Error::from)?;
    let count = |column: usize| -> Result<u64> { Ok(row.get::<_, i64>(column)?.unsigned_abs()) };
    Ok(Run {
        id: RunId(row.get(0)?),
        name: row.get(1)?,
        description: row.get(2)?,
        state: RunState::named(state)
            .ok_or_else(|| Failure::Damaged(format!("a run has the state `{state}`")))?,
        progress: RunProgress {
            jobs: count(4)?,
            bytes: count(5)?,
            lines: count(6)?,
            crc32: row.get(7)?,
        },
        created_at: Timestamp(row.get(8)?),
    })
}

/// The run of that name.
pub(crate) fn run_named(connection: &Connection, name: &str) -> Result<Option<Run>> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM run WHERE name = ?1"))?;
    let mut rows = statement.query([name])?;
    rows.next()?.map(read_run).transpose()
}

/// All runs, latest first.
pub(crate) fn runs(connection: &Connection) -> Result<Vec<Run>> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM run ORDER BY id DESC"))?;
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(read_run(row)?);
    }
    Ok(all)
}

impl Transaction<'_> {
    /// Begins a run.
    pub fn create_run(&mut self, run: &NewRun) -> Result<Run> {
        if run_named(self.connection, &run.name)?.is_some() {
            return Err(StoreError::RunExists(run.name.clone()).into());
        }
        self.execute(
            "INSERT INTO run (name, description, state, jobs, bytes, lines, crc32, created_at) \
             VALUES (?1, ?2, ?3, 0, 0, 0, 0, ?4)",
            params![run.name, run.description, RunState::Submitting.name(), self.now.0],
        )?;
        Ok(Run {
            id: RunId(self.connection.last_insert_rowid()),
            name: run.name.clone(),
            description: run.description.clone(),
            state: RunState::Submitting,
            progress: RunProgress::default(),
            created_at: self.now,
        })
    }

    /// Advances a run in its input.
    pub fn advance_run(&mut self, advance: &RunAdvance) -> Result<()> {
        let progress = advance.progress;
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let changed = self.execute(
            "UPDATE run SET state = ?2, jobs = ?3, bytes = ?4, lines = ?5, crc32 = ?6 WHERE id = ?1",
            params![
                advance.run.0,
                advance.state.name(),
                number(progress.jobs),
                number(progress.bytes),
                number(progress.lines),
                progress.crc32
            ],
        )?;
        known(advance.run, changed)
    }

    /// Changes what a run stores.
    pub fn update_run(&mut self, run: RunId, new: &NewRun, state: RunState) -> Result<()> {
        if run_named(self.connection, &new.name)?.is_some_and(|other| other.id != run) {
            return Err(StoreError::RunExists(new.name.clone()).into());
        }
        let changed = self.execute(
            "UPDATE run SET name = ?2, description = ?3, state = ?4 WHERE id = ?1",
            params![run.0, new.name, new.description, state.name()],
        )?;
        known(run, changed)
    }

    /// Finishes a run, and stores its hook's job if the run was not finished before.
    pub fn finish_run(&mut self, run: RunId, new: &NewRun, hook: &NewBatch) -> Result<()> {
        let state: Option<String> =
            self.row("SELECT state FROM run WHERE id = ?1", [run.0], |row| row.get(0))?;
        self.update_run(run, new, RunState::Finished)?;
        if state.as_deref() != Some(RunState::Finished.name()) {
            self.submit(std::slice::from_ref(hook), None)?;
        }
        Ok(())
    }

    /// Deletes a run with all its batches.
    pub fn delete_run(&mut self, run: RunId) -> Result<()> {
        known(run, self.execute("DELETE FROM run WHERE id = ?1", [run.0])?)?;
        let batches: Vec<BatchId> = self.rows("SELECT id FROM batch WHERE run_id = ?1", [run.0], |row| {
            Ok(BatchId(row.get(0)?))
        })?;
        let all = batches.iter().map(|batch| BatchPositions {
            batch: *batch,
            positions: Positions::all(BATCH_JOBS_MAX),
        });
        let ended = self.cancel_descendants(all.collect())?;
        self.settle(ended)?;
        for batch in batches {
            self.delete_batch(batch)?;
        }
        Ok(())
    }
}

fn known(run: RunId, changed: usize) -> Result<()> {
    match changed {
        0 => Err(StoreError::RunUnknown(run).into()),
        _ => Ok(()),
    }
}
