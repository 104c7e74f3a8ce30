//! `POST /workers/{worker}/children`: the outcomes of the children of jobs that an agent finalizes.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_model::BatchId;
use gristmill_model::limits::{BATCH_JOBS_MAX, FINALIZED_JOBS_MAX};
use gristmill_operations::access::has_batch;
use gristmill_protocol::worker::{ChildrenAnswer, ChildrenRequest};

use super::worker_id;
use crate::app::App;
use crate::body::{JsonBody, NoQuery, PathText, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// Read the outcomes of children
///
/// For jobs that finalize: their slices have `memos`.
#[utoipa::path(
    post,
    path = "/workers/{worker}/children",
    tag = "agents",
    operation_id = "children",
    params(("worker" = i64, Path, description = "The id from its registration")),
    request_body = ChildrenRequest,
    responses(
        (status = 200, description = "The outcomes of the children of each job", body = ChildrenAnswer),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn children(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathText(worker): PathText,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<ChildrenAnswer>, ApiError> {
    let worker = worker_id(&worker)?;
    let request: ChildrenRequest = body.read().await?;
    app.sessions.of_caller(&**app.store(), &caller, worker).await?;
    let last = request.positions.last();
    if last.is_none_or(|last| last >= BATCH_JOBS_MAX) || request.positions.len() > FINALIZED_JOBS_MAX {
        return Err(ApiError::invalid(
            format!("`positions` has {} positions", request.positions.len()),
            format!("name 1 to {FINALIZED_JOBS_MAX} positions below {BATCH_JOBS_MAX}"),
        ));
    }
    let batch = BatchId(request.batch);
    if !has_batch(&**app.store(), &caller.access, batch).await? {
        return Err(ApiError::NotFound {
            what: "batch",
            id: batch.to_string(),
        });
    }
    let children = app.children.outcomes(&**app.store(), batch, &request.positions);
    let children = children.await?;
    Ok(Json(ChildrenAnswer { children }))
}
