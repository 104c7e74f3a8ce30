//! Forks of flows.

use std::collections::BTreeSet;

use gristmill_engine::flow_fork::{Fork, Forked, Forks, flows_to_fork};
use gristmill_engine::{CannotFork, Engine, StepAt};
use gristmill_model::JobId;
use serde::{Deserialize, Serialize};

use super::selection::{FilterRequest, SelectionRequest, selecting};
use crate::access::Access;
use crate::limits::SELECTED_JOBS_MAX;
use crate::refused::Refused;

selecting! {
    /// Either flows by id, or all matching flows that have ended, at most 10,000, and the step from which their forks go on.
    ForkRequest {
        /// The step that runs again, with all that follow: its name, or its number from 0.
        #[cfg_attr(feature = "schema", schema(value_type = String, example = "embed"))]
        from: StepRequest,
        /// The key of the step.
        #[serde(default)]
        step_key: Option<String>,
        /// The version of the new instances; that of each flow by default.
        #[serde(default)]
        version: Option<String>,
    }
}

/// A step, by its number or its name.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum StepRequest {
    Number(u32),
    Name(String),
}

/// What became of each flow.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ForkedView {
    /// The flows, in the order of their ids.
    flows: Vec<ForkedFlow>,
}

/// What became of one flow.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ForkedFlow {
    /// The flow.
    #[cfg_attr(feature = "schema", schema(example = "42:7"))]
    flow: String,
    /// The new instance, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(example = "51:0"))]
    fork: Option<String>,
    /// The reason why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Forks the flows of a selection.
pub async fn fork(engine: &Engine, access: &Access, mut request: ForkRequest) -> Result<ForkedView, Refused> {
    let store = &**engine.store();
    let selected = request.selection();
    let from = match (request.from, request.step_key) {
        (StepRequest::Number(number), None) => StepAt::Number(number),
        (StepRequest::Number(_), Some(_)) => {
            return Err(Refused::invalid(
                "`step_key` is given with a number",
                "give the name of the step, or its number alone",
            ));
        }
        (StepRequest::Name(name), key) => StepAt::Named { name, key },
    };
    // A flow outside of the caller's queues is told as one that does not exist.
    let named = selected.named()?;
    let selection = selected.check(store, access).await?;
    let flows = flows_to_fork(store, selection).await?;
    let count: usize = flows.iter().map(|jobs| jobs.positions.len() as usize).sum();
    if count > SELECTED_JOBS_MAX {
        return Err(Refused::invalid(
            format!("{count} flows match, and a request forks at most {SELECTED_JOBS_MAX}"),
            "narrow the filter, or use `gristmill flow fork`",
        ));
    }
    let version = request.version;
    let mut forks = Forks::of(store, flows, Fork { from, version })?;
    let mut told = Vec::with_capacity(count);
    while let Some(more) = forks.next().await? {
        told.extend(more);
    }
    let known: BTreeSet<JobId> = told.iter().map(|forked| forked.origin).collect();
    told.extend(named.difference(&known).map(|origin| Forked {
        origin: *origin,
        fork: Err(CannotFork::Unknown),
    }));
    told.sort_by_key(|forked| forked.origin);
    let flows = told.into_iter().map(|forked| ForkedFlow {
        flow: forked.origin.to_string(),
        error: forked.fork.as_ref().err().map(ToString::to_string),
        fork: forked.fork.ok().map(|fork| fork.to_string()),
    });
    Ok(ForkedView {
        flows: flows.collect(),
    })
}
