//! `GET /jobs/{job}/steps`: the steps of a flow.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_engine::flow_steps::{FlowStep, STEPS_PAGE_MAX, steps};
use gristmill_model::{JobId, JobState};
use gristmill_operations::jobs::details::details_of;
use gristmill_operations::read::{check_rows, read_job};
use gristmill_store::JobCounts;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::body::{PathText, Query};
use crate::caller::Caller;
use crate::error::{ApiError, Refusal};

/// Steps on a page where nothing is said.
const PAGE_STEPS: u32 = 100;

/// Which steps are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StepsQuery {
    /// The number of the first step, from 0: `next` of the previous page.
    #[serde(default)]
    from: Option<u32>,
    /// The maximum number of steps on the page; 100 by default.
    #[serde(default)]
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<u32>,
}

/// One step of a flow: a job, or the jobs of one map.
#[derive(Debug, Serialize, ToSchema)]
pub struct StepView {
    /// Its number among the steps of the flow, from 0.
    number: u32,
    /// Its name, if the flow keeps names.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Its key, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The kind of its jobs; none where they are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// Its job; the first one of several.
    #[schema(value_type = String, example = "42:7")]
    job: JobId,
    /// The number of its jobs, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    jobs: Option<u32>,
    /// Its state. Of several jobs: that of one that has not ended, or of one that did not complete. None where they are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "completed")]
    state: Option<JobState>,
    /// Its jobs by state, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    states: Option<JobCounts>,
    /// The attempt of its job; none for several jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// When the flow asked for it. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    submitted_at: Option<i64>,
    /// When its job was claimed, while it runs. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    claimed_at: Option<i64>,
    /// When its job ended; none for several jobs. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<i64>,
    /// The event for which it waits or waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    /// The moment up to which it waits, while it does. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<i64>,
    /// The message of its last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl From<FlowStep> for StepView {
    fn from(step: FlowStep) -> Self {
        StepView {
            number: step.number,
            name: step.name,
            key: step.key,
            kind: step.kind.map(|kind| kind.to_string()),
            job: step.job,
            jobs: step.jobs,
            state: step.state,
            states: step.states,
            attempt: step.attempt,
            submitted_at: step.submitted_at.map(|at| at.0),
            claimed_at: step.claimed_at.map(|at| at.0),
            finished_at: step.finished_at.map(|at| at.0),
            event: step.event,
            until: step.until.map(|until| until.0),
            error: step.error,
        }
    }
}

/// A page of steps.
#[derive(Debug, Serialize, ToSchema)]
pub struct StepsPage {
    /// Whether the job is a flow. Another job that waited for its children has them as steps, too.
    flow: bool,
    /// The flow of which this one is a fork. Its first steps are from there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "42:7")]
    origin: Option<String>,
    /// How often the flow has begun anew, with an empty memo; none for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    continued: Option<u64>,
    /// The number of all steps.
    total: u32,
    /// In the order in which the flow asked for them.
    steps: Vec<StepView>,
    /// The `from` of the next page, if there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u32>,
}

/// List the steps of a flow
///
/// A job that never waited for others has none.
#[utoipa::path(
    get,
    path = "/jobs/{job}/steps",
    tag = "jobs",
    operation_id = "steps",
    params(
        (
            "job" = String, Path, description = "The flow's id: its batch and position", example = "42:7",
            pattern = "^[0-9]{1,18}:[0-9]{1,9}$"
        ),
        StepsQuery,
    ),
    responses(
        (status = 200, description = "A page of steps", body = StepsPage),
        (status = "4XX", description = "Refused, or not found", body = Refusal),
    )
)]
pub async fn job_steps(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    PathText(job): PathText,
    Query(query): Query<StepsQuery>,
) -> Result<Json<StepsPage>, ApiError> {
    let id: JobId = read_job(&job)?;
    let limit = check_rows(query.limit, PAGE_STEPS, STEPS_PAGE_MAX)?;
    details_of(&**app.store(), &caller.access, id).await?;
    let from = query.from.unwrap_or(0);
    let page = steps(&**app.store(), id, from, limit).await?;
    let next = from.saturating_add(page.steps.len() as u32);
    Ok(Json(StepsPage {
        flow: page.is_flow,
        total: page.total,
        origin: page.origin,
        continued: Some(page.continued).filter(|count| *count > 0),
        next: (next < page.total).then_some(next),
        steps: page.steps.into_iter().map(Into::into).collect(),
    }))
}
