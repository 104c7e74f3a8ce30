//! `POST /workers/{worker}/heartbeat`: an agent's worker lives.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_batching::BatchStats;
use gristmill_model::limits::PROGRESS_JOBS_MAX;
use gristmill_model::{Followed, JobProgress, bounded};
use gristmill_store::rules::admission::held_back::held_back;
use gristmill_store::{Revoked, Want};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::exchange::check_want;
use super::worker_id;
use crate::app::App;
use crate::body::{JsonBody, NoQuery, PathText, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::PROGRESS_JOBS_READ_MAX;

/// A heartbeat.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    /// From 1 upwards for each worker. A repeated heartbeat has the same number, so that nothing counts twice. A worker
    /// that sends no `hops` needs no number.
    #[serde(default)]
    #[schema(minimum = 0)]
    pub number: u64,
    /// The batches that the worker's hops moved since the last heartbeat: by hop `batches`, `items`, `items_max` and
    /// `end_reasons`.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub hops: BatchStats,
    /// The progress of the worker's running jobs; replaces the last report, and is absent without news. Each has `job`,
    /// `attempt`, and optionally `fraction` (from 0 to 1), `done` and `total` (in one unit, such as bytes), `message`,
    /// `rate_per_s`. At most 1,000 jobs.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, PROGRESS_JOBS_READ_MAX>"
    )]
    #[schema(value_type = Vec<Object>)]
    pub progress: Vec<JobProgress>,
    /// The jobs that the worker wants, where it runs nothing and asks why: `jobs_max`, `queues`, `kinds` (all where empty) and
    /// optionally `priority_min`. Asking may cost as much as a claim: ask after 10 s without jobs, and then once a minute at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub idle: Option<Want>,
}

/// Jobs that the worker no longer holds.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatAnswer {
    /// Whether the worker is still registered. If not, its leases are lost, and it registers again.
    pub known: bool,
    /// Jobs that were cancelled while the worker held them, each reported once: `lease`, `batch`, `positions`.
    #[schema(value_type = Vec<Object>)]
    pub revoked: Vec<Revoked>,
    /// Jobs whose output somebody follows now, each as `{"job": …}`, `{"batch": …}` or `{"kind": …}`; left out where nobody
    /// follows any. The worker sends what such jobs of its print.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub followed: Vec<Followed>,
    /// Whether the worker is asked to claim nothing more, to finish or release the jobs that it holds, and to unregister.
    #[serde(default)]
    pub drain: bool,
    /// What keeps the jobs of `idle` from the worker that have been due for 10 s, in words; left out where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
}

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

/// Refuses statistics of hops that no worker has: their names are kept for good.
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
