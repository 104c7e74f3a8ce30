//! `GET /history`: the number of ended jobs by end and their durations.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_model::Timestamp;
use gristmill_store::{HistoryFilter, HistoryPeriod, HistoryRow, StoreError};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::rate::recent::Recent;

/// The counted jobs. An omitted condition matches all.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HistoryQuery {
    /// Only of this kind.
    #[serde(default)]
    kind: Option<String>,
    /// Only on this queue. Required for a token with several queues but not all.
    #[serde(default)]
    queue: Option<String>,
    /// Only jobs that ended at this time or later. Milliseconds since 1970.
    #[serde(default)]
    since: Option<i64>,
    /// Only jobs that ended before this time. Milliseconds since 1970.
    #[serde(default)]
    until: Option<i64>,
    /// The period of a row: all time by default, or each hour or day in UTC.
    #[serde(default)]
    #[param(inline)]
    by: Period,
    /// The greatest allowed age of the answer, so that the server can share one answer among callers. If counting is
    /// slow, the answer may be as old as 50 times its duration. Without this, the answer is new. Milliseconds.
    #[serde(default)]
    #[param(minimum = 0, maximum = 60_000)]
    age_ms_max: Option<u64>,
}

/// The length of the period of a row.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// All time.
    #[default]
    All,
    /// An hour.
    Hour,
    /// A day in UTC.
    Day,
}

/// Jobs of one kind on one queue that ended within one period.
#[derive(Debug, Serialize, ToSchema)]
pub struct HistoryView {
    /// The start of the period. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<i64>,
    /// Their kind.
    kind: String,
    /// Their queue.
    queue: String,
    /// The number of completed jobs.
    completed: u64,
    /// The number of dead jobs.
    dead: u64,
    /// The number of cancelled jobs.
    cancelled: u64,
    /// The number of expired jobs.
    expired: u64,
    /// The durations of completed jobs, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    duration: Option<DurationView>,
}

/// Durations of last attempts, in microseconds. Percentiles are rounded up, by a sixteenth at most.
#[derive(Debug, Serialize, ToSchema)]
pub struct DurationView {
    /// The mean.
    mean_us: f64,
    /// The 50th percentile.
    p50_us: u64,
    /// The 95th percentile.
    p95_us: u64,
    /// The 99th percentile.
    p99_us: u64,
}

/// The history of ended jobs.
#[derive(Debug, Serialize, ToSchema)]
pub struct History {
    /// The latest period first, then by queue and kind.
    rows: Vec<HistoryView>,
}

impl From<&HistoryRow> for HistoryView {
    fn from(row: &HistoryRow) -> Self {
        let durations = &row.durations;
        let percentile = |quantile| durations.quantile_us(quantile).unwrap_or(0);
        let duration = durations.mean_us().map(|mean_us| DurationView {
            mean_us,
            p50_us: percentile(0.5),
            p95_us: percentile(0.95),
            p99_us: percentile(0.99),
        });
        HistoryView {
            from: row.from.map(|moment| moment.0),
            duration,
            kind: row.kind.to_string(),
            queue: row.queue.to_string(),
            completed: row.completed,
            dead: row.dead,
            cancelled: row.cancelled,
            expired: row.expired,
        }
    }
}

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
    let filter = HistoryFilter {
        kind: query.kind,
        queue: caller.filter_queue(query.queue)?,
        since: query.since.map(Timestamp),
        until: query.until.map(Timestamp),
        by: match query.by {
            Period::All => HistoryPeriod::All,
            Period::Hour => HistoryPeriod::Hour,
            Period::Day => HistoryPeriod::Day,
        },
    };
    let look = async { Ok::<_, StoreError>(Arc::new(app.store().history(&filter).await?)) };
    let rows = app
        .state::<Recent<HistoryFilter, Arc<Vec<HistoryRow>>>>()
        .get(filter.clone(), query.age_ms_max, look)
        .await?;
    Ok(Json(History {
        rows: rows.iter().map(Into::into).collect(),
    }))
}
