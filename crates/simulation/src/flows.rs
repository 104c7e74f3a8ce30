//! Flows of the simulation: a step, a race of an event and a time, several steps, and perhaps a flow in the flow.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use gristmill_model::{ChildBatch, JobError, JobState, PackedArray, RetryPolicy};
use gristmill_worker::{Flow, Handler, Job, StepFailed, flow_handler};
use serde::{Deserialize, Serialize};

use crate::nodes::{PLAIN, Payload};
use crate::world::World;

/// The kind of flows.
pub const FLOW: &str = "flow";

/// The event that flows await.
pub const EVENT: &str = "go";

/// The number of jobs of the step of several.
const MAPPED: u64 = 3;

/// The payload of a flow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FlowPayload {
    /// The payload of each step.
    pub step: Payload,
    /// The longest wait for the event, in milliseconds.
    pub waits_ms: u64,
    /// The number of flows that wait for one another below this one.
    pub nested: u32,
}

/// The handler of flows.
pub fn handler(world: Arc<World>) -> Arc<dyn Handler> {
    flow_handler(move |flow: Flow, job: Job<FlowPayload>| {
        let world = world.clone();
        async move {
            let FlowPayload {
                step,
                waits_ms,
                nested,
            } = job.payload;
            let see = |name: &str, outcome: &dyn std::fmt::Debug| {
                let saw = world.check(|checker| checker.saw(job.id, name, format!("{outcome:?}")));
                world.require(saw);
            };
            let first = flow.step_like::<_, u64>(children(PLAIN), None, &step).await;
            see("first", &told(&first));
            let event = flow.event::<u64>(EVENT, None);
            let waits = flow.sleep(Duration::from_millis(waits_ms));
            let event = match select(event, waits).await {
                Either::Left((event, _)) => {
                    see("event", &told(&event));
                    event?.unwrap_or_default()
                }
                Either::Right((slept, _)) => {
                    slept?;
                    0
                }
            };
            let mapped = flow
                .map_like::<_, u64>(children(PLAIN), Some("map"), (0..MAPPED).map(|_| step.clone()))
                .await;
            see("map", &told(&mapped));
            let mut below = 0;
            if nested > 0 {
                let payload = FlowPayload {
                    step,
                    waits_ms,
                    nested: nested - 1,
                };
                let ended = flow.step_like::<_, u64>(children(FLOW), None, &payload).await;
                see("below", &told(&ended));
                below = ended.unwrap_or_default();
            }
            // A failure of the first step is one of the flow; others are caught.
            let mapped = mapped.unwrap_or_default();
            let values = mapped.into_iter().chain([first?, event, below]);
            Ok::<u64, JobError>(values.fold(0, u64::wrapping_add))
        }
    })
}

/// An outcome, in words that are the same for each run.
fn told<V: std::fmt::Debug>(outcome: &Result<V, StepFailed>) -> Result<&V, JobState> {
    outcome.as_ref().map_err(|failed| failed.state)
}

fn children(kind: &str) -> ChildBatch {
    let mut children = ChildBatch::new(kind, PackedArray::from_stored("[]"));
    children.options.retry = RetryPolicy {
        attempts_max: 3,
        delay_ms: 1_000,
        ..RetryPolicy::default()
    };
    children
}
