//! `GET /runs`: resumable runs, the newest first.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use gristmill_operations::runs::{CountedRuns, Runs, RunsQuery};
use gristmill_store::StoreError;

use crate::app::App;
use crate::body::Query;
use crate::error::{ApiError, Refusal};
use crate::rate::recent::Recent;

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
    let rows = query.rows()?;
    let count = async { Ok::<_, StoreError>(Arc::new(CountedRuns::count(&**app.store(), rows).await?)) };
    let recent = app.state::<Recent<u32, Arc<CountedRuns>>>();
    let counted = recent.get(rows, query.age_ms_max, count).await?;
    Ok(Json((&*counted).into()))
}
