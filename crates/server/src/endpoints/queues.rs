//! `GET /queues`: the number of jobs by queue, kind and state.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_operations::stats::QueueCounts;
use gristmill_store::{KindCounts, StoreError};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::rate::recent::Recent;

/// The allowed age of the answer.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct QueuesQuery {
    /// The greatest allowed age of the answer, so that the server can share one answer among callers. If counting is
    /// slow, the answer may be as old as 50 times its duration. Without this, the answer is new. Milliseconds.
    #[serde(default)]
    #[param(minimum = 0, maximum = 60_000)]
    age_ms_max: Option<u64>,
}

/// The queues that the token gives access to.
#[derive(Debug, Serialize, ToSchema)]
pub struct Queues {
    /// By queue and kind.
    queues: Vec<QueueCounts>,
}

/// List queues
///
/// Only queues that the token gives access to.
#[utoipa::path(
    get,
    path = "/queues",
    tag = "watching",
    operation_id = "queues",
    params(QueuesQuery),
    responses(
        (status = 200, description = "Jobs by queue, kind and state", body = Queues),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn queues(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<QueuesQuery>,
) -> Result<Json<Queues>, ApiError> {
    let look = async { Ok::<_, StoreError>(Arc::new(app.store().kind_counts().await?)) };
    let kinds = app
        .state::<Recent<(), Arc<Vec<KindCounts>>>>()
        .get((), query.age_ms_max, look)
        .await?;
    let mut queues: Vec<QueueCounts> = kinds
        .iter()
        .filter(|kind| caller.access.queues.contains(&kind.queue))
        .map(Into::into)
        .collect();
    queues.sort_by(|a, b| (&a.queue, &a.kind).cmp(&(&b.queue, &b.kind)));
    Ok(Json(Queues { queues }))
}
