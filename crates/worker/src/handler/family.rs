//! Handlers of jobs that spawn children, wait for them, and finalize.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use gristmill_model::{JobError, JobState};
use gristmill_store::ChildOutcome;
use gristmill_store::family::child_failed;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::handler::context::JobContext;
use crate::handler::function::{Job, guarded, parsed};
use crate::handler::micro_batch::{MicroBatch, MicroBatchJob};
use crate::handler::turns::Turns;
use crate::handler::{Handler, OutcomeSink};

pub use crate::handler::answers::Step;

/// A job whose children have all ended.
#[derive(Debug)]
pub struct Finalizing<P, M> {
    /// The job as in its first step.
    pub job: Job<P>,
    /// The memo of the job.
    pub memo: M,
    /// The outcomes of the children, in the order of their spawning.
    pub children: Vec<ChildOutcome>,
}

impl<P, M> Finalizing<P, M> {
    /// The values of all children.
    ///
    /// # Errors
    ///
    /// A child has not completed, or its value is not a `T`.
    pub fn values<T: DeserializeOwned>(&self) -> Result<Vec<T>, JobError> {
        self.children.iter().map(value_of).collect()
    }
}

fn value_of<T: DeserializeOwned>(child: &ChildOutcome) -> Result<T, JobError> {
    let ChildOutcome { job, state, .. } = child;
    let value = child.value.as_ref().filter(|_| *state == JobState::Completed);
    let value = value.ok_or_else(|| child_failed(*job, *state))?;
    serde_json::from_str(value.get()).map_err(|error| {
        JobError::new(
            "children",
            format!("the value of job {job} does not match its type: {error}"),
        )
        .permanent()
    })
}

/// A handler of jobs that may spawn children. `run` begins a job. `finalize` ends a job that has waited, with its memo
/// and the outcomes of its children. Both run one job after the other. A panic, an error or a timeout fails only its
/// own job. A job that fails to finalize follows its retry policy, and finalizes again.
///
/// A payload, memo or value that does not match its type fails its job for good.
pub fn parent_handler<P, M, V, F, R, G, S>(run: F, finalize: G) -> Arc<dyn Handler>
where
    P: DeserializeOwned + Send + 'static,
    M: DeserializeOwned + Send + 'static,
    V: Serialize + Send + 'static,
    F: Fn(Job<P>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Step<V>, JobError>> + Send + 'static,
    G: Fn(Finalizing<P, M>) -> S + Send + Sync + 'static,
    S: Future<Output = Result<Step<V>, JobError>> + Send + 'static,
{
    Arc::new(ParentHandler {
        run,
        finalize,
        turns: Turns::default(),
        types: PhantomData,
    })
}

type Types<P, M, V> = PhantomData<fn(P, M) -> V>;

struct ParentHandler<P, M, V, F, G> {
    run: F,
    finalize: G,
    turns: Turns,
    types: Types<P, M, V>,
}

#[async_trait]
impl<P, M, V, F, R, G, S> Handler for ParentHandler<P, M, V, F, G>
where
    P: DeserializeOwned + Send + 'static,
    M: DeserializeOwned + Send + 'static,
    V: Serialize + Send + 'static,
    F: Fn(Job<P>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Step<V>, JobError>> + Send + 'static,
    G: Fn(Finalizing<P, M>) -> S + Send + Sync + 'static,
    S: Future<Output = Result<Step<V>, JobError>> + Send + 'static,
{
    async fn run(&self, runner: usize, work: MicroBatch, sink: &dyn OutcomeSink) {
        let micro_batch = &work;
        let begin = |one: MicroBatchJob<'_>, context: JobContext| {
            let beginning = if micro_batch.is_finalizing() {
                finalizing(micro_batch, &one, context.clone()).map(Beginning::Finalize)
            } else {
                parsed(&one, one.payload, context.clone()).map(Beginning::Run)
            };
            async move {
                let step = match beginning? {
                    Beginning::Run(job) => guarded(micro_batch, Some(&context), || (self.run)(job)).await??,
                    Beginning::Finalize(job) => {
                        guarded(micro_batch, Some(&context), || (self.finalize)(job)).await??
                    }
                };
                without_siblings(step, &context)
            }
        };
        self.turns.run(runner, &work, sink, begin).await;
    }

    fn recall(&self, runner: usize) {
        self.turns.recall(runner);
    }
}

/// A job before its first step, or after the end of its children.
enum Beginning<P, M> {
    Run(Job<P>),
    Finalize(Finalizing<P, M>),
}

/// Refuses a wait for children if the job spawned siblings, because siblings are stored when the job completes.
fn without_siblings<V>(step: Step<V>, context: &JobContext) -> Result<Step<V>, JobError> {
    match step {
        Step::Wait(_) if context.forget_siblings() => Err(JobError::new(
            "siblings",
            "a job cannot spawn siblings while it waits for children: spawn them when it finalizes",
        )
        .permanent()),
        step => Ok(step),
    }
}

fn finalizing<P: DeserializeOwned, M: DeserializeOwned>(
    work: &MicroBatch,
    one: &MicroBatchJob<'_>,
    context: JobContext,
) -> Result<Finalizing<P, M>, JobError> {
    let memo = serde_json::from_str(one.memo.unwrap_or("null")).map_err(|error| {
        JobError::new(
            "memo",
            format!("the memo of job {} does not match its type: {error}", one.id),
        )
        .permanent()
    })?;
    Ok(Finalizing {
        job: parsed(one, one.payload, context)?,
        memo,
        children: work.children_of(one.index).to_vec(),
    })
}
