//! `POST /jobs/retry`.

use axum::extract::State;
use axum::{Extension, Json};

use super::selection::{ChangedView, SelectionRequest};
use crate::app::App;
use crate::body::{JsonBody, NoQuery, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// Run dead, cancelled or expired jobs again
///
/// The jobs get all their attempts again.
#[utoipa::path(
    post,
    path = "/jobs/retry",
    tag = "jobs",
    operation_id = "retry",
    request_body = SelectionRequest,
    responses(
        (status = 200, description = "The number of changed jobs", body = ChangedView),
        (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
    )
)]
pub async fn retry(
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
    let changed = app.engine.retry(selection).await?;
    app.wake.ring();
    Ok(Json(changed.into()))
}
