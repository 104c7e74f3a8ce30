//! `GET /queues`: the number of jobs by queue, kind and state.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
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

/// The jobs of one kind on one queue, by state.
#[derive(Debug, Serialize, ToSchema)]
pub struct QueueCounts {
    /// The queue.
    queue: String,
    /// The kind.
    kind: String,
    /// Ready to be claimed.
    waiting: u64,
    /// Waiting for their time.
    scheduled: u64,
    /// Waiting for other jobs.
    blocked: u64,
    /// Held by their own pauses.
    paused: u64,
    /// Held by a worker.
    running: u64,
    /// Ended with a value.
    completed: u64,
    /// Out of attempts.
    dead: u64,
    /// Ended by a cancel.
    cancelled: u64,
    /// Ended because no worker started them in time.
    expired: u64,
}

/// The queues that the token gives access to.
#[derive(Debug, Serialize, ToSchema)]
pub struct Queues {
    /// By queue and kind.
    queues: Vec<QueueCounts>,
}

impl From<&KindCounts> for QueueCounts {
    fn from(kind: &KindCounts) -> Self {
        let counts = kind.counts;
        QueueCounts {
            queue: kind.queue.to_string(),
            kind: kind.kind.to_string(),
            waiting: counts.waiting,
            scheduled: counts.scheduled,
            blocked: counts.blocked,
            paused: counts.paused,
            running: counts.running,
            completed: counts.completed,
            dead: counts.dead,
            cancelled: counts.cancelled,
            expired: counts.expired,
        }
    }
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
        .filter(|kind| caller.queues.contains(&kind.queue))
        .map(Into::into)
        .collect();
    queues.sort_by(|a, b| (&a.queue, &a.kind).cmp(&(&b.queue, &b.kind)));
    Ok(Json(Queues { queues }))
}
