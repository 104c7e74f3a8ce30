//! Resumable runs, the newest first.

use gristmill_engine::Engine;
use gristmill_store::{JobCounts, JobFilter, Run, Store, StoreError};
use serde::{Deserialize, Serialize};

use crate::limits::RUN_ROWS_MAX;
use crate::read::check_rows;
use crate::refused::Refused;

/// The default number of runs in an answer.
const ROWS: u32 = 20;

/// The number of listed runs.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", into_params(parameter_in = Query))]
pub struct RunsQuery {
    /// The maximum number of runs; 20 by default.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(minimum = 1, maximum = 100))]
    limit: Option<u32>,
    /// The greatest allowed age of the answer, so that the server can share one answer among callers. If counting is
    /// slow, the answer may be as old as 100 times its duration. Without this, the answer is new. Milliseconds.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(minimum = 0, maximum = 60_000))]
    pub age_ms_max: Option<u64>,
}

/// One run.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunView {
    /// Its name.
    run: String,
    /// `submitting` until its input is at its end, `submitted` until its output is written, then `finished`.
    #[cfg_attr(feature = "schema", schema(example = "submitting"))]
    state: String,
    /// Its start. Milliseconds since 1970.
    created_at: i64,
    /// The number of submitted jobs.
    jobs_submitted: u64,
    /// The number of input lines that these jobs came from.
    lines_read: u64,
    /// The number of decompressed input bytes that these jobs came from.
    bytes_read: u64,
    /// The stored jobs by state. Jobs that a prune deleted do not count.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    states: JobCounts,
}

/// Runs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Runs {
    /// The newest first.
    runs: Vec<RunView>,
    /// The number of all runs.
    total: u64,
}

/// The newest runs, with the states of their jobs.
#[derive(Debug)]
pub struct CountedRuns {
    newest: Vec<(Run, JobCounts)>,
    total: u64,
}

impl RunsQuery {
    /// The number of listed runs.
    pub fn rows(&self) -> Result<u32, Refused> {
        check_rows(self.limit, ROWS, RUN_ROWS_MAX)
    }
}

impl CountedRuns {
    /// Counts the jobs of the newest runs.
    pub async fn count(store: &dyn Store, rows: u32) -> Result<CountedRuns, StoreError> {
        let stored = store.runs().await?;
        let total = stored.len() as u64;
        let mut newest = Vec::new();
        for run in stored.into_iter().take(rows as usize) {
            let filter = JobFilter {
                run: Some(run.id),
                ..JobFilter::default()
            };
            newest.push((run, store.counts(&filter).await?));
        }
        Ok(CountedRuns { newest, total })
    }
}

impl From<&CountedRuns> for Runs {
    fn from(counted: &CountedRuns) -> Self {
        let runs = counted.newest.iter().map(|(run, states)| RunView {
            run: run.name.clone(),
            state: run.state.name().to_owned(),
            created_at: run.created_at.0,
            jobs_submitted: run.progress.jobs,
            lines_read: run.progress.lines,
            bytes_read: run.progress.bytes,
            states: *states,
        });
        Runs {
            runs: runs.collect(),
            total: counted.total,
        }
    }
}

/// Lists runs.
pub async fn runs(engine: &Engine, query: RunsQuery) -> Result<Runs, Refused> {
    let counted = CountedRuns::count(&**engine.store(), query.rows()?).await?;
    Ok((&counted).into())
}
