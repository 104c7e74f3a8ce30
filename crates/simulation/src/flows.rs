//! Flows of the simulation: a race of two steps and an event, a sleep, several steps beside an event that never comes, perhaps
//! a flow in the flow, and a step beside such an event.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, join, select};
use gristmill_model::{ChildBatch, JobError, JobState, PackedArray, RetryPolicy};
use gristmill_worker::{Flow, Handler, Job, StepFailed, flow_handler};
use serde::{Deserialize, Serialize};

use crate::nodes::{PLAIN, Payload};
use crate::world::World;

/// The kind of flows.
pub const FLOW: &str = "flow";

/// The event that flows await.
pub const EVENT: &str = "go";

/// An event that nobody sends.
const NEVER: &str = "never";

/// The number of jobs of the step of several.
const MAPPED: u64 = 3;

/// The payload of a flow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FlowPayload {
    /// The payload of each step.
    pub step: Payload,
    /// The sleep of the flow, in milliseconds.
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
            let own = |key: &str| flow.step_like::<_, u64>(children(PLAIN), Some(key), &step);
            let work = Box::pin(join(own("one"), own("two")));
            let mut sum = match select(work, flow.event::<u64>(EVENT, None)).await {
                Either::Left(((one, two), _)) => {
                    see("one", &told(&one));
                    see("two", &told(&two));
                    // A failure of this step is one of the flow; others are caught.
                    one?.wrapping_add(two.unwrap_or_default())
                }
                Either::Right((event, _)) => {
                    see("event", &told(&event));
                    event?.unwrap_or_default()
                }
            };
            flow.sleep(Duration::from_millis(waits_ms)).await?;
            // Beside another wait, the map wakes its flow once, with its last job.
            let mapped =
                flow.map_like::<_, u64>(children(PLAIN), Some("map"), (0..MAPPED).map(|_| step.clone()));
            let Either::Left((mapped, _)) = select(mapped, flow.event::<u64>(NEVER, None)).await else {
                return Err(JobError::new("simulation", "an event came that nobody sends"));
            };
            see("map", &told(&mapped));
            sum = mapped
                .unwrap_or_default()
                .into_iter()
                .fold(sum, u64::wrapping_add);
            if nested > 0 {
                let payload = FlowPayload {
                    step: step.clone(),
                    waits_ms,
                    nested: nested - 1,
                };
                let below = flow.step_like::<_, u64>(children(FLOW), None, &payload).await;
                see("below", &told(&below));
                sum = sum.wrapping_add(below.unwrap_or_default());
            }
            if let Either::Left((last, _)) = select(own("last"), flow.event::<u64>(NEVER, None)).await {
                see("last", &told(&last));
                sum = sum.wrapping_add(last.unwrap_or_default());
            }
            Ok::<u64, JobError>(sum)
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
