//! Flows: events that are sent to them, and the steps that they have taken.

use gristmill_model::batch::check_name;
use gristmill_model::limits::VALUE_BYTES_MAX;
use gristmill_model::{JobId, PackedArray, PackedBuilder, Wake};

use crate::{BatchPositions, StoreError};

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
