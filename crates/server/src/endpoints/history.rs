//! `GET /history`: the number of ended jobs by end and their durations.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_operations::history::{History, HistoryQuery};
use gristmill_store::{HistoryFilter, HistoryRow, StoreError};

use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::rate::recent::Recent;

/// Show the history of ended jobs
///
/// Counts and durations of ended jobs, by kind and queue. Pruned batches do not count.
#[utoipa::path(
    get,
    path = "/history",
    tag = "watching",
    operation_id = "history",
    params(HistoryQuery),
    responses(
        (status = 200, description = "Ended jobs, by period, queue and kind", body = History),
        (status = "4XX", description = "Refused, or too many rows", body = Refusal),
    )
)]
pub async fn history(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<HistoryQuery>,
) -> Result<Json<History>, ApiError> {
    let age_ms_max = query.age_ms_max;
    let filter = query.filter(&caller.access)?;
    let look = async { Ok::<_, StoreError>(Arc::new(app.store().history(&filter).await?)) };
    let rows = app
        .state::<Recent<HistoryFilter, Arc<Vec<HistoryRow>>>>()
        .get(filter.clone(), age_ms_max, look)
        .await?;
    Ok(Json(History::of(&rows)))
}
