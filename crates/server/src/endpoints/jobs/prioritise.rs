//! `POST /jobs/prioritise`.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_model::bounded;
use serde::Deserialize;
use utoipa::ToSchema;

use super::priority_name::PriorityName;
use super::selection::{ChangedView, FilterRequest, SelectionRequest};
use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::SELECTED_JOBS_READ_MAX;

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
    priority: PriorityName,
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
    mut body: JsonBody,
) -> Result<Json<ChangedView>, ApiError> {
    let request: PrioritiseRequest = body.read().await?;
    let priority = request.priority.check()?;
    let selection = SelectionRequest::new(request.jobs, request.filter);
    let selection = selection.check(&app, &caller).await?;
    Ok(Json(app.engine.prioritise(selection, priority).await?.into()))
}
