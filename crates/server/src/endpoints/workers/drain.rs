//! `POST /workers/{worker}/drain`: asks a worker to end its jobs and leave.

use axum::extract::State;
use axum::http::StatusCode;

use super::worker_id;
use crate::app::App;
use crate::body::{NoQuery, PathText, Query};
use crate::error::{ApiError, Refusal};

/// Drain a worker
///
/// The worker learns of this with its next heartbeat. It claims no more jobs, finishes its running jobs, releases the
/// others without charging an attempt, and leaves. Its process ends as on SIGTERM, with status 0. The store keeps the
/// request until then. A worker in another language finds `drain` in the answers to its heartbeats.
#[utoipa::path(
    post,
    path = "/workers/{worker}/drain",
    tag = "watching",
    operation_id = "drain_worker",
    params(("worker" = i64, Path, description = "The worker's id, as the list of workers has it")),
    responses(
        (status = 202, description = "The worker is asked to drain"),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn drain_worker(
    State(app): State<App>,
    PathText(worker): PathText,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<StatusCode, ApiError> {
    let worker = worker_id(&worker)?;
    if !app.store().drain_worker(worker).await? {
        return Err(ApiError::NotFound {
            what: "worker",
            id: worker.to_string(),
        });
    }
    Ok(StatusCode::ACCEPTED)
}
