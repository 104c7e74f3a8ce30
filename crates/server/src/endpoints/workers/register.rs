//! `POST /workers`: an agent makes its worker known.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use gristmill_model::batch::check_name;
use gristmill_model::limits::heartbeat_every_ms;
use gristmill_store::NewWorker;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::exchange::check_lanes;
use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::AGENT_NAME_BYTES_MAX;
use crate::sessions::new_worker;

/// The agent's description of itself, for display. Its token identifies it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterRequest {
    /// Its name.
    #[schema(min_length = 1, max_length = 100, example = "agent-1")]
    pub name: String,
    /// The machine that it runs on.
    #[schema(min_length = 1, max_length = 100)]
    pub host: String,
    /// Its process there.
    pub process_id: u32,
    /// The queues that it claims from.
    #[serde(default)]
    #[schema(value_type = Vec<String>, max_items = 100, example = json!(["default"]))]
    pub queues: Vec<Arc<str>>,
    /// The kinds that it runs.
    #[serde(default)]
    #[schema(value_type = Vec<String>, max_items = 1000, example = json!(["mail"]))]
    pub kinds: Vec<Arc<str>>,
}

/// The worker, as the server knows it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Registered {
    /// Its id, which belongs to the token that registered it.
    pub worker: i64,
    /// The id of this run of the server; exchanges name it.
    pub instance: String,
    /// The interval of heartbeats. Milliseconds.
    pub heartbeat_every_ms: i64,
    /// The store releases the worker's jobs after this time without a heartbeat. Milliseconds.
    pub lost_after_ms: i64,
}

/// Register a worker
#[utoipa::path(
    post,
    path = "/workers",
    tag = "agents",
    operation_id = "register",
    request_body = RegisterRequest,
    responses(
        (status = 201, description = "The worker", body = Registered),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn register(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<(StatusCode, Json<Registered>), ApiError> {
    let request: RegisterRequest = body.read().await?;
    for (what, text) in [("name", &request.name), ("host", &request.host)] {
        let short = text.len() <= AGENT_NAME_BYTES_MAX;
        if !short || check_name("worker", text).is_err() {
            return Err(ApiError::invalid(
                format!("`{what}` must have 1 to {AGENT_NAME_BYTES_MAX} bytes and no control characters"),
                "choose another",
            ));
        }
    }
    check_lanes("the request", &request.queues, &request.kinds, &caller)?;
    let new = NewWorker {
        queues: request.queues,
        kinds: request.kinds,
        ..new_worker(&caller, &request.name, &request.host, request.process_id)
    };
    let worker = app.store().register_worker(new).await?;
    app.sessions.begin(&caller, worker);
    let lost_after_ms = app.engine.lease_lost_after_ms();
    let registered = Registered {
        worker: worker.0,
        instance: app.instance.clone(),
        heartbeat_every_ms: heartbeat_every_ms(lost_after_ms),
        lost_after_ms,
    };
    Ok((StatusCode::CREATED, Json(registered)))
}
