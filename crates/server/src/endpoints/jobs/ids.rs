//! `GET /jobs/ids`: the ids of matching jobs, packed.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_operations::jobs::ids::{self, JobIdsPage};
use gristmill_operations::jobs::list::JobsQuery;

use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// List the ids of jobs
///
/// Ids are packed by batch: ten thousand matching jobs of one batch are one short line.
#[utoipa::path(
    get,
    path = "/jobs/ids",
    tag = "jobs",
    operation_id = "job_ids",
    params(JobsQuery),
    responses(
        (status = 200, description = "A page of batches, with the matching jobs of each", body = JobIdsPage),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn job_ids(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<JobsQuery>,
) -> Result<Json<JobIdsPage>, ApiError> {
    Ok(Json(ids::job_ids(&app.engine, &caller.access, query).await?))
}
