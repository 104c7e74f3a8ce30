//! `GET /backlog`: the work that is left for workers, as numbers for autoscalers.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_operations::backlog::{Backlog, BacklogQuery, OpenWork};

use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::BACKLOG_COUNTED_ANEW_PIECES_MAX;
use crate::rate::watched::{Figure, Watched};

impl Figure for Arc<OpenWork> {
    fn is_cheap(&self) -> bool {
        let pieces: u64 = self.lanes.iter().map(|lane| lane.pieces).sum();
        pieces <= BACKLOG_COUNTED_ANEW_PIECES_MAX
    }
}

/// Read the backlog, for autoscalers
///
/// If the open jobs are in many batches, the answer comes from the last count. The server repeats the count while
/// clients ask, so that it is at most 4 s and 100 times its own duration old. Ended jobs cost nothing.
#[utoipa::path(
    get,
    path = "/backlog",
    tag = "watching",
    operation_id = "backlog",
    params(BacklogQuery),
    responses(
        (status = 200, description = "The work that is left", body = Backlog),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn backlog(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<BacklogQuery>,
) -> Result<Json<Backlog>, ApiError> {
    let queue = query.queue(&caller.access)?;
    let (store, stopping) = (app.store().clone(), app.clone());
    let count = move || {
        let store = store.clone();
        async move { Ok(Arc::new(OpenWork::count(&*store).await?)) }
    };
    let work = app
        .state::<Watched<Arc<OpenWork>>>()
        .get(count, async move { stopping.stopped().await })
        .await?;
    Ok(Json(query.backlog(queue.as_deref(), &work)))
}
