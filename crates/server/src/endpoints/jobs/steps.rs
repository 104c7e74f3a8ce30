//! `GET /jobs/{job}/steps`: the steps of a flow.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_operations::jobs;
use gristmill_operations::jobs::steps::{StepsPage, StepsQuery};

use crate::app::App;
use crate::body::{PathText, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// List the steps of a flow
///
/// A job that never waited for others has none.
#[utoipa::path(
    get,
    path = "/jobs/{job}/steps",
    tag = "jobs",
    operation_id = "steps",
    params(
        (
            "job" = String, Path, description = "The flow's id: its batch and position", example = "42:7",
            pattern = "^[0-9]{1,18}:[0-9]{1,9}$"
        ),
        StepsQuery,
    ),
    responses(
        (status = 200, description = "A page of steps", body = StepsPage),
        (status = "4XX", description = "Refused, or not found", body = Refusal),
    )
)]
pub async fn job_steps(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathText(job): PathText,
    Query(query): Query<StepsQuery>,
) -> Result<Json<StepsPage>, ApiError> {
    Ok(Json(
        jobs::steps::steps(&app.engine, &caller.access, &job, query).await?,
    ))
}
