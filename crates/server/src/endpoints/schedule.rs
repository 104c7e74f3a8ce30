//! `GET`, `PUT` and `DELETE /schedules/{schedule}`, and what pauses, resumes and triggers it.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gristmill_model::batch::DEFAULT_QUEUE;
use gristmill_model::{PackedBuilder, PackedError, RecurrenceRule, Timestamp};
use gristmill_store::{CatchUp, NewSchedule, Overlap, ScheduleChange};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::priority::PriorityName;
use super::schedules::ScheduleView;
use super::submit_options::{RetryOptions, SubmitOptions};
use crate::app::App;
use crate::body::{JsonBody, NoQuery, PathText, Query};
use crate::error::{ApiError, Refusal};
use crate::limits::TIMESTAMP_MS_MAX;

/// When a schedule is due: by a cron expression, or at an interval.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Rule {
    /// By a cron expression.
    Cron {
        /// Minute, hour, day of month, month, day of week; seconds may stand first; or `@daily` and its kin.
        #[schema(example = "30 4 * * mon-fri")]
        expression: String,
        /// Whose clocks are meant, by the name in the IANA database; `UTC` where none is named.
        #[serde(default = "utc")]
        #[schema(example = "Europe/Berlin")]
        time_zone: String,
    },
    /// At a fixed interval.
    Every {
        /// Milliseconds.
        #[schema(minimum = 1_000, maximum = 316_224_000_000_i64)]
        interval_ms: u64,
    },
}

fn utc() -> String {
    "UTC".to_owned()
}

impl From<RecurrenceRule> for Rule {
    fn from(rule: RecurrenceRule) -> Self {
        match rule {
            RecurrenceRule::Cron {
                expression,
                time_zone,
            } => Rule::Cron {
                expression,
                time_zone,
            },
            RecurrenceRule::Every { interval_ms } => Rule::Every { interval_ms },
        }
    }
}

impl From<Rule> for RecurrenceRule {
    fn from(rule: Rule) -> Self {
        match rule {
            Rule::Cron {
                expression,
                time_zone,
            } => RecurrenceRule::Cron {
                expression,
                time_zone,
            },
            Rule::Every { interval_ms } => RecurrenceRule::Every { interval_ms },
        }
    }
}

/// What becomes of moments that passed while nothing ran.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CatchUpName {
    /// They are left out.
    Skip,
    /// One job for all of them.
    #[default]
    One,
    /// A job for each.
    All,
}

/// What happens while the last job is not over.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OverlapName {
    /// The next one is submitted beside it.
    #[default]
    Allow,
    /// The moment is left out.
    Skip,
    /// It is cancelled for the next one.
    Replace,
}

macro_rules! same_names {
    ($name:ident, $stored:ident, [$($variant:ident),*]) => {
        impl From<$name> for $stored {
            fn from(name: $name) -> Self {
                match name { $($name::$variant => $stored::$variant),* }
            }
        }

        impl From<$stored> for $name {
            fn from(stored: $stored) -> Self {
                match stored { $($stored::$variant => $name::$variant),* }
            }
        }
    };
}

same_names!(CatchUpName, CatchUp, [Skip, One, All]);
same_names!(OverlapName, Overlap, [Allow, Skip, Replace]);

/// A schedule as it is made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleRequest<'a> {
    /// When it is due.
    rule: Rule,
    /// Which handler runs its jobs.
    #[schema(min_length = 1, max_length = 200, example = "report")]
    kind: String,
    /// Which workers may take them; `default` where none is named.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    queue: Option<String>,
    /// Whose jobs they are: limits, pauses and shares may be set by group.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    group: Option<String>,
    /// The payload of its jobs: any JSON; `null` where none is given.
    #[serde(default, borrow)]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<&'a RawValue>,
    /// Higher is claimed first; 0 by default.
    #[serde(default)]
    priority: Option<PriorityName>,
    /// How long one attempt may take. Milliseconds.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 316_224_000_000_i64)]
    timeout_ms: Option<u64>,
    /// A job that nobody has started so long after it was due ends as expired. Milliseconds.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 316_224_000_000_i64)]
    expires_after_ms: Option<u64>,
    /// When a failed job is tried again.
    #[serde(default)]
    retry: Option<RetryOptions>,
    /// What becomes of moments that passed while nothing ran; `one` by default.
    #[serde(default)]
    catch_up: CatchUpName,
    /// What happens while the last job is not over; `allow` by default.
    #[serde(default)]
    overlap: OverlapName,
}

