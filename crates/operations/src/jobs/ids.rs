//! The ids of matching jobs, packed.

use gristmill_engine::Engine;
use gristmill_model::BatchId;
use serde::Serialize;

use super::list::JobsQuery;
use crate::access::Access;
use crate::refused::Refused;

/// Jobs of one batch.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobIds {
    /// The batch.
    batch: i64,
    /// The positions of the jobs, as ranges.
    #[cfg_attr(feature = "schema", schema(example = "0-499,731"))]
    positions: String,
}

/// A page of ids.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobIdsPage {
    /// By batch ascending.
    batches: Vec<JobIds>,
    /// The `after` of the next page, if there may be more. A page can be short; only the last page is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Lists the ids of jobs.
pub async fn job_ids(engine: &Engine, access: &Access, query: JobsQuery) -> Result<JobIdsPage, Refused> {
    query.check_all()?;
    let limit = query.rows()?;
    let after = match &query.after {
        None => None,
        Some(text) => Some(text.parse().map(BatchId).map_err(|_| {
            let cut: String = text.chars().take(40).collect();
            Refused::invalid(
                format!("`after` is `{cut}`, not a batch"),
                "give the `next` of the previous page",
            )
        })?),
    };
    let store = engine.store();
    let filter = query.filter(&**store, access).await?;
    // A page may be short although more follow, because the store also looks at batches without matching jobs.
    let found = store.job_ids(&filter, after, limit).await?;
    let batches = found.iter().map(|jobs| JobIds {
        batch: jobs.batch.0,
        positions: jobs.positions.to_string(),
    });
    Ok(JobIdsPage {
        next: found.last().map(|jobs| jobs.batch.to_string()),
        batches: batches.collect(),
    })
}
