//! `GET /stats`: totals of the store.

use axum::Json;
use axum::extract::State;
use gristmill_operations::stats::{self, Stats};

use crate::app::App;
use crate::body::{NoQuery, Query};
use crate::error::{ApiError, Refusal};

/// Show totals
#[utoipa::path(
    get,
    path = "/stats",
    tag = "watching",
    operation_id = "stats",
    responses(
        (status = 200, description = "Totals of the store", body = Stats),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn stats(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<Stats>, ApiError> {
    Ok(Json(stats::stats(&app.engine).await?))
}
