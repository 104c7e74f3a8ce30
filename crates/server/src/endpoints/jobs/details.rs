//! `GET /jobs/{job}`: all data of one job.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_operations::jobs::details::{self, JobView};

use crate::app::App;
use crate::body::{NoQuery, PathText, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// Show one job
#[utoipa::path(
    get,
    path = "/jobs/{job}",
    tag = "jobs",
    operation_id = "job",
    params((
        "job" = String, Path, description = "The job's id: its batch and position", example = "42:7",
        pattern = "^[0-9]{1,18}:[0-9]{1,9}$"
    )),
    responses(
        (status = 200, description = "The job", body = JobView),
        (status = "4XX", description = "Refused, or not found", body = Refusal),
    )
)]
pub async fn job(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathText(job): PathText,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<JobView>, ApiError> {
    let mut view = details::job(&app.engine, &caller.access, &job).await?;
    if app.hides_payloads_from(&caller) {
        view.hide();
    }
    Ok(Json(view))
}
