//! `GET /queues`: the number of jobs by queue, kind and state.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_operations::queues::{Queues, QueuesQuery};
use gristmill_store::{KindCounts, StoreError};

use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::rate::recent::Recent;

/// List queues
///
/// Only queues that the token gives access to.
#[utoipa::path(
    get,
    path = "/queues",
    tag = "watching",
    operation_id = "queues",
    params(QueuesQuery),
    responses(
        (status = 200, description = "Jobs by queue, kind and state", body = Queues),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn queues(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<QueuesQuery>,
) -> Result<Json<Queues>, ApiError> {
    let look = async { Ok::<_, StoreError>(Arc::new(app.store().kind_counts(false).await?)) };
    let kinds = app
        .state::<Recent<(), Arc<Vec<KindCounts>>>>()
        .get((), query.age_ms_max, look)
        .await?;
    Ok(Json(Queues::of(&kinds, &caller.access)))
}
