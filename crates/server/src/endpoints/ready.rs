//! `GET /ready`: whether the server can serve.

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
    /// Tells this run of the server from any other.
    instance: String,
}

/// Ask whether the server can serve
///
/// Asks the store. 503 while it does not answer, and once the server is stopping.
#[utoipa::path(
    get,
    path = "/ready",
    tag = "watching",
    operation_id = "ready",
    responses(
        (status = 200, description = "It can serve", body = Ready),
        (status = 503, description = "It cannot", body = Refusal),
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
