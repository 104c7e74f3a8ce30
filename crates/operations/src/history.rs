//! How many jobs ended, how, and how long they took.

use gristmill_engine::Engine;
use gristmill_model::Timestamp;
use gristmill_store::{HistoryFilter, HistoryPeriod, HistoryRow};
use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::refused::Refused;

/// The counted jobs. An omitted condition matches all.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", into_params(parameter_in = Query))]
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
    #[cfg_attr(feature = "schema", param(inline))]
    by: HistoryPeriod,
    /// The greatest allowed age of the answer, so that the server can share one answer among callers. If counting is
    /// slow, the answer may be as old as 100 times its duration. Without this, the answer is new. Milliseconds.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(minimum = 0, maximum = 60_000))]
    pub age_ms_max: Option<u64>,
}

/// Jobs of one kind on one queue that ended within one period.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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

impl HistoryQuery {
    /// The jobs that are counted.
    pub fn filter(self, access: &Access) -> Result<HistoryFilter, Refused> {
        Ok(HistoryFilter {
            kind: self.kind,
            queue: access.filter_queue(self.queue)?,
            since: self.since.map(Timestamp),
            until: self.until.map(Timestamp),
            by: self.by,
        })
    }
}

impl History {
    /// The history of these rows.
    pub fn of(rows: &[HistoryRow]) -> History {
        History {
            rows: rows.iter().map(Into::into).collect(),
        }
    }
}

/// Reads the history of ended jobs.
pub async fn history(engine: &Engine, access: &Access, query: HistoryQuery) -> Result<History, Refused> {
    let filter = query.filter(access)?;
    Ok(History::of(&engine.store().history(&filter).await?))
}
