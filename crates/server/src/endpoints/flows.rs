//! `GET /flows` and `GET /flows/kinds`: flows with what they wait for, and their numbers by name, version and state.

use axum::extract::State;
use axum::{Extension, Json};
use gristmill_engine::flow_steps::{self, FlowKind, ListedFlow};
use gristmill_operations::read::{check_rows, read_job, read_states};
use gristmill_operations::stats::QueueCounts;
use gristmill_store::{KindCounts, Page};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::body::Query;
use crate::caller::Caller;
use crate::endpoints::jobs::steps::StepView;
use crate::error::{ApiError, Refusal};

/// Flows on a page where nothing is said.
const PAGE_FLOWS: u32 = 50;

/// Flows on a page, at most. Each that waits takes several reads.
const PAGE_FLOWS_MAX: u32 = 200;

/// Which flows are counted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FlowKindsQuery {
    /// Only of this name, in all versions, or of this kind: `document` or `document@3`.
    #[serde(default)]
    #[param(example = "document")]
    flow: Option<String>,
}

/// Which flows are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FlowsQuery {
    /// Only of this name, in all versions, or of this kind: `document` or `document@3`.
    #[serde(default)]
    #[param(example = "document")]
    flow: Option<String>,
    /// Only on this queue.
    #[serde(default)]
    queue: Option<String>,
    /// Only in these states, separated by commas: blocked, waiting, scheduled, paused, running, completed, dead, cancelled,
    /// expired.
    #[serde(default)]
    #[param(example = "blocked")]
    states: Option<String>,
    /// With `true`, only flows of kinds that no registered worker serves on their queues.
    #[serde(default)]
    no_worker: Option<bool>,
    /// Only flows after this one: `next` of the previous page.
    #[serde(default)]
    #[param(example = "42:7")]
    after: Option<String>,
    /// The maximum number of flows on the page; 50 by default.
    #[serde(default)]
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

/// The flows of one kind on one queue, by state.
#[derive(Debug, Serialize, ToSchema)]
pub struct FlowKindView {
    /// The kind and the queue, and the flows by state.
    #[serde(flatten)]
    counts: QueueCounts,
    /// The name of the flow.
    name: String,
    /// Its version, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Whether a registered worker serves the kind on the queue.
    has_worker: bool,
}

impl From<FlowKind> for FlowKindView {
    fn from(kind: FlowKind) -> Self {
        let counts = KindCounts {
            kind: kind.kind,
            queue: kind.queue,
            counts: kind.counts,
        };
        FlowKindView {
            counts: (&counts).into(),
            name: kind.name,
            version: kind.version,
            has_worker: kind.has_worker,
        }
    }
}

/// The kinds of flows that the token gives access to.
#[derive(Debug, Serialize, ToSchema)]
pub struct FlowKinds {
    /// By queue and kind.
    kinds: Vec<FlowKindView>,
}

/// A flow in a listing.
#[derive(Debug, Serialize, ToSchema)]
pub struct FlowView {
    /// Its id.
    #[schema(example = "42:7")]
    job: String,
    /// Its kind.
    kind: String,
    /// The name of the flow.
    name: String,
    /// Its version, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Its queue.
    queue: String,
    /// Its state.
    #[schema(example = "blocked")]
    state: String,
    /// The running, last or next attempt, from 1; 0 without any.
    attempt: u32,
    /// The time of its submit. Milliseconds since 1970.
    submitted_at: i64,
    /// The time of its end. Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<i64>,
    /// The message of its last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The first steps for which it waits; at most five.
    awaited: Vec<StepView>,
}

impl From<ListedFlow> for FlowView {
    fn from(flow: ListedFlow) -> Self {
        let row = flow.row;
        FlowView {
            job: row.job.to_string(),
            kind: row.kind.to_string(),
            name: flow.name,
            version: flow.version,
            queue: row.queue.to_string(),
            state: row.state.to_string(),
            attempt: row.attempt,
            submitted_at: row.submitted_at.0,
            finished_at: row.finished_at.map(|at| at.0),
            error: row.error,
            awaited: flow.awaited.into_iter().map(Into::into).collect(),
        }
    }
}

/// A page of flows.
#[derive(Debug, Serialize, ToSchema)]
pub struct FlowsPage {
    /// In the order of their ids.
    flows: Vec<FlowView>,
    /// The `after` of the next page, if there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// List flows
///
/// Flows of which one of the kind has waited, with what each waits for. Only on queues that the token gives access to.
#[utoipa::path(
    get,
    path = "/flows",
    tag = "jobs",
    operation_id = "flows",
    params(FlowsQuery),
    responses(
        (status = 200, description = "A page of flows", body = FlowsPage),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn flows(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<FlowsQuery>,
) -> Result<Json<FlowsPage>, ApiError> {
    let limit = check_rows(query.limit, PAGE_FLOWS, PAGE_FLOWS_MAX)?;
    let states = query.states.as_deref().map(read_states).transpose()?;
    let after = query.after.as_deref().map(read_job).transpose()?;
    let mut kinds = shown_kinds(&app, &caller, query.flow.as_deref()).await?;
    kinds.retain(|kind| query.queue.as_deref().is_none_or(|queue| *kind.queue == *queue));
    if query.no_worker == Some(true) {
        kinds.retain(|kind| !kind.has_worker);
    }
    let page = Page { after, limit };
    let listed = flow_steps::flows(&**app.store(), &kinds, &states.unwrap_or_default(), page).await?;
    let last = listed.flows.last().filter(|_| listed.has_more);
    Ok(Json(FlowsPage {
        next: last.map(|flow| flow.row.job.to_string()),
        flows: listed.flows.into_iter().map(Into::into).collect(),
    }))
}

/// Count flows
///
/// By name, version, queue and state. A kind is listed once one of its jobs has waited as a flow.
#[utoipa::path(
    get,
    path = "/flows/kinds",
    tag = "jobs",
    operation_id = "flow_kinds",
    params(FlowKindsQuery),
    responses(
        (status = 200, description = "The flows of each kind by state", body = FlowKinds),
        (status = "4XX", description = "Refused", body = Refusal),
    )
)]
pub async fn flow_kinds(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<FlowKindsQuery>,
) -> Result<Json<FlowKinds>, ApiError> {
    let kinds = shown_kinds(&app, &caller, query.flow.as_deref()).await?;
    Ok(Json(FlowKinds {
        kinds: kinds.into_iter().map(Into::into).collect(),
    }))
}

/// The kinds of flows on the caller's queues, by name, version and queue.
async fn shown_kinds(app: &App, caller: &Caller, named: Option<&str>) -> Result<Vec<FlowKind>, ApiError> {
    let mut kinds = flow_steps::flow_kinds(&**app.store(), named).await?;
    kinds.retain(|kind| caller.access.queues.contains(&kind.queue));
    kinds.sort_by(|a, b| (&a.kind, &a.queue).cmp(&(&b.kind, &b.queue)));
    Ok(kinds)
}
