//! `GET /batches`: batches, the newest first.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_model::BatchId;
use gristmill_operations::jobs::newest_batches::{descending, newest};
use gristmill_operations::read_states;
use gristmill_store::{BatchSummary, JobCounts, JobFilter};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::BATCH_ROWS_MAX;

/// The default number of batches on a page.
const PAGE_ROWS: u32 = 50;

/// The listed batches. An omitted condition matches all.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BatchesQuery {
    /// Only batches with a job in one of these states, separated by commas.
    #[serde(default)]
    #[param(example = "dead,expired")]
    states: Option<String>,
    /// Only of this kind.
    #[serde(default)]
    kind: Option<String>,
    /// Only on this queue. Required for a token with several queues but not all.
    #[serde(default)]
    queue: Option<String>,
    /// Only of this group.
    #[serde(default)]
    group: Option<String>,
    /// Only batches before this one: `next` of the previous page.
    #[serde(default)]
    #[param(minimum = 1)]
    before: Option<i64>,
    /// The maximum number of batches on the page; 50 by default.
    #[serde(default)]
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

/// One batch in a listing.
#[derive(Debug, Serialize, ToSchema)]
pub struct BatchView {
    /// Its id.
    batch: i64,
    /// The kind of its jobs.
    kind: String,
    /// Their queue.
    queue: String,
    /// Their group, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// The time of the submit of its first job. Milliseconds since 1970.
    submitted_at: i64,
    /// The number of its jobs.
    jobs: u64,
    /// Their number by state.
    #[schema(value_type = Object)]
    states: JobCounts,
}

/// A page of batches.
#[derive(Debug, Serialize, ToSchema)]
pub struct BatchesPage {
    /// The newest first.
    batches: Vec<BatchView>,
    /// The `before` of the next page, if there may be more. A page can be short, or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<i64>,
}

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
    let rows_max = match query.limit.unwrap_or(PAGE_ROWS) {
        limit if limit == 0 || limit > BATCH_ROWS_MAX => {
            return Err(ApiError::invalid(
                format!("`limit` is {limit}"),
                format!("give 1 to {BATCH_ROWS_MAX}"),
            ));
        }
        limit => limit as usize,
    };
    let filter = JobFilter {
        states: query
            .states
            .as_deref()
            .map(read_states)
            .transpose()?
            .unwrap_or_default(),
        kind: query.kind,
        queue: caller.access.filter_queue(query.queue)?,
        group: query.group,
        ..JobFilter::default()
    };
    let newest = match query.before {
        Some(before) if before < 1 => {
            return Err(ApiError::invalid(
                format!("`before` is {before}"),
                "give the `next` of the previous page",
            ));
        }
        Some(before) => before - 1,
        None => newest(&**app.store(), &filter).await?,
    };
    let (matching, next) = descending(&**app.store(), &filter, newest, rows_max).await?;
    let ids: Vec<BatchId> = matching.iter().map(|jobs| jobs.batch).collect();
    // A prune may delete a batch in the meantime.
    let summaries = app.store().batch_summaries(&ids).await?;
    Ok(Json(BatchesPage {
        batches: summaries.into_iter().rev().map(Into::into).collect(),
        next,
    }))
}

impl From<BatchSummary> for BatchView {
    fn from(summary: BatchSummary) -> Self {
        BatchView {
            batch: summary.batch.0,
            kind: summary.kind.to_string(),
            queue: summary.queue.to_string(),
            group: summary.group.map(|group| group.to_string()),
            submitted_at: summary.submitted_at.0,
            jobs: summary.counts.total(),
            states: summary.counts,
        }
    }
}
