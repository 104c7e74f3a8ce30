//! `GET /openapi.json`: the description of all operations.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::body::{NoQuery, Query};
use crate::error::Refusal;

/// Read this description
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "watching",
    operation_id = "openapi",
    responses(
        (status = 200, description = "OpenAPI 3.1", content_type = "application/json", body = Object),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn openapi(State(app): State<App>, Query(NoQuery {}): Query<NoQuery>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], app.openapi.clone()).into_response()
}
