//! `GET /runs`: resumable runs, the newest first.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use gristmill_store::{JobCounts, JobFilter, Run, StoreError};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::body::Query;
use crate::error::{ApiError, Refusal};
use crate::limits::RUN_ROWS_MAX;
use crate::rate::recent::Recent;

/// The default number of runs in an answer.
const ROWS: u32 = 20;

/// The number of listed runs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RunsQuery {
    /// The maximum number of runs; 20 by default.
    #[serde(default)]
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
    /// The greatest allowed age of the answer, so that the server can share one answer among callers. If counting is
    /// slow, the answer may be as old as 50 times its duration. Without this, the answer is new. Milliseconds.
    #[serde(default)]
    #[param(minimum = 0, maximum = 60_000)]
    age_ms_max: Option<u64>,
}

/// One run.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunView {
    /// Its name.
    run: String,
    /// `submitting` until its input is at its end, `submitted` until its output is written, then `finished`.
    #[schema(example = "submitting")]
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
    #[schema(value_type = Object)]
    states: JobCounts,
}

/// Runs.
#[derive(Debug, Serialize, ToSchema)]
pub struct Runs {
    /// The newest first.
    runs: Vec<RunView>,
    /// The number of all runs.
    total: u64,
}

/// List runs
#[utoipa::path(
    get,
    path = "/runs",
    tag = "watching",
    operation_id = "runs",
    params(RunsQuery),
    responses(
        (status = 200, description = "Runs with their progress", body = Runs),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn runs(State(app): State<App>, Query(query): Query<RunsQuery>) -> Result<Json<Runs>, ApiError> {
    let limit = query.limit.unwrap_or(ROWS);
    if limit == 0 || limit > RUN_ROWS_MAX {
        return Err(ApiError::invalid(
            format!("`limit` is {limit}"),
            format!("give 1 to {RUN_ROWS_MAX}"),
        ));
    }
    let recent = app.state::<Recent<u32, CountedRuns>>();
    let counted = recent.get(limit, query.age_ms_max, count(&app, limit)).await?;
    let (total, runs) = &*counted;
    let runs = runs.iter().map(|(run, states)| RunView {
        run: run.name.clone(),
        state: run.state.name().to_owned(),
        created_at: run.created_at.0,
        jobs_submitted: run.progress.jobs,
        lines_read: run.progress.lines,
        bytes_read: run.progress.bytes,
        states: *states,
    });
    Ok(Json(Runs {
        runs: runs.collect(),
        total: *total,
    }))
}

/// The number of all runs, and the newest ones with the states of their jobs.
type CountedRuns = Arc<(u64, Vec<(Run, JobCounts)>)>;

/// Counts the jobs of the newest runs.
async fn count(app: &App, limit: u32) -> Result<CountedRuns, StoreError> {
    let stored = app.store().runs().await?;
    let total = stored.len() as u64;
    let mut runs = Vec::new();
    for run in stored.into_iter().take(limit as usize) {
        let filter = JobFilter {
            run: Some(run.id),
            ..JobFilter::default()
        };
        let states = app.store().counts(&filter).await?;
        runs.push((run, states));
    }
    Ok(Arc::new((total, runs)))
}
