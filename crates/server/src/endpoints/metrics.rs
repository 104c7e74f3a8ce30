//! `GET /metrics`: counts for Prometheus.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use gristmill_protocol::metric::prometheus_text;

use crate::app::App;
use crate::body::{NoQuery, Query};
use crate::error::{ApiError, Refusal};

/// Prometheus's text format.
const PROMETHEUS_TYPE: &str = "text/plain; version=0.0.4";

/// Read metrics for Prometheus
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "watching",
    operation_id = "metrics",
    responses(
        (status = 200, description = "Counts", content_type = "text/plain", body = String),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn metrics(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Response, ApiError> {
    let metrics = app.store().metrics().await?;
    Ok((
        [(header::CONTENT_TYPE, PROMETHEUS_TYPE)],
        prometheus_text(&app.metrics.families(&metrics, app.store().now())),
    )
        .into_response())
}
