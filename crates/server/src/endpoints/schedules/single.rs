//! `GET`, `PUT` and `DELETE /schedules/{schedule}`, and its operations pause, resume and trigger.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use gristmill_model::batch::DEFAULT_QUEUE;
use gristmill_model::{BatchOptions, PackedBuilder, PackedError, RecurrenceRule, Timestamp, bounded};
use gristmill_operations::{JobOptions, Priority, RetryOptions, UniqueOptions};
use gristmill_store::{CatchUp, NewSchedule, Overlap, ScheduleChange};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::list::ScheduleView;
use crate::app::App;
use crate::body::{JsonBody, NoQuery, PathText, Query, json};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};
use crate::limits::{TAGS_READ_MAX, TIMESTAMP_MS_MAX};

/// A schedule to create or change.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleRequest<'a> {
    /// Its recurrence.
    rule: RecurrenceRule,
    /// The kind: selects the handler of its jobs.
    #[schema(min_length = 1, max_length = 200, example = "report")]
    kind: String,
    /// The queue: selects the workers of the jobs; `default` by default.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    queue: Option<String>,
    /// The tenant that owns the jobs: limits, pauses and shares can apply to a group.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    group: Option<String>,
    /// The payload of its jobs: any JSON; `null` by default.
    #[serde(default, borrow)]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<&'a RawValue>,
    /// Higher is claimed first; 0 by default.
    #[serde(default)]
    priority: Option<Priority>,
    /// The time limit of one attempt. Milliseconds.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 316_224_000_000_i64)]
    timeout_ms: Option<u64>,
    /// A job that no worker has started this long after it was due expires. Milliseconds.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 316_224_000_000_i64)]
    expires_after_ms: Option<u64>,
    /// A job that has not completed this long after its first attempt began is not retried, and ends as dead.
    /// Milliseconds.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 316_224_000_000_i64)]
    complete_within_ms: Option<u64>,
    /// Reuses the value of a job of the same queue, kind, group and payload that completed within this time, if it also
    /// had this option. Milliseconds. Not with a key.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 316_224_000_000_i64)]
    cached_ms: Option<u64>,
    /// The deduplication key of its jobs. Not with hooks, and with no `overlap` but `allow`.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    key: Option<String>,
    /// The rules of deduplication, for a schedule with a key; not `reject`.
    #[serde(default)]
    unique: Option<UniqueOptions>,
    /// The tags of its jobs: values by name.
    #[serde(default, deserialize_with = "bounded::texts::<_, TAGS_READ_MAX>")]
    #[schema(example = json!({"region": "eu"}))]
    tags: BTreeMap<String, String>,
    /// The retry policy.
    #[serde(default)]
    retry: Option<RetryOptions>,
    /// The action for moments that passed while no process ran; `one` by default.
    #[serde(default)]
    catch_up: CatchUp,
    /// The action while the last job has not ended; `allow` by default.
    #[serde(default)]
    overlap: Overlap,
    /// When its jobs have completed: the kind of a job that gets a summary as its payload, or a URL that a worker with
    /// `--http-hooks` posts the summary to.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 2000)]
    on_success: Option<String>,
    /// The same, when its jobs have ended and one has not completed.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 2000)]
    on_failure: Option<String>,
}

impl ScheduleRequest<'_> {
    fn check(self, name: String, caller: &Caller, now: Timestamp) -> Result<NewSchedule, ApiError> {
        let options = JobOptions {
            priority: self.priority,
            timeout_ms: self.timeout_ms,
            complete_within_ms: self.complete_within_ms,
            cached_ms: self.cached_ms,
            retry: self.retry,
            group: self.group,
            on_success: self.on_success,
            on_failure: self.on_failure,
            ..JobOptions::default()
        };
        // The store refuses rules without a key.
        let unique = match (self.unique, &self.key) {
            (None, None) => None,
            (unique, _) => {
                let unique = unique.unwrap_or_default().check()?;
                caller.check_key_scope(unique.scope)?;
                Some(unique)
            }
        };
        let mut payload = PackedBuilder::new();
        let text = self.payload.map_or("null", RawValue::get);
        payload.push(text).map_err(|error: PackedError| {
            ApiError::invalid(format!("`payload`: {error}"), "give JSON within the limit")
        })?;
        Ok(NewSchedule {
            name,
            rule: self.rule,
            kind: self.kind,
            queue: self.queue.unwrap_or_else(|| DEFAULT_QUEUE.to_owned()),
            payload: payload.finish(),
            options: BatchOptions {
                unique,
                ..options.check(now)?
            },
            key: self.key,
            expires_after_ms: self.expires_after_ms,
            tags: self.tags,
            catch_up: self.catch_up,
            overlap: self.overlap,
        })
    }
}

/// The end of a schedule's pause.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PauseRequest {
    /// The end of the pause; by default, it ends when the schedule is resumed. Milliseconds since 1970.
    #[schema(minimum = 0, maximum = 253_402_300_799_999_i64)]
    until: Option<i64>,
}

