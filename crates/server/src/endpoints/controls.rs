//! `GET` and `PUT /controls`, `POST /controls/lift`: pauses, limits, shares and agings.

use axum::Json;
use axum::extract::State;
use gristmill_operations::controls::{self, Controls, LiftRequest, Lifted};

use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::error::{ApiError, Refusal};

/// List pauses, limits, shares and agings
#[utoipa::path(
    get,
    path = "/controls",
    tag = "controls",
    operation_id = "controls",
    responses(
        (status = 200, description = "All of them", body = Controls),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn controls(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<Controls>, ApiError> {
    Ok(Json(controls::controls(&app.engine).await?))
}

/// Set pauses, limits, shares and agings
///
/// Sets all or none. A control replaces one of the same scope and effect (and reason, for a pause); others stay.
/// Running jobs continue.
#[utoipa::path(
    put,
    path = "/controls",
    tag = "controls",
    operation_id = "put_controls",
    request_body = Controls,
    responses(
        (status = 200, description = "All active controls", body = Controls),
        (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
    )
)]
pub async fn put_controls(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<Controls>, ApiError> {
    let request: Controls = body.read().await?;
    Ok(Json(controls::put_controls(&app.engine, request).await?))
}

/// Lift pauses, limits, shares and agings
///
/// Lifting a pause resumes its jobs, unless another pause holds them.
#[utoipa::path(
    post,
    path = "/controls/lift",
    tag = "controls",
    operation_id = "lift_controls",
    request_body = LiftRequest,
    responses(
        (status = 200, description = "The number of lifted controls", body = Lifted),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn lift_controls(
    State(app): State<App>,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<Lifted>, ApiError> {
    let request: LiftRequest = body.read().await?;
    Ok(Json(controls::lift_controls(&app.engine, request).await?))
}
