//! `GET /operations`, `GET /operations/{operation}` and `DELETE /operations/{operation}`.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_operations::Priority;
use gristmill_operations::jobs::selection::FilterRequest;
use serde::Serialize;
use utoipa::ToSchema;

use super::kept::{Operation, OperationState, Operations};
use super::start::ChangeName;
use crate::app::App;
use crate::body::{NoQuery, PathText, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// An operation.
#[derive(Debug, Serialize, ToSchema)]
pub struct OperationView {
    /// Its id.
    operation: String,
    /// The change.
    change: ChangeName,
    /// The jobs.
    filter: FilterRequest,
    /// The reason of the pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The end of the pause. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<i64>,
    /// The new priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<Priority>,
    /// The current state.
    state: OperationState,
    /// The number of jobs that matched at the start. Fewer may change, because others may end or be changed first.
    matched: u64,
    /// The number of jobs that it has changed.
    changed: u64,
    /// The reason of its failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<Refusal>,
    /// The start. Milliseconds since 1970.
    started_at: i64,
    /// The end. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<i64>,
}

impl OperationView {
    /// The current view of an operation.
    pub fn of(operation: &Operation) -> OperationView {
        let end = operation.end();
        let request = operation.request.clone();
        OperationView {
            operation: operation.id.clone(),
            change: request.change,
            filter: request.filter,
            reason: request.reason,
            until: request.until,
            priority: request.priority,
            state: end.map_or(OperationState::Running, |end| end.state),
            matched: operation.matched,
            changed: operation.changed(),
            failure: end.and_then(|end| end.failure.clone()),
            started_at: operation.started_at.0,
            ended_at: end.map(|end| end.at.0),
        }
    }
}

/// Operations.
#[derive(Debug, Serialize, ToSchema)]
pub struct OperationList {
    /// The newest first.
    operations: Vec<OperationView>,
}

/// List operations
///
/// The operations that this server started on the token's queues, at most 100. The oldest ended ones are forgotten first.
#[utoipa::path(
    get,
    path = "/operations",
    tag = "jobs",
    operation_id = "operations",
    responses(
        (status = 200, description = "Operations under way and ended", body = OperationList),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn operations(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Json<OperationList> {
    let shown = app.state::<Operations>().shown_to(&caller);
    Json(OperationList {
        operations: shown
            .iter()
            .map(|operation| OperationView::of(operation))
            .collect(),
    })
}

/// Show an operation
#[utoipa::path(
    get,
    path = "/operations/{operation}",
    tag = "jobs",
    operation_id = "operation",
    params(("operation" = String, Path, description = "Its id")),
    responses(
        (status = 200, description = "The operation", body = OperationView),
        (status = "4XX", description = "Refused, or not found", body = Refusal),
    )
)]
pub async fn operation(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathText(id): PathText,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<OperationView>, ApiError> {
    let operation = app.state::<Operations>().find(&caller, &id)?;
    Ok(Json(OperationView::of(&operation)))
}

/// Cancel an operation
///
/// It ends before its next portion. The changed jobs stay changed. An operation that has ended stays as it is.
#[utoipa::path(
    delete,
    path = "/operations/{operation}",
    tag = "jobs",
    operation_id = "cancel_operation",
    params(("operation" = String, Path, description = "Its id")),
    responses(
        (status = 202, description = "The operation, which ends soon", body = OperationView),
        (status = "4XX", description = "Refused, or not found", body = Refusal),
    )
)]
pub async fn cancel_operation(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathText(id): PathText,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<(axum::http::StatusCode, Json<OperationView>), ApiError> {
    let operation = app.state::<Operations>().find(&caller, &id)?;
    operation.cancel();
    Ok((
        axum::http::StatusCode::ACCEPTED,
        Json(OperationView::of(&operation)),
    ))
}
