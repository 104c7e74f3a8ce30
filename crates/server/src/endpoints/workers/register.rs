//! `POST /workers`: registers an agent's worker.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use gristmill_model::batch::check_name;
use gristmill_model::limits::heartbeat_every_ms;
use gristmill_protocol::worker::{RegisterRequest, Registered};
use gristmill_store::NewWorker;

use super::exchange::check_lanes;
use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::AGENT_NAME_BYTES_MAX;
use crate::sessions::new_worker;

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
