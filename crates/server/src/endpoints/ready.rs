//! `GET /ready`: reports whether the server can serve.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::body::{NoQuery, Query};
use crate::error::{ApiError, Refusal};

/// The server can serve.
#[derive(Debug, Serialize, ToSchema)]
pub struct Ready {
    /// Always `ready`.
    #[schema(example = "ready")]
    status: &'static str,
    /// The id of this run of the server.
    instance: String,
}

/// Check that the server is ready
///
/// Asks the store. Status 503 if the store does not answer, and while the server stops.
#[utoipa::path(
    get,
    path = "/ready",
    tag = "watching",
    operation_id = "ready",
    responses(
        (status = 200, description = "The server is ready", body = Ready),
        (status = 503, description = "The server is not ready", body = Refusal),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn ready(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<Ready>, ApiError> {
    if *app.stopping.borrow() {
        return Err(ApiError::Stopping);
    }
    let asked = app.store().workers().await;
    app.note_ready(asked.is_ok());
    asked?;
    Ok(Json(Ready {
        status: "ready",
        instance: app.instance.clone(),
    }))
}
