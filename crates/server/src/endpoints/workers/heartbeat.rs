//! `POST /workers/{worker}/heartbeat`: the heartbeat of an agent's worker.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_batching::BatchStats;
use gristmill_model::limits::PROGRESS_JOBS_MAX;
use gristmill_protocol::worker::{HeartbeatAnswer, HeartbeatRequest};
use gristmill_store::rules::admission::held_back::held_back;

use super::exchange::check_want;
use super::worker_id;
use crate::app::App;
use crate::body::{JsonBody, NoQuery, PathText, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// Send a heartbeat
///
/// The answer lists the worker's cancelled jobs, and says whether the worker is asked to drain.
#[utoipa::path(
    post,
    path = "/workers/{worker}/heartbeat",
    tag = "agents",
    operation_id = "heartbeat",
    params(("worker" = i64, Path, description = "The id from its registration")),
    request_body = HeartbeatRequest,
    responses(
        (status = 200, description = "Jobs that the worker no longer holds", body = HeartbeatAnswer),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn heartbeat(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathText(worker): PathText,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<HeartbeatAnswer>, ApiError> {
    let worker = worker_id(&worker)?;
    let request: HeartbeatRequest = body.read().await?;
    check_hops(&request.hops)?;
    if request.number == 0 && !request.hops.hops.is_empty() {
        return Err(ApiError::invalid(
            "the heartbeat has `hops` and no `number`",
            "number the heartbeats of a worker from 1 upwards",
        ));
    }
    if request.progress.len() > PROGRESS_JOBS_MAX {
        return Err(ApiError::invalid(
            format!("`progress` names {} jobs", request.progress.len()),
            "report at most 1000 jobs in one heartbeat",
        ));
    }
    if let Some(want) = &request.idle {
        check_want(want, &caller)?;
    }
    let session = app.sessions.of_caller(&**app.store(), &caller, worker).await?;
    let hops = if session.is_new_heartbeat(request.number) {
        request.hops
    } else {
        BatchStats::default()
    };
    if !request.progress.is_empty() {
        app.store().put_progress(worker, request.progress).await?;
    }
    let heartbeat = app.store().heartbeat(worker, hops).await?;
    if !heartbeat.known {
        app.sessions.end(worker);
    } else {
        app.interest.learn(&heartbeat.followed);
    }
    let held_back = match &request.idle {
        Some(want) => held_back(&**app.store(), want).await,
        None => None,
    };
    Ok(Json(HeartbeatAnswer {
        known: heartbeat.known,
        revoked: heartbeat.revoked,
        followed: heartbeat.followed,
        drain: heartbeat.drain,
        held_back,
    }))
}

/// Refuses statistics of hops that no worker has, because the store keeps their names forever.
pub fn check_hops(hops: &BatchStats) -> Result<(), ApiError> {
    let foreign = hops
        .hops
        .keys()
        .find(|hop| !["claim", "run", "commit"].contains(&hop.as_str()));
    match foreign {
        Some(hop) => Err(ApiError::invalid(
            format!(
                "`{}` is not a hop of a worker",
                hop.chars().take(40).collect::<String>()
            ),
            "its hops are claim, run and commit",
        )),
        None => Ok(()),
    }
}
