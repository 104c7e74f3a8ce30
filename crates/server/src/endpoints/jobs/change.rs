//! `POST /jobs/cancel`, `retry`, `discard`, `prioritise`, `pause` and `resume`: changes of jobs by id, or of all that match.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_operations::jobs::change::{PauseJobsRequest, PrioritiseRequest, ResumeJobsRequest};
use gristmill_operations::jobs::selection::{ChangedView, SelectionRequest};
use gristmill_operations::{Refused, jobs};
use gristmill_store::Change;
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// Changes the jobs that a request selects. `read` gets the selection and the change from the request.
async fn change<R: DeserializeOwned + Send + 'static>(
    app: &App,
    caller: &Caller,
    mut body: JsonBody,
    read: impl FnOnce(R) -> Result<(SelectionRequest, Change), Refused>,
) -> Result<Json<ChangedView>, ApiError> {
    let selected = read(body.read().await?)?;
    let changed = jobs::change::change(&app.engine, &caller.access, selected).await?;
    // A change may make jobs claimable: retried and resumed ones, and dependents of cancelled ones.
    app.wake.ring();
    Ok(Json(changed))
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
    change(&app, &caller, body, PrioritiseRequest::parts).await
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
    change(&app, &caller, body, PauseJobsRequest::parts).await
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
    change(&app, &caller, body, ResumeJobsRequest::parts).await
}
