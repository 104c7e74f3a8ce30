//! `POST /jobs/cancel`.

use axum::extract::State;
use axum::{Extension, Json};

use super::selection::{ChangedView, SelectionRequest};
use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// Cancel jobs that have not ended
///
/// Running jobs end as cancelled at once. Their workers learn this with their next heartbeat or exchange.
#[utoipa::path(
    post,
    path = "/jobs/cancel",
    tag = "jobs",
    operation_id = "cancel",
    request_body = SelectionRequest,
    responses(
        (status = 200, description = "The number of changed jobs", body = ChangedView),
        (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
    )
)]
pub async fn cancel(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<ChangedView>, ApiError> {
    let selection = body
        .read::<SelectionRequest>()
        .await?
        .check(&app, &caller)
        .await?;
    Ok(Json(app.engine.cancel(selection).await?.into()))
}
