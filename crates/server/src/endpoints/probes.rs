//! `GET /healthz` and `GET /readyz`: probes for load balancers and orchestrators, without a token. They reveal nothing
//! about jobs.

use axum::Json;
use axum::extract::State;
use gristmill_model::Timestamp;
use serde::Serialize;
use tokio::sync::Mutex;
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
    /// The number of store operations that wait for locks of other transactions; absent if none waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    writers_waiting: Option<u64>,
}

const OK: Probed = Probed {
    status: "ok",
    writers_waiting: None,
};

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
/// Asks the store at most once a second. Status 503 if the store does not answer, and while the server stops. If
/// operations of the store wait for locks of other transactions, the answer has their number.
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
    match answers.ok().flatten() {
        Some(waiting) => Ok(Json(Probed {
            writers_waiting: Some(waiting).filter(|waiting| *waiting > 0),
            ..OK
        })),
        None => Err(ApiError::NotReady),
    }
}

/// The time of the last probe of the store, and the number of operations that waited for locks, if the store answered.
type LastProbe = Mutex<Option<(Timestamp, Option<u64>)>>;

/// The number of store operations that wait for locks. `None` if the store does not answer. Probes ask one after
/// another, and share an answer for a second.
async fn store_answers(app: &App) -> Option<u64> {
    let state = app.state::<LastProbe>();
    let mut probed = state.lock().await;
    let now = app.clock().now();
    if let Some((at, answered)) = *probed
        && (0..PROBE_KEPT_MS).contains(&now.since_ms(at))
    {
        return answered;
    }
    let answered = match app.store().workers().await {
        Ok(_) => app.store().lock_waits().await.ok(),
        Err(_) => None,
    };
    app.note_ready(answered.is_some());
    if let Some(waits) = &answered
        && waits.writers > 0
    {
        let (writers, longest_ms) = (waits.writers, waits.longest_ms);
        tracing::warn!(writers, longest_ms, holders = ?waits.holders, "operations wait for locks of other transactions");
    }
    let answered = answered.map(|waits| waits.writers);
    *probed = Some((now, answered));
    answered
}
