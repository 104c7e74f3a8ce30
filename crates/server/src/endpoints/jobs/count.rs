//! `GET /jobs/count`: the number of matching jobs.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_operations::jobs::list::{self, Counted, JobsQuery};

use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// Count jobs
///
/// The conditions are those of the list of jobs, without `after`, `limit` and `newest`.
#[utoipa::path(
    get,
    path = "/jobs/count",
    tag = "jobs",
    operation_id = "count_jobs",
    params(JobsQuery),
    responses(
        (status = 200, description = "The number of jobs that match", body = Counted),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn count_jobs(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<JobsQuery>,
) -> Result<Json<Counted>, ApiError> {
    Ok(Json(list::count_jobs(&app.engine, &caller.access, query).await?))
}
