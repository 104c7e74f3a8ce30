//! Typed steps of flows.

use gristmill_model::batch::DEFAULT_QUEUE;
use gristmill_model::{ChildBatch, PackedArray};
use gristmill_worker::{Flow, MapFuture, StepFuture};

use crate::kind::Kind;

/// Steps that are jobs of a [`Kind`], with the options and the queue of the kind.
pub trait FlowSteps {
    /// Runs one job.
    fn step<K: Kind>(&self, payload: &K::Payload) -> StepFuture<K::Value>;

    /// Runs one job. The key tells it from other steps of the kind, such as those of a loop.
    fn keyed_step<K: Kind>(&self, key: &str, payload: &K::Payload) -> StepFuture<K::Value>;

    /// Runs a job for each payload. Its values are in their order.
    fn map<'p, K: Kind>(&self, payloads: impl IntoIterator<Item = &'p K::Payload>) -> MapFuture<K::Value>
    where
        K::Payload: 'p;
}

impl FlowSteps for Flow {
    fn step<K: Kind>(&self, payload: &K::Payload) -> StepFuture<K::Value> {
        self.step_like(children::<K>(), None, payload)
    }

    fn keyed_step<K: Kind>(&self, key: &str, payload: &K::Payload) -> StepFuture<K::Value> {
        self.step_like(children::<K>(), Some(key), payload)
    }

    fn map<'p, K: Kind>(&self, payloads: impl IntoIterator<Item = &'p K::Payload>) -> MapFuture<K::Value>
    where
        K::Payload: 'p,
    {
        self.map_like(children::<K>(), None, payloads)
    }
}

/// Children of a kind, without payloads. Those of the default queue go to the queue of their flow.
fn children<K: Kind>() -> ChildBatch {
    ChildBatch {
        queue: Some(K::QUEUE.to_owned()).filter(|queue| queue != DEFAULT_QUEUE),
        options: K::options(),
        ..ChildBatch::new(K::NAME, PackedArray::from_stored("[]"))
    }
}
