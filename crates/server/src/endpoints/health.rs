//! `GET /health`: reports that the server answers.

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

use crate::body::{NoQuery, Query};
use crate::error::Refusal;

/// The server answers.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// Always `ok`.
    #[schema(example = "ok")]
    status: &'static str,
}

/// Check that the server runs
///
/// This does not ask the store: see `/ready`.
#[utoipa::path(
    get,
    path = "/health",
    tag = "watching",
    operation_id = "health",
    responses(
        (status = 200, description = "The server runs", body = Health),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn health(Query(NoQuery {}): Query<NoQuery>) -> Json<Health> {
    Json(Health { status: "ok" })
}
