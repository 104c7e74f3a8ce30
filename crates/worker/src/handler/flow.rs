//! Flows: handlers whose async function takes steps, waits for them without a worker, and goes on after any crash.
//!
//! A flow runs from its beginning each time that something has ended for which it waits. Steps that have ended give their
//! kept outcomes at once. A step is known by its name, its key, and its number among the steps of this name and key, so
//! the code between steps may change. The time, chance and services belong into steps, or into [`Flow::local`].
//!
//! The memo of a suspension is the one that flows in Python write (`python/gristmill/_flow/replay.py`).

mod fork;
mod grouped;
mod instance;
mod memo;
pub(crate) mod place;

pub use fork::{CannotFork, KeptSteps, StepAt, cleanup_memo, fork_memo, kept_steps};
pub use memo::{StepEntry, named_steps};
pub use place::{name_and_version, step_of};

use std::fmt;
use std::future::{Future, Pending, pending, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_model::{ChildBatch, JobError, JobId, JobState, PackedBuilder, Signal};
use gristmill_store::ChildOutcome;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::handler::answers::Step;
use crate::handler::context::JobContext;
use crate::handler::flow::instance::Instance;
use crate::handler::function::{Job, guarded, parsed};
use crate::handler::micro_batch::{MicroBatch, MicroBatchJob};
use crate::handler::turns::Turns;
use crate::handler::{Handler, OutcomeSink};
use crate::sync::{Mutex, MutexGuard, lock};

/// The steps of one flow.
#[derive(Clone)]
pub struct Flow {
    instance: Arc<Mutex<Instance>>,
}

/// A step that ended without a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("step {step} ended as {state}: {}", error.as_ref().map_or("no error is known", |error| &error.message))]
pub struct StepFailed {
    /// The name of the step.
    pub step: String,
    /// The job that ran it.
    pub job: JobId,
    /// The final state of the job.
    pub state: JobState,
    /// The error of the job, if it is dead.
    pub error: Option<Box<JobError>>,
}

/// A step that fails again would fail each retry of its flow.
impl From<StepFailed> for JobError {
    fn from(failed: StepFailed) -> Self {
        JobError::new("StepFailed", failed.to_string()).permanent()
    }
}

/// A step that is awaited: a job of a kind. Its value is a `V`. The step is cancelled if this is dropped, as a race drops the
/// losers.
#[must_use = "a flow waits for a step when it awaits it"]
pub struct StepFuture<V> {
    outcomes: Outcomes,
    types: PhantomData<fn() -> V>,
}

/// The step of several jobs. Its values are in their order.
#[must_use = "a flow waits for a step when it awaits it"]
pub struct MapFuture<V> {
    outcomes: Outcomes,
    types: PhantomData<fn() -> V>,
}

/// The wait for an event or a moment. Its value is `None` if the time has passed.
#[must_use = "a flow waits for an event when it awaits it"]
pub struct SignalFuture<V> {
    outcomes: Outcomes,
    types: PhantomData<fn() -> V>,
}

/// The outcomes of all children of a step.
struct Outcomes {
    flow: Flow,
    name: String,
    record: usize,
}

impl Flow {
    fn instance(&self) -> MutexGuard<'_, Instance> {
        lock(&self.instance)
    }

    /// A step: a job with this payload. `children` has the kind and the options of the job, and no payload.
    pub fn step_like<P: Serialize + ?Sized, V>(
        &self,
        children: ChildBatch,
        key: Option<&str>,
        payload: &P,
    ) -> StepFuture<V> {
        StepFuture {
            outcomes: self.begin(children, key, None, std::iter::once(payload)),
            types: PhantomData,
        }
    }

    /// A step of several jobs, one for each payload. `children` has the kind and the options of the jobs.
    pub fn map_like<P: Serialize, V>(
        &self,
        children: ChildBatch,
        key: Option<&str>,
        payloads: impl IntoIterator<Item = P>,
    ) -> MapFuture<V> {
        let payloads: Vec<P> = payloads.into_iter().collect();
        let count = u32::try_from(payloads.len()).unwrap_or(u32::MAX);
        MapFuture {
            outcomes: self.begin(children, key, Some(count), payloads.iter()),
            types: PhantomData,
        }
    }

    /// Waits for an event that is sent to this flow, for at most a time if one is given.
    pub fn event<V>(&self, name: &str, within: Option<Duration>) -> SignalFuture<V> {
        self.signal(format!("@{name}"), Signal::Event(name.to_owned()), within)
    }

    /// Waits for a time. The flow holds no worker meanwhile.
    pub fn sleep(&self, span: Duration) -> SignalFuture<()> {
        self.signal(instance::SLEEP.to_owned(), Signal::Time, Some(span))
    }

    /// Begins the instance anew with a state in place of its payload: the same job, with an empty memo. Steps that are open
    /// are cancelled. So a loop without end keeps what its last round has stored. The flow stops here:
    /// `return flow.continue_with(&next).await`.
    pub fn continue_with<S: Serialize + ?Sized, V>(&self, state: &S) -> Pending<Result<V, JobError>> {
        self.instance().continue_with(state);
        pending()
    }

    /// How often the instance has begun anew.
    pub fn continued(&self) -> u64 {
        self.instance().continued()
    }

    fn signal<V>(&self, name: String, signal: Signal, within: Option<Duration>) -> SignalFuture<V> {
        let within_ms = within.map(|within| u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        let children = ChildBatch::of_signal(signal, within_ms);
        let record = self.instance().begin_signal(&name, children);
        SignalFuture {
            outcomes: Outcomes {
                flow: self.clone(),
                name,
                record,
            },
            types: PhantomData,
        }
    }

    fn begin<'p, P: Serialize + ?Sized + 'p>(
        &self,
        children: ChildBatch,
        key: Option<&str>,
        count: Option<u32>,
        payloads: impl Iterator<Item = &'p P>,
    ) -> Outcomes {
        let name = children.kind.clone();
        let mut builder = PackedBuilder::new();
        let mut packed = Ok(());
        for payload in payloads {
            packed = packed.and_then(|()| builder.push_value(payload));
        }
        let record = self
            .instance()
            .begin(children, key, count, packed.map(|()| builder.finish()));
        Outcomes {
            flow: self.clone(),
            name,
            record,
        }
    }

    /// Runs a function here, in this process, and keeps its value. It runs again if the process ends before the flow
    /// waits or ends.
    ///
    /// # Errors
    ///
    /// The error of the function, or a kept value that is not a `V`.
    pub async fn local<V, F, R>(&self, name: &str, function: F) -> Result<V, JobError>
    where
        V: Serialize + DeserializeOwned,
        F: FnOnce() -> R,
        R: Future<Output = Result<V, JobError>>,
    {
        let kept = self.instance().kept_value(name);
        if let Some(kept) = kept {
            return memo::read("the kept value of a local function", kept.get());
        }
        self.instance().locals_running += 1;
        let value = function().await;
        let mut instance = self.instance();
        instance.locals_running -= 1;
        let value = value?;
        instance.keep_value(name, &value)?;
        Ok(value)
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Flow").finish_non_exhaustive()
    }
}

/// A flow that drops a step gives it up: where it is open, it is cancelled once the flow waits again. An event whose value was not
/// read goes back.
impl Drop for Outcomes {
    fn drop(&mut self) {
        self.flow.instance().give_up(self.record);
    }
}

impl Outcomes {
    fn poll<T>(
        &self,
        context: &mut Context<'_>,
        read: impl FnOnce(&[ChildOutcome]) -> Result<T, StepFailed>,
    ) -> Poll<Result<T, StepFailed>> {
        match self.flow.instance().outcomes(self.record, context.waker()) {
            None => Poll::Pending,
            Some(outcomes) => Poll::Ready(read(outcomes)),
        }
    }

    fn value<V: DeserializeOwned>(&self, outcome: &ChildOutcome) -> Result<V, StepFailed> {
        let failed = |error: Option<JobError>| StepFailed {
            step: self.name.clone(),
            job: outcome.job,
            state: outcome.state,
            error: error.map(Box::new),
        };
        match &outcome.value {
            Some(value) if outcome.state == JobState::Completed => {
                memo::read("the value of a step", value.get()).map_err(|error| failed(Some(error)))
            }
            _ => Err(failed(outcome.error.clone())),
        }
    }
}

impl<V: DeserializeOwned> Future for StepFuture<V> {
    type Output = Result<V, StepFailed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcomes = &self.outcomes;
        outcomes.poll(context, |ended| outcomes.value(&ended[0]))
    }
}

