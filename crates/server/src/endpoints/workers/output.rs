//! `POST /workers/{worker}/output`: the live output of followed jobs of an agent's worker.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_model::JobId;
use gristmill_model::limits::{LIVE_OUTPUT_BYTES_PER_WRITE_MAX, PROGRESS_JOBS_MAX};
use gristmill_protocol::worker::{OutputAnswer, OutputRequest};

use super::worker_id;
use crate::app::App;
use crate::body::{JsonBody, NoQuery, PathText, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// Send the output of running jobs
///
/// Only for followed jobs, which answers to heartbeats and exchanges name; the store drops other output. The worker
/// must hold the jobs. The outcome of a job carries its whole log in any case.
#[utoipa::path(
    post,
    path = "/workers/{worker}/output",
    tag = "agents",
    operation_id = "put_output",
    params(("worker" = i64, Path, description = "As registering answered")),
    request_body = OutputRequest,
    responses(
        (status = 200, description = "It is kept for those who follow", body = OutputAnswer),
        (status = 409, description = "The worker holds none of the jobs (code `not_held`)", body = Refusal),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn put_output(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathText(worker): PathText,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<OutputAnswer>, ApiError> {
    let worker = worker_id(&worker)?;
    let request: OutputRequest = body.read().await?;
    let pieces = request.printed.len();
    let bytes: usize = request.printed.iter().map(|piece| piece.text.len()).sum();
    if pieces > PROGRESS_JOBS_MAX || bytes > LIVE_OUTPUT_BYTES_PER_WRITE_MAX {
        return Err(ApiError::invalid(
            format!("`printed` has {pieces} pieces with {bytes} bytes of text"),
            format!(
                "send at most {PROGRESS_JOBS_MAX} pieces and {LIVE_OUTPUT_BYTES_PER_WRITE_MAX} bytes at once"
            ),
        ));
    }
    app.sessions.of_caller(&**app.store(), &caller, worker).await?;
    if pieces == 0 {
        return Ok(Json(OutputAnswer { refused: Vec::new() }));
    }
    let mut jobs: Vec<JobId> = request.printed.iter().map(|piece| piece.job).collect();
    jobs.sort_unstable();
    jobs.dedup();
    let refused = app.store().put_output(worker, request.printed).await?;
    match refused.first() {
        Some(first) if refused.len() == jobs.len() => Err(ApiError::NotHeld {
            worker: worker.0,
            job: first.to_string(),
        }),
        _ => Ok(Json(OutputAnswer { refused })),
    }
}
