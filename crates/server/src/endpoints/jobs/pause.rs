//! `POST /jobs/pause` and `POST /jobs/resume`.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_model::batch::check_name;
use gristmill_model::{Timestamp, bounded};
use gristmill_store::Change;
use serde::Deserialize;
use utoipa::ToSchema;

use super::selection::{ChangedView, FilterRequest, SelectionRequest};
use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::{SELECTED_JOBS_READ_MAX, TIMESTAMP_MS_MAX};

/// Either jobs by id, or all matching jobs, and the reason of the pause.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseJobsRequest {
    /// These jobs.
    #[serde(
        default,
        deserialize_with = "bounded::optional_list::<_, _, SELECTED_JOBS_READ_MAX>"
    )]
    #[schema(max_items = 10_000, example = json!(["42:7", "42:8"]))]
    jobs: Option<Vec<String>>,
    /// All matching jobs.
    #[serde(default)]
    filter: Option<FilterRequest>,
    /// The reason. Pauses with different reasons stack, and each is resumed by its reason.
    #[schema(min_length = 1, max_length = 200, example = "deploy")]
    reason: String,
    /// The end of the pause; by default, it ends when the jobs are resumed. Milliseconds since 1970.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 253_402_300_799_999_i64)]
    until: Option<i64>,
}

/// Either jobs by id, or all matching jobs, and the reason of the pauses to end.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeJobsRequest {
    /// These jobs.
    #[serde(
        default,
        deserialize_with = "bounded::optional_list::<_, _, SELECTED_JOBS_READ_MAX>"
    )]
    #[schema(max_items = 10_000, example = json!(["42:7", "42:8"]))]
    jobs: Option<Vec<String>>,
    /// All matching jobs.
    #[serde(default)]
    filter: Option<FilterRequest>,
    /// The reason of the pauses to end; all of the jobs' own pauses by default.
    #[serde(default)]
    reason: Option<String>,
}

/// The pause that a request asks for.
pub fn pause(reason: &str, until: Option<i64>) -> Result<Change, ApiError> {
    check_name("reason", reason)
        .map_err(|error| ApiError::invalid(error.to_string(), "choose another reason"))?;
    if let Some(until) = until.filter(|until| !(0..=TIMESTAMP_MS_MAX).contains(until)) {
        return Err(ApiError::invalid(
            format!("`until` is {until}"),
            format!("give 0 to {TIMESTAMP_MS_MAX}"),
        ));
    }
    Ok(Change::Pause {
        reason: reason.to_owned(),
        until: until.map(Timestamp),
    })
}

/// Pause jobs that have not ended
///
/// Workers do not claim the jobs until their last pause ends. A running job continues, and is paused when it becomes
/// claimable again. To pause jobs that are submitted later, use controls.
#[utoipa::path(
    post,
    path = "/jobs/pause",
    tag = "jobs",
    operation_id = "pause_jobs",
    request_body = PauseJobsRequest,
    responses(
        (status = 200, description = "The number of changed jobs", body = ChangedView),
        (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
    )
)]
pub async fn pause_jobs(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<ChangedView>, ApiError> {
    let request: PauseJobsRequest = body.read().await?;
    let pause = pause(&request.reason, request.until)?;
    let selection = SelectionRequest::new(request.jobs, request.filter);
    let selection = selection.check(&app, &caller).await?;
    Ok(Json(app.engine.change(selection, pause).await?.into()))
}

/// Resume paused jobs
///
/// The jobs keep their old place in line. Other pauses still hold them.
#[utoipa::path(
    post,
    path = "/jobs/resume",
    tag = "jobs",
    operation_id = "resume_jobs",
    request_body = ResumeJobsRequest,
    responses(
        (status = 200, description = "The number of changed jobs", body = ChangedView),
        (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
    )
)]
pub async fn resume_jobs(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<ChangedView>, ApiError> {
    let request: ResumeJobsRequest = body.read().await?;
    let selection = SelectionRequest::new(request.jobs, request.filter);
    let selection = selection.check(&app, &caller).await?;
    let resumed = app
        .engine
        .resume_jobs(selection, request.reason.as_deref())
        .await?;
    Ok(Json(resumed.into()))
}
