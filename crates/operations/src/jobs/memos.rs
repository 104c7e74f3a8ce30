//! What instances of flows keep, for programs that replay them.

use std::collections::BTreeSet;

use gristmill_engine::Engine;
use gristmill_model::{JobId, JobState, Positions, bounded};
use gristmill_store::family::ChildReader;
use gristmill_store::{ChildOutcome, Store};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::details::details_of;
use crate::access::Access;
use crate::limits::{MEMOS_PER_REQUEST_MAX, MEMOS_READ_MAX, RESULT_BYTES_MAX};
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
    /// The flows for which the answer had no room, at most 32 MiB: ask for them next.
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
/// A flow does not exist or keeps more than an answer has room for, or the store fails.
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
    let jobs: BTreeSet<JobId> = jobs.into_iter().collect();
    let (mut flows, mut left) = (Vec::with_capacity(jobs.len()), jobs.iter().copied());
    let mut room_bytes = RESULT_BYTES_MAX;
    // Flows share batches of children.
    let outcomes = ChildReader::default();
    for job in jobs.iter().copied() {
        let flow = read_memo(store, access, &outcomes, job).await?;
        let bytes = flow.weight_bytes();
        if bytes > RESULT_BYTES_MAX {
            return Err(Refused::TooLarge {
                what: format!("what flow {job} keeps, {bytes} bytes,"),
                limit: format!("{RESULT_BYTES_MAX} bytes of payload, memo and outcomes of steps"),
            });
        }
        let Some(room_left) = room_bytes.checked_sub(bytes) else {
            break;
        };
        room_bytes = room_left;
        flows.push(flow);
        left.next();
    }
    Ok(MemosView {
        flows,
        left: left.collect(),
    })
}

async fn read_memo(
    store: &dyn Store,
    access: &Access,
    outcomes: &ChildReader,
    job: JobId,
) -> Result<MemoView, Refused> {
    let details = details_of(store, access, job).await?;
    let position = Positions::from(job.position..job.position + 1);
    let suspensions = store.suspensions(job.batch, &position).await?;
    let memos = suspensions
        .into_iter()
        .flatten()
        .map(|step| RawValue::from_string(step.memo));
    let memos = memos.collect::<Result<_, _>>();
    let outcomes = outcomes.outcomes(store, job.batch, &position).await?;
    Ok(MemoView {
        job,
        state: details.row.state,
        payload: details.payload,
        memos: memos
            .map_err(|error| Refused::invalid(format!("the memo of {job}: {error}"), "check the store"))?,
        outcomes: outcomes.into_iter().flatten().collect(),
    })
}

impl MemoView {
    /// Approximate number of bytes.
    fn weight_bytes(&self) -> usize {
        let memos = self.memos.iter().map(|memo| memo.get().len());
        let outcomes = self.outcomes.iter().map(ChildOutcome::weight_bytes);
        self.payload.get().len() + memos.sum::<usize>() + outcomes.sum::<usize>()
    }
}
