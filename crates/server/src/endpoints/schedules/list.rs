//! `GET /schedules`: lists schedules.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_model::limits::PAGE_ROWS_MAX;
use gristmill_model::{RecurrenceRule, Timestamp};
use gristmill_store::{CatchUp, Overlap, Schedule, StoreError};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// The default number of rows on a page.
const PAGE_ROWS: u32 = 100;

/// The number of next due moments in a view of a schedule.
const UPCOMING: usize = 5;

/// The listed schedules.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct SchedulesQuery {
    /// Only schedules with a name after this one.
    after: Option<String>,
    /// The maximum number.
    #[param(minimum = 1, maximum = 10_000)]
    limit: Option<u32>,
}

/// A schedule.
#[derive(Debug, Serialize, ToSchema)]
pub struct ScheduleView {
    /// Its name.
    schedule: String,
    /// Its recurrence.
    rule: RecurrenceRule,
    /// The kind of its jobs.
    kind: String,
    /// Their queue.
    queue: String,
    /// Their payload: any JSON. Null if it is hidden from the caller.
    #[schema(value_type = serde_json::Value)]
    payload: Box<serde_json::value::RawValue>,
    /// The deduplication key of its jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The action for moments that passed while no process ran.
    catch_up: CatchUp,
    /// The action while the last job has not ended.
    overlap: Overlap,
    /// Its next due moment, if any. Milliseconds since 1970.
    next_at: Option<i64>,
    /// Its next due moments by the clocks of its time zone, at most five, `next_at` first. Milliseconds since 1970.
    #[schema(max_items = 5)]
    upcoming: Vec<i64>,
    /// The due moment of its last job. Milliseconds since 1970.
    last_at: Option<i64>,
    /// The job that it submitted last.
    last_job: Option<String>,
    /// The number of jobs that it submitted.
    fired: u64,
    /// True while the schedule is paused.
    paused: bool,
}

impl ScheduleView {
    /// The current view of a schedule.
    pub fn of(row: Schedule, now: Timestamp) -> Result<Self, ApiError> {
        let upcoming = row.upcoming(now, UPCOMING)?;
        let payload = row.schedule.payload.get(0).unwrap_or("null").to_owned();
        let unreadable = |error: serde_json::Error| {
            ApiError::Store(StoreError::Database(format!(
                "the payload of schedule `{}` is damaged: {error}",
                row.schedule.name
            )))
        };
        Ok(ScheduleView {
            payload: serde_json::value::RawValue::from_string(payload).map_err(unreadable)?,
            schedule: row.schedule.name,
            rule: row.schedule.rule,
            kind: row.schedule.kind,
            queue: row.schedule.queue,
            key: row.schedule.key,
            catch_up: row.schedule.catch_up,
            overlap: row.schedule.overlap,
            next_at: row.next_at.map(|moment| moment.0),
            upcoming: upcoming.into_iter().map(|moment| moment.0).collect(),
            last_at: row.last_at.map(|moment| moment.0),
            last_job: row.last_job.map(|job| job.to_string()),
            fired: row.fired,
            paused: row.paused_until.is_some(),
        })
    }

    /// Hides the payload of the jobs from callers that may not see it.
    pub fn shown_to(mut self, app: &App, caller: &Caller) -> Self {
        if app.hides_payloads_from(caller) {
            self.payload = serde_json::value::RawValue::NULL.to_owned();
        }
        self
    }
}

/// A page of schedules.
#[derive(Debug, Serialize, ToSchema)]
pub struct Schedules {
    /// By name. A page that is not full is the last one.
    schedules: Vec<ScheduleView>,
}

/// List schedules
#[utoipa::path(
    get,
    path = "/schedules",
    tag = "schedules",
    operation_id = "schedules",
    params(SchedulesQuery),
    responses(
        (status = 200, description = "Schedules by name", body = Schedules),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn schedules(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<SchedulesQuery>,
) -> Result<Json<Schedules>, ApiError> {
    let limit = query.limit.unwrap_or(PAGE_ROWS);
    if !(1..=PAGE_ROWS_MAX).contains(&limit) {
        return Err(ApiError::invalid(
            format!("`limit` is {limit}"),
            format!("give 1 to {PAGE_ROWS_MAX}"),
        ));
    }
    let rows = app.store().schedules(query.after.as_deref(), limit).await?;
    let now = app.clock().now();
    let shown = move |row| ScheduleView::of(row, now).map(|schedule| schedule.shown_to(&app, &caller));
    // Finding the moments of thousands of expressions takes a while.
    let work = tokio::task::spawn_blocking(move || rows.into_iter().map(shown).collect::<Result<_, _>>());
    let schedules = work.await.map_err(|error| {
        ApiError::Store(StoreError::Database(format!(
            "the schedules cannot be shown: {error}"
        )))
    })?;
    Ok(Json(Schedules {
        schedules: schedules?,
    }))
}