impl ScheduleRequest<'_> {
    fn check(self, name: String, now: Timestamp) -> Result<NewSchedule, ApiError> {
        let options = SubmitOptions {
            priority: self.priority,
            timeout_ms: self.timeout_ms,
            retry: self.retry,
            group: self.group,
            ..SubmitOptions::default()
        };
        let mut payload = PackedBuilder::new();
        let text = self.payload.map_or("null", RawValue::get);
        payload.push(text).map_err(|error: PackedError| {
            ApiError::invalid(format!("`payload`: {error}"), "give JSON within the limit")
        })?;
        Ok(NewSchedule {
            name,
            rule: self.rule.into(),
            kind: self.kind,
            queue: self.queue.unwrap_or_else(|| DEFAULT_QUEUE.to_owned()),
            payload: payload.finish(),
            options: options.check(now)?,
            expires_after_ms: self.expires_after_ms,
            catch_up: self.catch_up.into(),
            overlap: self.overlap.into(),
        })
    }
}

/// Until when a schedule is paused.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PauseRequest {
    /// When it goes on by itself; when it is resumed, where nothing is said. Milliseconds since 1970.
    #[schema(minimum = 0, maximum = 253_402_300_799_999_i64)]
    until: Option<i64>,
}

async fn shown(app: &App, name: &str) -> Result<Json<ScheduleView>, ApiError> {
    let row = app.store().schedule(name).await?;
    let row = row.ok_or_else(|| not_found(name))?;
    Ok(Json(row.try_into()?))
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
        (status = "4XX", description = "Refused, or there is none", body = Refusal),
    )
)]
pub async fn schedule(
    State(app): State<App>,
    PathText(name): PathText,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<ScheduleView>, ApiError> {
    shown(&app, &name).await
}

/// Make or change a schedule
///
/// With the rule that it has, a schedule stays due as it was, so that a program may put its schedules whenever it
/// starts.
#[utoipa::path(
    put,
    path = "/schedules/{schedule}",
    tag = "schedules",
    operation_id = "put_schedule",
    params(("schedule" = String, Path, description = "Its name")),
    request_body = ScheduleRequest,
    responses(
        (status = 200, description = "The schedule as it is now", body = ScheduleView),
        (status = "4XX", description = "Refused; nothing is changed", body = Refusal),
    )
)]
pub async fn put_schedule(
    State(app): State<App>,
    PathText(name): PathText,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody,
) -> Result<Json<ScheduleView>, ApiError> {
    let now = app.engine.clock().now();
    let schedule = body.read::<ScheduleRequest<'_>>()?.check(name.clone(), now)?;
    app.store().put_schedules(vec![schedule]).await?;
    shown(&app, &name).await
}

/// Delete a schedule
///
/// The jobs that it submitted stay.
#[utoipa::path(
    delete,
    path = "/schedules/{schedule}",
    tag = "schedules",
    operation_id = "delete_schedule",
    params(("schedule" = String, Path, description = "Its name")),
    responses(
        (status = 204, description = "It is gone"),
        (status = "4XX", description = "Refused, or there is none", body = Refusal),
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
        (status = 200, description = "The schedule as it is now", body = ScheduleView),
        (status = "4XX", description = "Refused, or there is none", body = Refusal),
    )
)]
pub async fn pause_schedule(
    State(app): State<App>,
    PathText(name): PathText,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody,
) -> Result<Json<ScheduleView>, ApiError> {
    let until = body.read::<PauseRequest>()?.until;
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
/// Moments that passed while it was paused are left out.
#[utoipa::path(
    post,
    path = "/schedules/{schedule}/resume",
    tag = "schedules",
    operation_id = "resume_schedule",
    params(("schedule" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The schedule as it is now", body = ScheduleView),
        (status = "4XX", description = "Refused, or there is none", body = Refusal),
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
/// It submits a job now, whether paused or not, and stays due as it was.
#[utoipa::path(
    post,
    path = "/schedules/{schedule}/trigger",
    tag = "schedules",
    operation_id = "trigger_schedule",
    params(("schedule" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The schedule as it is now, with the job", body = ScheduleView),
        (status = "4XX", description = "Refused, or there is none", body = Refusal),
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
