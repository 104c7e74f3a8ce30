//! `GET /jobs/ids`: the ids of matching jobs, packed.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_model::BatchId;
use gristmill_operations::jobs::list::JobsQuery;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// Jobs of one batch.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobIds {
    /// The batch.
    batch: i64,
    /// The positions of the jobs, as ranges.
    #[schema(example = "0-499,731")]
    positions: String,
}

/// A page of ids.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobIdsPage {
    /// By batch ascending.
    batches: Vec<JobIds>,
    /// The `after` of the next page, if there may be more. A page can be short; only the last page is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// List the ids of jobs
///
/// Ids are packed by batch: ten thousand matching jobs of one batch are one short line.
#[utoipa::path(
    get,
    path = "/jobs/ids",
    tag = "jobs",
    operation_id = "job_ids",
    params(JobsQuery),
    responses(
        (status = 200, description = "A page of batches, with the matching jobs of each", body = JobIdsPage),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn job_ids(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<JobsQuery>,
) -> Result<Json<JobIdsPage>, ApiError> {
    query.check_no_text()?;
    let limit = query.rows()?;
    let after = match &query.after {
        None => None,
        Some(text) => Some(text.parse().map(BatchId).map_err(|_| {
            let cut: String = text.chars().take(40).collect();
            ApiError::invalid(
                format!("`after` is `{cut}`, not a batch"),
                "give the `next` of the previous page",
            )
        })?),
    };
    let filter = query.filter(&**app.store(), &caller.access).await?;
    // A page may be short although more follow, because the store also looks at batches without matching jobs.
    let found = app.store().job_ids(&filter, after, limit).await?;
    Ok(Json(JobIdsPage {
        next: found.last().map(|jobs| jobs.batch.to_string()),
        batches: found
            .into_iter()
            .map(|jobs| JobIds {
                batch: jobs.batch.0,
                positions: jobs.positions.to_string(),
            })
            .collect(),
    }))
}
