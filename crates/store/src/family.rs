//! The children of a job and their outcomes, and the events and steps of flows.

mod reader;

use std::collections::BTreeSet;

use gristmill_model::batch::check_name;
use gristmill_model::limits::VALUE_BYTES_MAX;
use gristmill_model::{BatchId, JobError, JobId, JobState, NewBatch, PackedArray, PackedBuilder, Wake};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use crate::family::reader::{ChildReader, UnreadPrerequisites, child_outcomes};
pub use crate::rules::family::child_failed;
use crate::{BatchPositions, StoreError};

/// The last children that a job spawned; all children of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Children {
    /// The position of the job in its batch.
    pub parent: u32,
    /// The children, in ascending order of batch.
    pub jobs: Vec<BatchPositions>,
    /// Those of the batches whose children are together. See [`ChildBatch::together`](gristmill_model::ChildBatch::together).
    pub together: Vec<BatchId>,
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
    /// Whether the flow is told of this child together with the others of its batch. Set for a child that has not ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub together: bool,
}

impl Children {
    /// The children of a flow that has none yet.
    pub fn of_flow(parent: u32) -> Self {
        Children {
            parent,
            jobs: Vec::new(),
            together: Vec::new(),
            is_flow: true,
        }
    }

    /// Adds the children of a later step.
    pub fn add(&mut self, later: Children) {
        self.jobs.extend(later.jobs);
        self.together.extend(later.together);
    }
}

/// The number of ended children that a flow has seen, if others are open: without those that are together with open ones, which
/// are no news.
pub fn seen_of(children: &[ChildOutcome]) -> Option<u32> {
    let open = children.iter().filter(|child| !child.has_ended());
    let unfinished: BTreeSet<BatchId> = open
        .clone()
        .filter(|child| child.together)
        .map(|child| child.job.batch)
        .collect();
    let ended = children.iter().filter(|child| child.has_ended());
    let ended_count = ended
        .filter(|child| !unfinished.contains(&child.job.batch))
        .count();
    let is_any_open = open.count() > 0;
    is_any_open.then(|| u32::try_from(ended_count).unwrap_or(u32::MAX))
}

impl ChildOutcome {
    /// A child of a flow that has not ended.
    fn open(job: JobId, together: bool) -> Self {
        ChildOutcome {
            job,
            state: JobState::Waiting,
            value: None,
            error: None,
            together,
        }
    }

    /// Whether the child has ended.
    pub fn has_ended(&self) -> bool {
        self.state.is_final()
    }

    /// Approximate number of bytes.
    pub fn weight_bytes(&self) -> usize {
        let value = self.value.as_ref().map_or(0, |value| value.get().len());
        let error = self.error.as_ref();
        let text =
            |error: &JobError| error.message.len() + error.traceback.as_ref().map_or(0, |text| text.len());
        size_of::<Self>() + value + error.map_or(0, text)
    }
}

/// The place of a job in the flow that began it as a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StepPlace {
    /// The flow.
    #[serde(rename = "id")]
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "42:7"))]
    pub flow: JobId,
    /// The name of the flow.
    pub name: String,
    /// Its version, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The name of the step, if the flow keeps names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The key of the step, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The number of the job among those of a map, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
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

/// Cancelled flows after which instances of them clean up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueCleanup {
    /// The flows.
    pub flows: BatchPositions,
    /// How long each of the instances may take.
    pub within_ms: u64,
}

/// The batch of instances that clean up after cancelled flows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CleanupBatch {
    /// The instances.
    pub batch: NewBatch,
    /// How long each of them may take.
    pub within_ms: u64,
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
