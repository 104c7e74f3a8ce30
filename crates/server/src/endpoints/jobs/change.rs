//! `POST /jobs/cancel`, `retry`, `discard`, `prioritise`, `pause` and `resume`: changes of jobs by id, or of all that match.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_model::batch::check_name;
use gristmill_model::{Timestamp, bounded};
use gristmill_operations::Priority;
use gristmill_store::Change;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use super::selection::{ChangedView, FilterRequest, SelectionRequest};
use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::{SELECTED_JOBS_READ_MAX, TIMESTAMP_MS_MAX};

/// Either jobs by id, or all matching jobs, and their new priority.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PrioritiseRequest {
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
    /// Their new priority; higher is claimed first.
    priority: Priority,
}

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

/// Changes the jobs that a request selects. `read` gets the selection and the change from the request.
async fn change<R: DeserializeOwned + Send + 'static>(
    app: &App,
    caller: &Caller,
    mut body: JsonBody,
    read: impl FnOnce(R) -> Result<(SelectionRequest, Change), ApiError>,
) -> Result<Json<ChangedView>, ApiError> {
    let (selection, change) = read(body.read().await?)?;
    let selection = selection.check(app, caller).await?;
    let changed = app.engine.change(selection, change).await?;
    // A change may make jobs claimable: retried and resumed ones, and dependents of cancelled ones.
    app.wake.ring();
    Ok(Json(changed.into()))
}

/// Cancel jobs that have not ended
///
/// Running jobs end as cancelled at once. Their workers learn this with their next heartbeat or exchange.
#[utoipa::path(
    post,
    path = "/jobs/cancel",
    tag = "jobs",
    operation_id = "cancel",
    request_body = SelectionRequest,
    responses(
        (status = 200, description = "The number of changed jobs", body = ChangedView),
        (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
    )
)]
pub async fn cancel(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody,
) -> Result<Json<ChangedView>, ApiError> {
    change(&app, &caller, body, |selection| Ok((selection, Change::Cancel))).await
}

/// Run dead, cancelled or expired jobs again
///
/// The jobs get all their attempts again.
#[utoipa::path(
    post,
    path = "/jobs/retry",
    tag = "jobs",
    operation_id = "retry",
    request_body = SelectionRequest,
    responses(
        (status = 200, description = "The number of changed jobs", body = ChangedView),
        (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
    )
)]
pub async fn retry(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody,
) -> Result<Json<ChangedView>, ApiError> {
    change(&app, &caller, body, |selection| Ok((selection, Change::Retry))).await
}

/// Discard dead jobs
///
/// The jobs end as cancelled, keep their failures, and no longer count as dead.
#[utoipa::path(
    post,
    path = "/jobs/discard",
    tag = "jobs",
    operation_id = "discard",
    request_body = SelectionRequest,
    responses(
        (status = 200, description = "The number of changed jobs", body = ChangedView),
        (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
    )
)]
pub async fn discard(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody,
) -> Result<Json<ChangedView>, ApiError> {
    change(&app, &caller, body, |selection| Ok((selection, Change::Discard))).await
}

/// Change the priority of jobs that have not ended
///
/// The priority takes effect at the next claim. A running job keeps it for its next attempt, and a blocked job for the
/// time when it can be claimed.
#[utoipa::path(
    post,
    path = "/jobs/prioritise",
    tag = "jobs",
    operation_id = "prioritise",
    request_body = PrioritiseRequest,
    responses(
        (status = 200, description = "The number of changed jobs", body = ChangedView),
        (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
    )
)]
pub async fn prioritise(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody,
) -> Result<Json<ChangedView>, ApiError> {
    change(&app, &caller, body, |request: PrioritiseRequest| {
        let change = Change::Prioritise(request.priority.check()?);
        Ok((SelectionRequest::new(request.jobs, request.filter), change))
    })
    .await
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
    body: JsonBody,
) -> Result<Json<ChangedView>, ApiError> {
    change(&app, &caller, body, |request: PauseJobsRequest| {
        let change = pause(&request.reason, request.until)?;
        Ok((SelectionRequest::new(request.jobs, request.filter), change))
    })
    .await
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
    body: JsonBody,
) -> Result<Json<ChangedView>, ApiError> {
    change(&app, &caller, body, |request: ResumeJobsRequest| {
        let change = Change::Resume {
            reason: request.reason,
        };
        Ok((SelectionRequest::new(request.jobs, request.filter), change))
    })
    .await
}
