//! `GET /healthz` and `GET /readyz`: probes of load balancers and orchestrators, without a token. They tell nothing of
//! the jobs.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::body::{NoQuery, Query};
use crate::error::{ApiError, Refusal};
use crate::limits::{PROBE_KEPT_MS, PROBE_WITHIN};

/// The answer to a probe.
#[derive(Debug, Serialize, ToSchema)]
pub struct Probed {
    /// Always `ok`.
    #[schema(example = "ok")]
    status: &'static str,
}

const OK: Probed = Probed { status: "ok" };

/// Check that the server runs, without a token
///
/// This does not ask the store: see `/readyz`.
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "watching",
    operation_id = "healthz",
    security(()),
    responses(
        (status = 200, description = "The server runs", body = Probed),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn healthz(Query(NoQuery {}): Query<NoQuery>) -> Json<Probed> {
    Json(OK)
}

/// Check that the server is ready, without a token
///
/// Asks the store at most once a second. Status 503 if the store does not answer, and while the server stops.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "watching",
    operation_id = "readyz",
    security(()),
    responses(
        (status = 200, description = "The server is ready", body = Probed),
        (status = 503, description = "The server is not ready", body = Refusal),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn readyz(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<Probed>, ApiError> {
    if *app.stopping.borrow() {
        return Err(ApiError::Stopping);
    }
    let answers = tokio::time::timeout(PROBE_WITHIN, store_answers(&app)).await;
    match answers.unwrap_or(false) {
        true => Ok(Json(OK)),
        false => Err(ApiError::NotReady),
    }
}

/// Whether the store answers, or did so a moment ago. Probes ask one after another.
async fn store_answers(app: &App) -> bool {
    let mut probed = app.probed.lock().await;
    let now = app.clock().now();
    if let Some((at, answered)) = *probed
        && (0..PROBE_KEPT_MS).contains(&now.since_ms(at))
    {
        return answered;
    }
    let answered = app.store().workers().await.is_ok();
    app.note_ready(answered);
    *probed = Some((now, answered));
    answered
}
