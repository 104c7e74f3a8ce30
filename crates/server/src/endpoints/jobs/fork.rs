//! `POST /jobs/fork` and `POST /jobs/memos`: fork flows, and read what they keep.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_operations::jobs;
use gristmill_operations::jobs::fork::{ForkRequest, ForkedView};
use gristmill_operations::jobs::memos::{MemosRequest, MemosView};

use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// Fork flows that have ended
///
/// A fork is a new instance with the payload, options and tags of the flow, and with the outcomes of all steps that the flow
/// began before `from`. This step and what follows run again. A flow that cannot be forked has an `error` in the answer.
#[utoipa::path(
    post,
    path = "/jobs/fork",
    tag = "jobs",
    operation_id = "fork_flows",
    request_body = ForkRequest,
    responses(
        (status = 200, description = "What became of each flow", body = ForkedView),
        (status = "4XX", description = "Refused. Forks that were stored before stay", body = Refusal),
    )
)]
pub async fn fork_flows(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<ForkedView>, ApiError> {
    let request: ForkRequest = body.read().await?;
    let forked = jobs::fork::fork(&app.engine, &caller.access, request).await?;
    app.wake.ring();
    Ok(Json(forked))
}

/// Read what flows keep
///
/// A program that has the code of a flow replays it with this, without running any step.
#[utoipa::path(
    post,
    path = "/jobs/memos",
    tag = "jobs",
    operation_id = "flow_memos",
    request_body = MemosRequest,
    responses(
        (status = 200, description = "The payload, the memo and the outcomes of each flow", body = MemosView),
        (status = "4XX", description = "Refused, or not found", body = Refusal),
    )
)]
pub async fn flow_memos(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<MemosView>, ApiError> {
    let request: MemosRequest = body.read().await?;
    Ok(Json(
        jobs::memos::memos(&app.engine, &caller.access, request).await?,
    ))
}
