//! `GET /flows` and `GET /flows/kinds`: flows with what they wait for, and their numbers by name, version and state.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_operations::jobs;
use gristmill_operations::jobs::flows::{FlowKinds, FlowKindsQuery, FlowsPage, FlowsQuery};

use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// List flows
///
/// Flows of which one of the kind has waited, with what each waits for. Only on queues that the token gives access to.
#[utoipa::path(
    get,
    path = "/flows",
    tag = "jobs",
    operation_id = "flows",
    params(FlowsQuery),
    responses(
        (status = 200, description = "A page of flows", body = FlowsPage),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn flows(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<FlowsQuery>,
) -> Result<Json<FlowsPage>, ApiError> {
    Ok(Json(
        jobs::flows::flows(&app.engine, &caller.access, query).await?,
    ))
}

/// Count flows
///
/// By name, version, queue and state. A kind is listed once one of its jobs has waited as a flow.
#[utoipa::path(
    get,
    path = "/flows/kinds",
    tag = "jobs",
    operation_id = "flow_kinds",
    params(FlowKindsQuery),
    responses(
        (status = 200, description = "The flows of each kind by state", body = FlowKinds),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn flow_kinds(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<FlowKindsQuery>,
) -> Result<Json<FlowKinds>, ApiError> {
    Ok(Json(
        jobs::flows::flow_kinds(&app.engine, &caller.access, query).await?,
    ))
}
