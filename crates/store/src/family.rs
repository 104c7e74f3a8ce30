//! The children of a job and their outcomes, and the events and steps of flows.

use std::collections::{BTreeMap, BTreeSet};

use gristmill_model::batch::check_name;
use gristmill_model::limits::VALUE_BYTES_MAX;
use gristmill_model::{BatchId, JobError, JobId, JobState, PackedArray, PackedBuilder, Positions, Wake};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use crate::rules::family::child_failed;
use crate::{BatchPositions, Store, StoreError};

/// The last children that a job spawned; all children of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Children {
    /// The position of the job in its batch.
    pub parent: u32,
    /// The children, in ascending order of batch.
    pub jobs: Vec<BatchPositions>,
    /// Whether the job is a flow, which is told of all children that it ever spawned, and of those that are still open.
    pub is_flow: bool,
}

/// The outcome of a child.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChildOutcome {
    /// The child.
    pub job: JobId,
    /// The final state. Any state but `completed` is a failure. `waiting` for a child of a flow that has not ended.
    pub state: JobState,
    /// The value of a completed child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Box<RawValue>>,
    /// The error of a dead child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<JobError>,
}

impl ChildOutcome {
    /// A child of a flow that has not ended.
    fn open(job: JobId) -> Self {
        ChildOutcome {
            job,
            state: JobState::Waiting,
            value: None,
            error: None,
        }
    }

    /// Whether the child has ended.
    pub fn has_ended(&self) -> bool {
        self.state.is_final()
    }
}

/// Reads the outcomes of the children that these jobs of a batch spawned last, in the order of the jobs. The outcomes
/// for each job are in ascending order of batch and position. Each batch of children is read once, even if many parents
/// share it.
pub async fn child_outcomes(
    store: &dyn Store,
    batch: BatchId,
    parents: &Positions,
) -> Result<Vec<Vec<ChildOutcome>>, StoreError> {
    let families = store.children(batch, parents).await?;
    let batches: BTreeSet<BatchId> = families
        .iter()
        .flat_map(|family| family.jobs.iter().map(|jobs| jobs.batch))
        .collect();
    let mut ended: BTreeMap<BatchId, BTreeMap<u32, ChildOutcome>> = BTreeMap::new();
    for children in batches {
        let wanted = families.iter().flat_map(|family| &family.jobs);
        let wanted = wanted.filter(|jobs| jobs.batch == children);
        let wanted = wanted.fold(Positions::new(), |all, jobs| all.union(&jobs.positions));
        ended.insert(children, outcomes_of(store, children, &wanted).await?);
    }
    let mut by_parent: BTreeMap<u32, Vec<ChildOutcome>> = BTreeMap::new();
    for family in families {
        let all = by_parent.entry(family.parent).or_default();
        for jobs in family.jobs {
            let Some(ended) = ended.get_mut(&jobs.batch) else {
                continue;
            };
            for position in jobs.positions.iter() {
                let job = JobId {
                    batch: jobs.batch,
                    position,
                };
                let open = || family.is_flow.then(|| ChildOutcome::open(job));
                all.extend(ended.remove(&position).or_else(open));
            }
        }
    }
    let parents = parents.iter();
    Ok(parents
        .map(|parent| by_parent.remove(&parent).unwrap_or_default())
        .collect())
}

/// Reads the outcomes of these jobs of a batch, as far as they have ended.
async fn outcomes_of(
    store: &dyn Store,
    batch: BatchId,
    wanted: &Positions,
) -> Result<BTreeMap<u32, ChildOutcome>, StoreError> {
    let mut ended = BTreeMap::new();
    let Some(outcomes) = store.outcomes(batch).await? else {
        return Ok(ended);
    };
    for report in outcomes.reports {
        let positions = report.positions.intersection(wanted);
        let places = report.positions.indexes_of(&positions);
        let values = report.values.map(|values| values.select(&places));
        let mut values = values.iter().flat_map(PackedArray::items);
        for position in positions.iter() {
            let value = values.next().map(|value| RawValue::from_string(value.to_owned()));
            let outcome = ChildOutcome {
                job: JobId { batch, position },
                state: report.state,
                value: value.transpose().map_err(|error| {
                    StoreError::Database(format!("the value of job {batch}:{position} is no JSON: {error}"))
                })?,
                error: None,
            };
            ended.insert(position, outcome);
        }
    }
    for failure in outcomes.errors {
        if let Some(outcome) = ended.get_mut(&failure.position) {
            outcome.error = Some(failure.error);
        }
    }
    Ok(ended)
}

/// An event for one flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowEvent {
    /// The flow.
    pub job: JobId,
    /// The name of the event.
    pub name: String,
    /// The value of the event, as a packed array of one item.
    value: PackedArray,
}

impl FlowEvent {
    /// Makes an event with a value in JSON.
    ///
    /// # Errors
    ///
    /// The name or the value is invalid.
    pub fn new(job: JobId, name: impl Into<String>, value_json: &str) -> Result<Self, StoreError> {
        let name = name.into();
        check_name("event", &name)?;
        let mut value = PackedBuilder::with_item_bytes_max(VALUE_BYTES_MAX);
        value.push(value_json)?;
        Ok(FlowEvent {
            job,
            name,
            value: value.finish(),
        })
    }

    /// The value of the event, as a packed array of one item.
    pub fn value(&self) -> &PackedArray {
        &self.value
    }
}

/// The result of sending an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowEventReceipt {
    /// The flow waited for the event, and has it now.
    Delivered,
    /// The flow does not wait for the event yet. The store keeps it until it does.
    Kept,
    /// The flow has ended; the event is not stored.
    Ended,
    /// There is no such job; the event is not stored.
    Unknown,
    /// The flow has [`KEPT_EVENTS_MAX`](gristmill_model::limits::KEPT_EVENTS_MAX) kept events; this one is not stored.
    Full,
}

/// The suspensions of each of some jobs, in order.
pub type Suspensions = Vec<Vec<Suspension>>;

/// One suspension of a job: a step of a flow, or the wait of another job for its children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspension {
    /// The memo, as JSON.
    pub memo: String,
    /// For steps of flows, when they run again.
    pub flow: Option<Wake>,
    /// The children of this suspension, in ascending order of batch.
    pub children: Vec<BatchPositions>,
}