impl<V: DeserializeOwned> Future for MapFuture<V> {
    type Output = Result<Vec<V>, StepFailed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcomes = &self.outcomes;
        outcomes.poll(context, |ended| {
            ended.iter().map(|one| outcomes.value(one)).collect()
        })
    }
}

impl<V: DeserializeOwned> Future for SignalFuture<V> {
    type Output = Result<Option<V>, StepFailed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcomes = &self.outcomes;
        outcomes.poll(context, |ended| match ended[0].state {
            JobState::Expired => Ok(None),
            _ => outcomes.value(&ended[0]).map(Some),
        })
    }
}

/// A handler of flows. A panic, an error or a timeout fails only its own flow, which follows its retry policy and goes on
/// after its last step.
pub fn flow_handler<P, V, F, R>(function: F) -> Arc<dyn Handler>
where
    P: DeserializeOwned + Send + 'static,
    V: Serialize + Send + 'static,
    F: Fn(Flow, Job<P>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<V, JobError>> + Send + 'static,
{
    Arc::new(FlowHandler {
        function,
        turns: Turns::default(),
        types: PhantomData,
    })
}

struct FlowHandler<P, V, F> {
    function: F,
    turns: Turns,
    types: PhantomData<fn(P) -> V>,
}

#[async_trait]
impl<P, V, F, R> Handler for FlowHandler<P, V, F>
where
    P: DeserializeOwned + Send + 'static,
    V: Serialize + Send + 'static,
    F: Fn(Flow, Job<P>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<V, JobError>> + Send + 'static,
{
    async fn run(&self, runner: usize, work: MicroBatch, sink: &dyn OutcomeSink) {
        let micro_batch = &work;
        let begin = |one: MicroBatchJob<'_>, context: JobContext| {
            let begun = memo::read_all(one.memo).map(|mut memos| (memo::Begin::take(&mut memos), memos));
            let state = begun.as_ref().ok().and_then(|(begin, _)| begin.state.as_deref());
            let payload = state.map_or(one.payload, RawValue::get);
            let job = parsed::<P>(&one, payload, context.clone());
            let outcomes = micro_batch.children_of(one.index).to_vec();
            async move {
                let (job, (begin, memos)) = (job?, begun?);
                let instance = Arc::new(Mutex::new(Instance::new(begin, &memos, outcomes)?));
                let flow = Flow {
                    instance: instance.clone(),
                };
                let run = || async {
                    let future = std::pin::pin!((self.function)(flow, job));
                    take_step(future, &instance, &memos).await
                };
                guarded(micro_batch, Some(&context), run).await?
            }
        };
        self.turns.run(runner, &work, sink, begin).await;
    }

    fn recall(&self, runner: usize) {
        self.turns.recall(runner);
    }
}

/// Runs a flow up to its end, or until it waits for something that has not ended.
async fn take_step<V>(
    mut future: Pin<&mut impl Future<Output = Result<V, JobError>>>,
    instance: &Mutex<Instance>,
    memos: &[memo::Memo],
) -> Result<Step<V>, JobError> {
    let mut ended = run_until_idle(future.as_mut(), instance).await;
    for memo in memos.iter().skip(1) {
        if ended.is_none() {
            lock(instance).deliver_seen(memo)?;
            ended = run_until_idle(future.as_mut(), instance).await;
        }
    }
    let seen = match ended {
        Some(_) => Vec::new(),
        None => {
            let seen = lock(instance).deliver_new();
            ended = run_until_idle(future, instance).await;
            seen
        }
    };
    let mut instance = lock(instance);
    if let Some(error) = instance.error.take() {
        return Err(error);
    }
    if let Some(anew) = instance.begin_anew() {
        return anew.map(Step::Wait);
    }
    match ended {
        Some(value) => Ok(Step::Done(value?)),
        None => instance.suspension(&seen).map(Step::Wait),
    }
}

/// Polls a flow until it waits for its steps alone. Functions that it runs here are awaited.
async fn run_until_idle<T>(
    mut future: Pin<&mut impl Future<Output = T>>,
    instance: &Mutex<Instance>,
) -> Option<T> {
    poll_fn(|context| {
        let signal = Arc::new(instance::WokeSignal::new(context.waker().clone()));
        let waker = futures::task::waker(signal.clone());
        loop {
            if lock(instance).is_over() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(Some(value));
            }
            if signal.take() || lock(instance).is_over() {
                continue;
            }
            return match lock(instance).locals_running {
                0 => Poll::Ready(None),
                _ => Poll::Pending,
            };
        }
    })
    .await
}
