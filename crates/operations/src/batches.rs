//! Batches, the newest first.

use gristmill_engine::Engine;
use gristmill_model::BatchId;
use gristmill_store::{BatchSummary, JobCounts, JobFilter};
use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::jobs::newest_batches::{descending, newest};
use crate::limits::BATCH_ROWS_MAX;
use crate::read::{check_rows, read_states};
use crate::refused::Refused;

/// The default number of batches on a page.
const PAGE_ROWS: u32 = 50;

/// The listed batches. An omitted condition matches all.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", into_params(parameter_in = Query))]
pub struct BatchesQuery {
    /// Only batches with a job in one of these states, separated by commas.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(example = "dead,expired"))]
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
    #[cfg_attr(feature = "schema", param(minimum = 1))]
    before: Option<i64>,
    /// The maximum number of batches on the page; 50 by default.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(minimum = 1, maximum = 200))]
    limit: Option<u32>,
}

/// One batch in a listing.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    states: JobCounts,
}

/// A page of batches.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BatchesPage {
    /// The newest first.
    batches: Vec<BatchView>,
    /// The `before` of the next page, if there may be more. A page can be short, or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<i64>,
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

/// Lists batches.
pub async fn batches(engine: &Engine, access: &Access, query: BatchesQuery) -> Result<BatchesPage, Refused> {
    let rows_max = check_rows(query.limit, PAGE_ROWS, BATCH_ROWS_MAX)? as usize;
    let filter = JobFilter {
        states: query
            .states
            .as_deref()
            .map(read_states)
            .transpose()?
            .unwrap_or_default(),
        kind: query.kind,
        queue: access.filter_queue(query.queue)?,
        group: query.group,
        ..JobFilter::default()
    };
    let store = &**engine.store();
    let newest = match query.before {
        Some(before) if before < 1 => {
            return Err(Refused::invalid(
                format!("`before` is {before}"),
                "give the `next` of the previous page",
            ));
        }
        Some(before) => before - 1,
        None => newest(store, &filter).await?,
    };
    let (matching, next) = descending(store, &filter, newest, rows_max).await?;
    let ids: Vec<BatchId> = matching.iter().map(|jobs| jobs.batch).collect();
    // A prune may delete a batch in the meantime.
    let summaries = store.batch_summaries(&ids).await?;
    Ok(BatchesPage {
        batches: summaries.into_iter().rev().map(Into::into).collect(),
        next,
    })
}
