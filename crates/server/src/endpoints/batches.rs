//! `GET /batches`: batches, the newest first.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_operations::batches::{self, BatchesPage, BatchesQuery};

use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// List batches
///
/// The newest first, with the number of jobs by state. One request looks at no more than 20,000 ids of batches; follow
/// `next` for older ones.
#[utoipa::path(
    get,
    path = "/batches",
    tag = "jobs",
    operation_id = "batches",
    params(BatchesQuery),
    responses(
        (status = 200, description = "A page of batches", body = BatchesPage),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn batches(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<BatchesQuery>,
) -> Result<Json<BatchesPage>, ApiError> {
    Ok(Json(batches::batches(&app.engine, &caller.access, query).await?))
}
