//! What instances of flows keep, for programs that replay them.

use gristmill_engine::Engine;
use gristmill_model::positions::by_batch;
use gristmill_model::{JobId, JobState, bounded};
use gristmill_store::ChildOutcome;
use gristmill_store::family::child_outcomes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::details::details_of;
use crate::access::Access;
use crate::limits::{MEMOS_PER_REQUEST_MAX, MEMOS_READ_MAX};
use crate::read::read_job;
use crate::refused::Refused;

/// The flows whose memos are asked for.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MemosRequest {
    /// These flows: at most 100.
    #[serde(deserialize_with = "bounded::list::<_, _, MEMOS_READ_MAX>")]
    #[cfg_attr(feature = "schema", schema(max_items = 100, example = json!(["42:7", "42:8"])))]
    jobs: Vec<String>,
}

/// What flows keep.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemosView {
    /// The flows, in the order of their ids.
    flows: Vec<MemoView>,
}

/// What one flow keeps.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemoView {
    /// The flow.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "42:7"))]
    job: JobId,
    /// Its state.
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "blocked"))]
    state: JobState,
    /// Its payload.
    #[cfg_attr(feature = "schema", schema(value_type = serde_json::Value))]
    payload: Box<RawValue>,
    /// Its memo: a part for each time that it waited.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<serde_json::Value>))]
    memos: Vec<Box<RawValue>>,
    /// The outcomes of its steps' jobs, in order; `waiting` for those that have not ended.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<serde_json::Value>))]
    outcomes: Vec<ChildOutcome>,
}

/// Reads what flows keep.
///
/// # Errors
///
/// A flow does not exist, or the store fails.
pub async fn memos(engine: &Engine, access: &Access, request: MemosRequest) -> Result<MemosView, Refused> {
    if request.jobs.len() > MEMOS_PER_REQUEST_MAX {
        return Err(Refused::invalid(
            format!("there are more than {MEMOS_PER_REQUEST_MAX} flows"),
            "ask for them in several requests",
        ));
    }
    let store = &**engine.store();
    let jobs: Vec<JobId> = request
        .jobs
        .iter()
        .map(|job| read_job(job))
        .collect::<Result<_, _>>()?;
    let mut flows = Vec::with_capacity(jobs.len());
    for (batch, positions) in by_batch(jobs) {
        let suspensions = store.suspensions(batch, &positions).await?;
        let outcomes = child_outcomes(store, batch, &positions).await?;
        let kept = suspensions.into_iter().zip(outcomes);
        for (position, (suspensions, outcomes)) in positions.iter().zip(kept) {
            let job = JobId { batch, position };
            let details = details_of(store, access, job).await?;
            let memos = suspensions
                .into_iter()
                .map(|step| RawValue::from_string(step.memo));
            flows.push(MemoView {
                job,
                state: details.row.state,
                payload: details.payload,
                memos: memos.collect::<Result<_, _>>().map_err(|error| {
                    Refused::invalid(format!("the memo of {job}: {error}"), "check the store")
                })?,
                outcomes,
            });
        }
    }
    Ok(MemosView { flows })
}
