//! `POST /jobs/discard`.

use axum::extract::State;
use axum::{Extension, Json};

use super::selection::{ChangedView, SelectionRequest};
use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// Discard dead jobs
///
/// The jobs end as cancelled, keep their failures, and no longer count as dead.
#[utoipa::path(
    post,
    path = "/jobs/discard",
    tag = "jobs",
    operation_id = "discard",
    request_body = SelectionRequest,
    responses(
        (status = 200, description = "The number of changed jobs", body = ChangedView),
        (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
    )
)]
pub async fn discard(
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
    Ok(Json(app.engine.discard(selection).await?.into()))
}
