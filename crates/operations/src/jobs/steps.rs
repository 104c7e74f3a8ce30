//! The steps of a flow.

use gristmill_engine::Engine;
use gristmill_engine::flow_steps::{self, FlowStep, STEPS_PAGE_MAX};
use serde::{Deserialize, Serialize};

use super::details::details_of;
use crate::access::Access;
use crate::limits::STEPS_PER_PAGE;
use crate::read::{check_rows, read_job};
use crate::refused::Refused;

/// Which steps are listed.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", into_params(parameter_in = Query))]
pub struct StepsQuery {
    /// The number of the first step, from 0: `next` of the previous page.
    #[serde(default)]
    from: Option<u32>,
    /// The maximum number of steps on the page; 100 by default.
    #[serde(default)]
    #[cfg_attr(feature = "schema", param(minimum = 1, maximum = 1_000))]
    limit: Option<u32>,
}

/// A page of steps.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StepsPage {
    /// Whether the job is a flow. Another job that waited for its children has them as steps, too.
    flow: bool,
    /// The flow of which this one is a fork, or after which it cleans up. Its first steps are from there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(example = "42:7"))]
    origin: Option<String>,
    /// How often the flow has begun anew, with an empty memo; none for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    continued: Option<u64>,
    /// Whether it cleans up after its origin, which was cancelled; none if not.
    #[serde(skip_serializing_if = "Option::is_none")]
    cleans_up: Option<bool>,
    /// The number of all steps.
    total: u32,
    /// In the order in which the flow asked for them.
    steps: Vec<FlowStep>,
    /// The `from` of the next page, if there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u32>,
}

/// Lists the steps of a flow. A job that never waited for others has none.
///
/// # Errors
///
/// The flow is not found, the request is wrong, or the store fails.
pub async fn steps(
    engine: &Engine,
    access: &Access,
    job: &str,
    query: StepsQuery,
) -> Result<StepsPage, Refused> {
    let flow = read_job(job)?;
    let limit = check_rows(query.limit, STEPS_PER_PAGE, STEPS_PAGE_MAX)?;
    let store = &**engine.store();
    details_of(store, access, flow).await?;
    let from = query.from.unwrap_or(0);
    let page = flow_steps::steps(store, flow, from, limit).await?;
    // Each step of the page has the number that its place on the page gives it.
    let numbers = page.steps.iter().map(|step| step.number);
    debug_assert!(
        numbers.eq((from..).take(page.steps.len())),
        "steps follow each other"
    );
    let next = from.saturating_add(page.steps.len() as u32);
    Ok(StepsPage {
        flow: page.is_flow,
        total: page.total,
        origin: page.origin,
        continued: Some(page.continued).filter(|count| *count > 0),
        cleans_up: page.cleans_up.then_some(true),
        next: (next < page.total).then_some(next),
        steps: page.steps,
    })
}
