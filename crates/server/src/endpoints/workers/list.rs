//! `GET /workers`: lists workers.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use gristmill_store::WorkerRow;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::body::{NoQuery, Query};
use crate::error::{ApiError, Refusal};

/// A registered worker.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorkerView {
    /// Its id.
    worker: i64,
    /// Its name. The name of an agent's worker begins with the token's subject.
    name: String,
    /// The machine that it runs on.
    host: String,
    /// Its process there.
    process_id: u32,
    /// The time of its registration. Milliseconds since 1970.
    started_at: i64,
    /// Its last heartbeat. Milliseconds since 1970.
    heartbeat_at: i64,
    /// The number of jobs that it holds.
    jobs_held: u64,
    /// True if it was asked to drain: it ends its jobs and leaves.
    draining: bool,
    /// The queues that it claims from, as it said at its registration; empty if it did not say.
    #[schema(value_type = Vec<String>)]
    queues: Vec<Arc<str>>,
    /// The kinds that it runs, as it said at its registration; empty for all, or if it did not say.
    #[schema(value_type = Vec<String>)]
    kinds: Vec<Arc<str>>,
}

/// All registered workers.
#[derive(Debug, Serialize, ToSchema)]
pub struct Workers {
    /// By id.
    workers: Vec<WorkerView>,
}

impl From<WorkerRow> for WorkerView {
    fn from(row: WorkerRow) -> Self {
        // The identity of its process is hidden, because it contains the id of an agent's token.
        WorkerView {
            worker: row.id.0,
            name: row.worker.name,
            host: row.worker.host,
            process_id: row.worker.process_id,
            started_at: row.started_at.0,
            heartbeat_at: row.heartbeat_at.0,
            jobs_held: row.jobs_held,
            draining: row.drain_at.is_some(),
            queues: row.worker.queues,
            kinds: row.worker.kinds,
        }
    }
}

/// List workers
#[utoipa::path(
    get,
    path = "/workers",
    tag = "watching",
    operation_id = "workers",
    responses(
        (status = 200, description = "All registered workers", body = Workers),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn workers(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<Workers>, ApiError> {
    let workers = app.store().workers().await?;
    Ok(Json(Workers {
        workers: workers.into_iter().map(Into::into).collect(),
    }))
}
