//! `GET /jobs/count`: the number of matching jobs.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_store::JobCounts;
use serde::Serialize;
use utoipa::ToSchema;

use super::list::JobsQuery;
use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// The number of matching jobs.
#[derive(Debug, Serialize, ToSchema)]
pub struct Counted {
    /// All of them.
    jobs: u64,
    /// Their number by state.
    #[schema(value_type = Object)]
    states: JobCounts,
}

/// Count jobs
///
/// The conditions are those of the list of jobs, without `after`, `limit` and `newest`.
#[utoipa::path(
    get,
    path = "/jobs/count",
    tag = "jobs",
    operation_id = "count_jobs",
    params(JobsQuery),
    responses(
        (status = 200, description = "The number of jobs that match", body = Counted),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn count_jobs(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<JobsQuery>,
) -> Result<Json<Counted>, ApiError> {
    query.check_no_text()?;
    if query.is_paged() {
        return Err(ApiError::invalid(
            "a count has no pages",
            "omit `after`, `limit` and `newest`",
        ));
    }
    let filter = query.filter(&app, &caller).await?;
    let states = app.store().counts(&filter).await?;
    Ok(Json(Counted {
        jobs: states.total(),
        states,
    }))
}
