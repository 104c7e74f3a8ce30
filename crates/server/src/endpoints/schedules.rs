//! The operations on schedules.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use gristmill_operations::schedules::{
    self, PauseRequest, ScheduleRequest, ScheduleView, Schedules, SchedulesQuery,
};
use gristmill_store::ScheduleChange;

use crate::app::App;
use crate::body::{JsonBody, NoQuery, PathText, Query, json};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

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
    let mut page = schedules::schedules(&app.engine, query).await?;
    if app.hides_payloads_from(&caller) {
        page.schedules.iter_mut().for_each(ScheduleView::hide);
    }
    Ok(Json(page))
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
    let mut schedule = schedules::schedule(&app.engine, &name).await?;
    if app.hides_payloads_from(&caller) {
        schedule.hide();
    }
    Ok(Json(schedule))
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
    let (now, named) = (app.clock().now(), name);
    let schedule = body
        .read_with(move |bytes| Ok(json::<ScheduleRequest<'_>>(bytes)?.check(named, &caller.access, now)?))
        .await?;
    Ok(Json(schedules::put_schedule(&app.engine, schedule).await?))
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
    schedules::delete_schedule(&app.engine, &name).await?;
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
    let change = body.read::<PauseRequest>().await?.change()?;
    Ok(Json(
        schedules::change_schedule(&app.engine, &name, change).await?,
    ))
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
    let resumed = schedules::change_schedule(&app.engine, &name, ScheduleChange::Resume).await?;
    Ok(Json(resumed))
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
    let triggered = schedules::change_schedule(&app.engine, &name, ScheduleChange::Trigger).await?;
    app.wake.ring();
    Ok(Json(triggered))
}
