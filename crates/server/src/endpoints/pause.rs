//! `POST /jobs/pause` and `POST /jobs/resume`.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_model::Timestamp;
use gristmill_model::batch::check_name;
use serde::Deserialize;
use utoipa::ToSchema;

use super::selection::{ChangedView, FilterRequest, SelectionRequest};
use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::TIMESTAMP_MS_MAX;

/// Either jobs by id, or all jobs that match, and why they are paused.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseJobsRequest {
    /// These jobs.
    #[serde(default)]
    #[schema(max_items = 10_000, example = json!(["42:7", "42:8"]))]
    jobs: Option<Vec<String>>,
    /// All jobs that match.
    #[serde(default)]
    filter: Option<FilterRequest>,
    /// Tells pauses of the same jobs apart; each is resumed by its own.
    #[schema(min_length = 1, max_length = 200, example = "deploy")]
    reason: String,
    /// When it is over by itself; when they are resumed, where nothing is said. Milliseconds since 1970.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 253_402_300_799_999_i64)]
    until: Option<i64>,
}

/// Either jobs by id, or all jobs that match, and which of their pauses ends.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeJobsRequest {
    /// These jobs.
    #[serde(default)]
    #[schema(max_items = 10_000, example = json!(["42:7", "42:8"]))]
    jobs: Option<Vec<String>>,
    /// All jobs that match.
    #[serde(default)]
    filter: Option<FilterRequest>,
    /// The pause of this reason; all their own pauses, where none is named.
    #[serde(default)]
    reason: Option<String>,
}

/// Pause jobs that are not over
///
/// They are not claimed until their last pause is gone. What runs is let be, and paused when it comes back. Jobs that are
/// submitted later are not paused: for that there are controls.
#[utoipa::path(
    post,
    path = "/jobs/pause",
    tag = "jobs",
    operation_id = "pause_jobs",
    request_body = PauseJobsRequest,
    responses(
        (status = 200, description = "What was changed", body = ChangedView),
        (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
    )
)]
pub async fn pause_jobs(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody,
) -> Result<Json<ChangedView>, ApiError> {
    let request: PauseJobsRequest = body.read()?;
    check_name("reason", &request.reason)
        .map_err(|error| ApiError::invalid(error.to_string(), "choose another reason"))?;
    if let Some(until) = request
        .until
        .filter(|until| !(0..=TIMESTAMP_MS_MAX).contains(until))
    {
        return Err(ApiError::invalid(
            format!("`until` is {until}"),
            format!("give 0 to {TIMESTAMP_MS_MAX}"),
        ));
    }
    let selection = SelectionRequest::new(request.jobs, request.filter);
    let selection = selection.check(&app, &caller).await?;
    let until = request.until.map(Timestamp);
    let paused = app.engine.pause_jobs(selection, &request.reason, until).await?;
    Ok(Json(paused.into()))
}

/// Resume paused jobs
///
/// They stand in their old place in line, once nothing else keeps them back.
#[utoipa::path(
    post,
    path = "/jobs/resume",
    tag = "jobs",
    operation_id = "resume_jobs",
    request_body = ResumeJobsRequest,
    responses(
        (status = 200, description = "What was changed", body = ChangedView),
        (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
    )
)]
pub async fn resume_jobs(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody,
) -> Result<Json<ChangedView>, ApiError> {
    let request: ResumeJobsRequest = body.read()?;
    let selection = SelectionRequest::new(request.jobs, request.filter);
    let selection = selection.check(&app, &caller).await?;
    let resumed = app
        .engine
        .resume_jobs(selection, request.reason.as_deref())
        .await?;
    Ok(Json(resumed.into()))
}