async fn shown(app: &App, name: &str) -> Result<Json<ScheduleView>, ApiError> {
    let row = app.store().schedule(name).await?;
    let row = row.ok_or_else(|| not_found(name))?;
    Ok(Json(ScheduleView::of(row, app.clock().now())?))
}

fn not_found(name: &str) -> ApiError {
    ApiError::NotFound {
        what: "schedule",
        id: name.chars().take(80).collect(),
    }
}

async fn change(app: &App, name: &str, change: ScheduleChange) -> Result<(), ApiError> {
    let names = BTreeSet::from([name.to_owned()]);
    match app.store().change_schedules(names, change).await? {
        0 => Err(not_found(name)),
        _ => Ok(()),
    }
}

/// Show a schedule
#[utoipa::path(
    get,
    path = "/schedules/{schedule}",
    tag = "schedules",
    operation_id = "schedule",
    params(("schedule" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The schedule", body = ScheduleView),
        (status = "4XX", description = "Refused, or not found", body = Refusal),
    )
)]
pub async fn schedule(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathText(name): PathText,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<ScheduleView>, ApiError> {
    let Json(schedule) = shown(&app, &name).await?;
    Ok(Json(schedule.shown_to(&app, &caller)))
}

/// Create or change a schedule
///
/// A schedule with an unchanged rule keeps its next due moment, so a program can put its schedules at each start.
#[utoipa::path(
    put,
    path = "/schedules/{schedule}",
    tag = "schedules",
    operation_id = "put_schedule",
    params(("schedule" = String, Path, description = "Its name")),
    request_body = ScheduleRequest,
    responses(
        (status = 200, description = "The current schedule", body = ScheduleView),
        (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
    )
)]
pub async fn put_schedule(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathText(name): PathText,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<ScheduleView>, ApiError> {
    let now = app.engine.clock().now();
    let named = name.clone();
    let schedule = body
        .read_with(move |bytes| json::<ScheduleRequest<'_>>(bytes)?.check(named, &caller, now))
        .await?;
    app.store().put_schedules(vec![schedule]).await?;
    shown(&app, &name).await
}

/// Delete a schedule
///
/// Jobs that the schedule submitted stay.
#[utoipa::path(
    delete,
    path = "/schedules/{schedule}",
    tag = "schedules",
    operation_id = "delete_schedule",
    params(("schedule" = String, Path, description = "Its name")),
    responses(
        (status = 204, description = "The schedule is deleted"),
        (status = "4XX", description = "Refused, or not found", body = Refusal),
    )
)]
pub async fn delete_schedule(
    State(app): State<App>,
    PathText(name): PathText,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<StatusCode, ApiError> {
    change(&app, &name, ScheduleChange::Delete).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pause a schedule
#[utoipa::path(
    post,
    path = "/schedules/{schedule}/pause",
    tag = "schedules",
    operation_id = "pause_schedule",
    params(("schedule" = String, Path, description = "Its name")),
    request_body = PauseRequest,
    responses(
        (status = 200, description = "The current schedule", body = ScheduleView),
        (status = "4XX", description = "Refused, or not found", body = Refusal),
    )
)]
pub async fn pause_schedule(
    State(app): State<App>,
    PathText(name): PathText,
    Query(NoQuery {}): Query<NoQuery>,
    mut body: JsonBody,
) -> Result<Json<ScheduleView>, ApiError> {
    let until = body.read::<PauseRequest>().await?.until;
    if until.is_some_and(|until| !(0..=TIMESTAMP_MS_MAX).contains(&until)) {
        return Err(ApiError::invalid(
            format!("`until` is {}", until.unwrap_or_default()),
            format!("give 0 to {TIMESTAMP_MS_MAX}"),
        ));
    }
    let until = until.map(Timestamp);
    change(&app, &name, ScheduleChange::Pause { until }).await?;
    shown(&app, &name).await
}

/// Resume a schedule
///
/// Moments that passed during the pause are skipped.
#[utoipa::path(
    post,
    path = "/schedules/{schedule}/resume",
    tag = "schedules",
    operation_id = "resume_schedule",
    params(("schedule" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The current schedule", body = ScheduleView),
        (status = "4XX", description = "Refused, or not found", body = Refusal),
    )
)]
pub async fn resume_schedule(
    State(app): State<App>,
    PathText(name): PathText,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<ScheduleView>, ApiError> {
    change(&app, &name, ScheduleChange::Resume).await?;
    shown(&app, &name).await
}

/// Trigger a schedule
///
/// Submits a job now, paused or not. The next due moment does not change.
#[utoipa::path(
    post,
    path = "/schedules/{schedule}/trigger",
    tag = "schedules",
    operation_id = "trigger_schedule",
    params(("schedule" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The current schedule, with the job", body = ScheduleView),
        (status = "4XX", description = "Refused, or not found", body = Refusal),
    )
)]
pub async fn trigger_schedule(
    State(app): State<App>,
    PathText(name): PathText,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<ScheduleView>, ApiError> {
    change(&app, &name, ScheduleChange::Trigger).await?;
    app.wake.ring();
    shown(&app, &name).await
}
