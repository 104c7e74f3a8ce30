//! Programs run by the handler of flows.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all, select_all, try_join_all};
use gristmill_model::{Backoff, ChildBatch, JobError, PackedArray, RetryPolicy};
use gristmill_worker::{Flow, Handler, Job, StepFailed, flow_handler};

use crate::programs::node::{ATTEMPTS_MAX, EVENTS, FLOW, FlowPayload, Node, STEPS, StepPayload, mix, root};
use crate::programs::record::{Id, Record, read_at};

/// The delay of jobs that are tried again, in milliseconds.
const RETRY_DELAY_MS: u64 = 7;

/// The attempts of flows.
const FLOW_ATTEMPTS_MAX: u32 = 1_000;

/// The name of local values.
const LOCAL: &str = "local";

/// The failure of a node: the step that failed, the first one in order.
type Failure = Id;

/// The handler of programs.
pub(super) fn handler(record: Arc<Record>) -> Arc<dyn Handler> {
    flow_handler(move |flow: Flow, job: Job<FlowPayload>| {
        let record = record.clone();
        async move {
            let payload = job.payload;
            let run = Run {
                id: &payload.id,
                number: payload.number,
                flow,
                record: &record,
            };
            let ended = run
                .node(&payload.program.node, root(&payload.id, payload.round))
                .await;
            if payload.round < payload.program.anew {
                let next = FlowPayload {
                    round: payload.round + 1,
                    ..payload.clone()
                };
                return run.flow.continue_with(&next).await;
            }
            match ended {
                Ok(value) => Ok(value),
                Err(failed) => Err(JobError::new("Step", failed).permanent()),
            }
        }
    })
}

/// The retries of a kind.
pub(super) fn retry(kind: &str) -> RetryPolicy {
    RetryPolicy {
        // A flow may stumble at each of its nodes.
        attempts_max: if kind == FLOW {
            FLOW_ATTEMPTS_MAX
        } else {
            ATTEMPTS_MAX
        },
        backoff: Backoff::Linear,
        delay_ms: if kind == STEPS[1] { RETRY_DELAY_MS } else { 0 },
        delay_ms_max: 100,
    }
}

fn children(kind: &str) -> ChildBatch {
    let mut children = ChildBatch::new(kind, PackedArray::from_stored("[]"));
    children.options.retry = retry(kind);
    children
}

/// One run of a flow.
struct Run<'a> {
    id: &'a str,
    number: u32,
    flow: Flow,
    record: &'a Record,
}

