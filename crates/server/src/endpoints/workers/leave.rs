//! `DELETE /workers/{worker}`: unregisters an agent's worker.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use gristmill_batching::BatchStats;

use super::worker_id;
use crate::app::App;
use crate::body::{NoQuery, PathText, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// Unregister a worker
///
/// The store releases its jobs without charging an attempt.
#[utoipa::path(
    delete,
    path = "/workers/{worker}",
    tag = "agents",
    operation_id = "leave",
    params(("worker" = i64, Path, description = "The id from its registration")),
    responses(
        (status = 204, description = "The worker is unregistered"),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn leave(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathText(worker): PathText,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<StatusCode, ApiError> {
    let worker = worker_id(&worker)?;
    app.sessions.of_caller(&**app.store(), &caller, worker).await?;
    app.store().leave(worker, BatchStats::default()).await?;
    app.sessions.end(worker);
    app.wake.ring();
    Ok(StatusCode::NO_CONTENT)
}
