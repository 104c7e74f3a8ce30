//! Flows with what they wait for, and their numbers by name, version and state.

use gristmill_engine::Engine;
use gristmill_engine::flow_steps::{self, FlowKind, FlowStep, ListedFlow};
use gristmill_store::{KindCounts, Page, Store};
use serde::{Deserialize, Serialize};

use super::list::JobSummary;
use crate::access::Access;
use crate::limits::{FLOWS_PER_PAGE, FLOWS_PER_PAGE_MAX};
use crate::read::{check_rows, read_job, read_states};
use crate::refused::Refused;
use crate::stats::QueueCounts;

/// Which flows are counted.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", into_params(parameter_in = Query))]
pub struct FlowKindsQuery {
    /// Only of this name, in all versions, or of this kind: `document` or `document@3`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(example = "document"))]
    pub flow: Option<String>,
    /// Only on this queue.
    #[serde(default)]
    pub queue: Option<String>,
    /// With `true`, only flows of kinds that no registered worker serves on their queues.
    #[serde(default)]
    pub no_worker: Option<bool>,
}

/// Which flows are listed.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", into_params(parameter_in = Query))]
pub struct FlowsQuery {
    /// Only of this name, in all versions, or of this kind: `document` or `document@3`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(example = "document"))]
    flow: Option<String>,
    /// Only on this queue.
    #[serde(default)]
    queue: Option<String>,
    /// Only in these states, separated by commas: blocked, waiting, scheduled, paused, running, completed, dead, cancelled,
    /// expired.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(example = "blocked"))]
    states: Option<String>,
    /// With `true`, only flows of kinds that no registered worker serves on their queues.
    #[serde(default)]
    no_worker: Option<bool>,
    /// Only flows after this one: `next` of the previous page.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(example = "42:7"))]
    after: Option<String>,
    /// The maximum number of flows on the page; 50 by default.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(minimum = 1, maximum = 200))]
    limit: Option<u32>,
}

/// The flows of one kind on one queue, by state.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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

/// The kinds of flows that the caller may see.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FlowKinds {
    /// The flows' numbers, by kind and queue.
    kinds: Vec<FlowKindView>,
}

/// A flow in a listing.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FlowView {
    #[serde(flatten)]
    summary: JobSummary,
    /// The name of the flow.
    name: String,
    /// Its version, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// The first steps for which it waits; at most five.
    awaited: Vec<FlowStep>,
}

impl From<ListedFlow> for FlowView {
    fn from(flow: ListedFlow) -> Self {
        FlowView {
            summary: flow.row.into(),
            name: flow.name,
            version: flow.version,
            awaited: flow.awaited,
        }
    }
}

/// A page of flows.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FlowsPage {
    /// In the order of their ids.
    flows: Vec<FlowView>,
    /// The `after` of the next page, if there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Finds the kinds of flows that a request is about, on the caller's queues, by kind and queue. A kind is found once one of its
/// jobs has waited as a flow.
///
/// # Errors
///
/// The store fails.
pub async fn kinds_of(
    store: &dyn Store,
    access: &Access,
    query: &FlowKindsQuery,
) -> Result<Vec<FlowKind>, Refused> {
    let mut kinds = flow_steps::flow_kinds(store, query.flow.as_deref()).await?;
    let is_without_worker = query.no_worker == Some(true);
    kinds.retain(|kind| {
        access.queues.contains(&kind.queue)
            && query.queue.as_deref().is_none_or(|queue| *kind.queue == *queue)
            && !(is_without_worker && kind.has_worker)
    });
    kinds.sort_by(|a, b| (&a.kind, &a.queue).cmp(&(&b.kind, &b.queue)));
    Ok(kinds)
}

/// Counts flows by name, version, queue and state.
///
/// # Errors
///
/// The store fails.
pub async fn flow_kinds(
    engine: &Engine,
    access: &Access,
    query: FlowKindsQuery,
) -> Result<FlowKinds, Refused> {
    let kinds = kinds_of(&**engine.store(), access, &query).await?;
    Ok(FlowKinds {
        kinds: kinds.into_iter().map(Into::into).collect(),
    })
}

/// Lists flows, each with what it waits for.
///
/// # Errors
///
/// The request is wrong, or the store fails.
pub async fn flows(engine: &Engine, access: &Access, query: FlowsQuery) -> Result<FlowsPage, Refused> {
    let limit = check_rows(query.limit, FLOWS_PER_PAGE, FLOWS_PER_PAGE_MAX)?;
    let states = query.states.as_deref().map(read_states).transpose()?;
    let after = query.after.as_deref().map(read_job).transpose()?;
    let wanted = FlowKindsQuery {
        flow: query.flow,
        queue: query.queue,
        no_worker: query.no_worker,
    };
    let store = &**engine.store();
    let kinds = kinds_of(store, access, &wanted).await?;
    let page = Page { after, limit };
    let listed = flow_steps::flows(store, &kinds, &states.unwrap_or_default(), page).await?;
    assert!(
        listed.flows.len() <= limit as usize,
        "a page has at most {limit} flows"
    );
    assert!(
        listed
            .flows
            .is_sorted_by(|flow, next| flow.row.job < next.row.job),
        "the place of the next page is behind each flow of this one"
    );
    let last = listed.flows.last().filter(|_| listed.has_more);
    Ok(FlowsPage {
        next: last.map(|flow| flow.row.job.to_string()),
        flows: listed.flows.into_iter().map(Into::into).collect(),
    })
}