impl Run<'_> {
    fn node<'n>(&'n self, node: &'n Node, path: Id) -> BoxFuture<'n, Result<u64, Failure>> {
        async move {
            match node {
                Node::Step { kind, failing, keyed } => {
                    let payload = StepPayload {
                        id: path.clone(),
                        failing: *failing,
                    };
                    let key = keyed.then_some(path.as_str());
                    let step = self.flow.step_like(children(STEPS[*kind]), key, &payload);
                    self.see(&path, step.await)
                }
                Node::Child(program) => {
                    let payload = FlowPayload {
                        id: path.clone(),
                        number: self.number,
                        program: program.clone(),
                        round: 0,
                    };
                    let step = self.flow.step_like(children(FLOW), None, &payload);
                    self.see(&path, step.await)
                }
                Node::Map { count, failing } => self.map(&path, *count, *failing).await,
                Node::Sleep { ms } => {
                    let slept = self.flow.sleep(Duration::from_millis(*ms)).await;
                    self.see(&path, slept.map(|_| 1))
                }
                Node::Event { name, within_ms } => {
                    let within = within_ms.map(Duration::from_millis);
                    let event = self.flow.event::<u64>(EVENTS[*name], within).await;
                    if let Ok(Some(value)) = event {
                        self.record.lock().decide(self.id, &read_at(&path), value);
                    }
                    self.see(&path, event.map(|value| value.unwrap_or(0)))
                }
                Node::Local => {
                    let make = || async { Ok(self.record.lock().new_local()) };
                    let value = self.flow.local(LOCAL, make).await;
                    let value = value.map_err(|error| error.message)?;
                    self.record.lock().decide(self.id, &path, value);
                    Ok(value)
                }
                Node::Stumble => {
                    let is_first = self.record.lock().stumbled.insert(path);
                    if is_first {
                        // An error that another branch waits for would be another run of the code.
                        std::panic::resume_unwind(Box::new("stumbled"));
                    }
                    Ok(2)
                }
                Node::Sequence(nodes) => {
                    let mut all = 3;
                    for (number, node) in nodes.iter().enumerate() {
                        all = mix(all, self.node(node, format!("{path}/{number}")).await?);
                    }
                    Ok(all)
                }
                Node::Gather(nodes) => {
                    let ended = join_all(self.branches(nodes, &path)).await;
                    ended.into_iter().try_fold(4, |all, one| Ok(mix(all, one?)))
                }
                Node::Strict(nodes) => self.strict(nodes, &path).await,
                Node::Race(nodes) => {
                    let (ended, winner, _) = select_all(self.branches(nodes, &path)).await;
                    self.record.lock().decide(self.id, &path, winner as u64);
                    Ok(mix(winner as u64, ended?))
                }
                Node::Try(first, second) => match self.node(first, format!("{path}/0")).await {
                    Ok(value) => Ok(value),
                    Err(_) => self.node(second, format!("{path}/1")).await,
                },
                Node::Either(even, odd) => match self.number.is_multiple_of(2) {
                    true => self.node(even, format!("{path}/0")).await,
                    false => self.node(odd, format!("{path}/1")).await,
                },
                Node::Repeat(times, node) => {
                    let mut all = 5;
                    for number in 0..*times {
                        all = mix(all, self.node(node, format!("{path}/{number}")).await?);
                    }
                    Ok(all)
                }
            }
        }
        .boxed()
    }

    fn branches<'n>(&'n self, nodes: &'n [Node], path: &str) -> Vec<BoxFuture<'n, Result<u64, Failure>>> {
        let numbered = nodes.iter().enumerate();
        numbered
            .map(|(number, node)| self.node(node, format!("{path}/{number}")))
            .collect()
    }

    async fn strict(&self, nodes: &[Node], path: &str) -> Result<u64, Failure> {
        let branches = self.branches(nodes, path).into_iter().enumerate();
        let branches =
            branches.map(|(number, branch)| async move { branch.await.map_err(|failure| (number, failure)) });
        let ended = try_join_all(branches).await;
        // The failed branch, from 1.
        let decision = match &ended {
            Ok(_) => 0,
            Err((number, _)) => *number as u64 + 1,
        };
        self.record.lock().decide(self.id, path, decision);
        let values = ended.map_err(|(_, failure)| failure)?;
        Ok(values.into_iter().fold(6, mix))
    }

    async fn map(&self, path: &str, count: u32, failing: Option<u32>) -> Result<u64, Failure> {
        let payloads = (0..count).map(|number| StepPayload {
            id: format!("{path}#{number}"),
            failing: if failing == Some(number) { ATTEMPTS_MAX } else { 0 },
        });
        let values = self.flow.map_like::<_, u64>(children(STEPS[0]), None, payloads);
        let ended = values.await.map(|values| values.into_iter().fold(8, mix));
        self.see(path, ended)
    }

    /// The outcome of a step. The failure of a child flow is the one of the step that failed in it.
    fn see(&self, path: &str, ended: Result<u64, StepFailed>) -> Result<u64, Failure> {
        let ended = ended.map_err(|failed| match failed.error {
            Some(error) => error.message,
            None => path.to_owned(),
        });
        self.record.lock().see(path, format!("{ended:?}"));
        ended
    }
}
