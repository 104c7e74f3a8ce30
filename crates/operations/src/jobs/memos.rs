//! What instances of flows keep, for programs that replay them.

use std::collections::VecDeque;

use gristmill_engine::Engine;
use gristmill_model::positions::by_batch;
use gristmill_model::{BatchId, JobId, JobState, Positions, bounded};
use gristmill_store::family::ChildReader;
use gristmill_store::{ChildOutcome, Store};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::details::details_of;
use crate::access::Access;
use crate::limits::{MEMOS_PER_REQUEST_MAX, MEMOS_READ_MAX, RESULT_BYTES_MAX};
use crate::read::read_job;
use crate::refused::Refused;

/// Flows whose memos are read at a time.
const FLOWS_READ_AT_ONCE: u32 = 16;

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
    /// The flows for which the answer had no room, 32 MiB: ask for them next.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>, example = json!(["42:8"])))]
    left: Vec<JobId>,
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

/// Reads what flows keep, as many as an answer has room for.
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
    let mut portions: VecDeque<(BatchId, Positions)> = by_batch(jobs).into_iter().collect();
    let (mut flows, mut left, mut room_bytes) = (Vec::new(), Vec::new(), RESULT_BYTES_MAX);
    // Flows share batches of children.
    let outcomes = ChildReader::default();
    while let Some((batch, positions)) = portions.front_mut() {
        let (batch, portion) = (*batch, positions.take_first(FLOWS_READ_AT_ONCE));
        if positions.is_empty() {
            portions.pop_front();
        }
        for flow in read_memos(store, access, &outcomes, batch, &portion).await? {
            let bytes = flow.weight_bytes();
            // The first flow is answered whatever it keeps.
            if flows.is_empty() || left.is_empty() && bytes <= room_bytes {
                room_bytes = room_bytes.saturating_sub(bytes);
                flows.push(flow);
            } else {
                left.push(flow.job);
            }
        }
        if !left.is_empty() {
            break;
        }
    }
    let unread = portions.iter().flat_map(|(batch, positions)| {
        let batch = *batch;
        positions.iter().map(move |position| JobId { batch, position })
    });
    left.extend(unread);
    Ok(MemosView { flows, left })
}

async fn read_memos(
    store: &dyn Store,
    access: &Access,
    outcomes: &ChildReader,
    batch: BatchId,
    positions: &Positions,
) -> Result<Vec<MemoView>, Refused> {
    let jobs = positions.iter().map(|position| JobId { batch, position });
    let mut details = Vec::new();
    for job in jobs {
        details.push((job, details_of(store, access, job).await?));
    }
    let suspensions = store.suspensions(batch, positions).await?;
    let outcomes = outcomes.outcomes(store, batch, positions).await?;
    assert_eq!(
        (suspensions.len(), outcomes.len()),
        (details.len(), details.len()),
        "the store answers each flow"
    );
    let kept = details.into_iter().zip(suspensions).zip(outcomes);
    let flows = kept.map(|(((job, details), suspensions), outcomes)| {
        let memos = suspensions
            .into_iter()
            .map(|step| RawValue::from_string(step.memo));
        let memos = memos.collect::<Result<_, _>>();
        Ok(MemoView {
            job,
            state: details.row.state,
            payload: details.payload,
            memos: memos.map_err(|error| {
                Refused::invalid(format!("the memo of {job}: {error}"), "check the store")
            })?,
            outcomes,
        })
    });
    flows.collect()
}

impl MemoView {
    /// Approximate number of bytes.
    fn weight_bytes(&self) -> usize {
        let memos = self.memos.iter().map(|memo| memo.get().len());
        let outcomes = self.outcomes.iter().map(ChildOutcome::weight_bytes);
        self.payload.get().len() + memos.sum::<usize>() + outcomes.sum::<usize>()
    }
}
