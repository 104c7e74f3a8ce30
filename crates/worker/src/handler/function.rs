//! Handlers made of async functions, for one job or for a whole micro-batch.

use std::collections::BTreeMap;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::FutureExt;
use gristmill_model::{BatchId, JobError, JobId, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::handler::answers::{Answers, Step};
use crate::handler::context::JobContext;
use crate::handler::micro_batch::{MicroBatch, MicroBatchJob};
use crate::handler::turns::Turns;
use crate::handler::{Capacity, Handler, OutcomeSink};
use crate::mill::delivery::panic_text;

/// A job as its handler sees it.
#[derive(Debug, Clone)]
pub struct Job<P> {
    /// The id of the job.
    pub id: JobId,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// The payload of the job.
    pub payload: P,
    /// The channel of the job to its worker.
    pub context: JobContext,
}

impl<P> Job<P> {
    /// The id of the job. It is the same on every attempt, and no other job of the store ever has it.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The deduplication key of the job, if it has one.
    pub fn key(&self) -> Option<String> {
        self.context.key()
    }

    /// The batch of the job.
    pub fn batch(&self) -> BatchId {
        self.id.batch
    }

    /// The kind of the job.
    pub fn kind(&self) -> &str {
        self.context.kind()
    }

    /// The queue of the job.
    pub fn queue(&self) -> &str {
        self.context.queue()
    }

    /// The group of the job, if it has one.
    pub fn group(&self) -> Option<&str> {
        self.context.group()
    }

    /// The tags of the job.
    pub fn tags(&self) -> BTreeMap<String, String> {
        self.context.tags()
    }

    /// The time by which the job must have completed; see [`JobContext::deadline`].
    pub fn deadline(&self) -> Option<Timestamp> {
        self.context.deadline()
    }
}

/// A handler that runs one job after the other. A panic, an error or a timeout fails only its own job.
///
/// A payload that is not a `P`, or a value that cannot be serialized, fails its job for good.
pub fn job_handler<P, V, F, R>(function: F) -> Arc<dyn Handler>
where
    P: DeserializeOwned + Send + 'static,
    V: Serialize + Send + 'static,
    F: Fn(Job<P>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<V, JobError>> + Send + 'static,
{
    Arc::new(JobHandler {
        function,
        turns: Turns::default(),
        types: PhantomData,
    })
}

/// A handler that gets all jobs of a micro-batch at once, at least one, and answers each of them in the same order. A
/// panic, a timeout or a wrong number of answers fails all of them.
pub fn batch_handler<P, V, F, R>(function: F) -> Arc<dyn Handler>
where
    P: DeserializeOwned + Send + 'static,
    V: Serialize + Send + 'static,
    F: Fn(Vec<Job<P>>) -> R + Send + Sync + 'static,
    R: Future<Output = Vec<Result<V, JobError>>> + Send + 'static,
{
    Arc::new(BatchHandler {
        function,
        types: PhantomData,
    })
}

struct JobHandler<P, V, F> {
    function: F,
    turns: Turns,
    types: PhantomData<fn(P) -> V>,
}

struct BatchHandler<P, V, F> {
    function: F,
    types: PhantomData<fn(P) -> V>,
}

#[async_trait]
impl<P, V, F, R> Handler for JobHandler<P, V, F>
where
    P: DeserializeOwned + Send + 'static,
    V: Serialize + Send + 'static,
    F: Fn(Job<P>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<V, JobError>> + Send + 'static,
{
    async fn run(&self, runner: usize, work: MicroBatch, sink: &dyn OutcomeSink) {
        let micro_batch = &work;
        let begin = |one: MicroBatchJob<'_>, context: JobContext| {
            let job = beginning(micro_batch, &one, context.clone());
            async move {
                let job = job?;
                let ended = guarded(micro_batch, Some(&context), || (self.function)(job)).await?;
                ended.map(Step::Done)
            }
        };
        self.turns.run(runner, &work, sink, begin).await;
    }

    fn recall(&self, runner: usize) {
        self.turns.recall(runner);
    }
}

#[async_trait]
impl<P, V, F, R> Handler for BatchHandler<P, V, F>
where
    P: DeserializeOwned + Send + 'static,
    V: Serialize + Send + 'static,
    F: Fn(Vec<Job<P>>) -> R + Send + Sync + 'static,
    R: Future<Output = Vec<Result<V, JobError>>> + Send + 'static,
{
    async fn run(&self, _: usize, work: MicroBatch, sink: &dyn OutcomeSink) {
        let begun = Instant::now();
        let mut answers = Answers::new(sink);
        let (mut jobs, mut indexes) = (Vec::<Job<P>>::new(), Vec::new());
        for one in work.jobs() {
            match beginning(&work, &one, sink.context(&one)) {
                Ok(job) => {
                    indexes.push((one.index, job.context.clone()));
                    jobs.push(job);
                }
                Err(error) => answers.push(one.index, Err::<V, _>(error), begun),
            }
        }
        if !jobs.is_empty() {
            match guarded(&work, None, || (self.function)(jobs)).await {
                Ok(outcomes) if outcomes.len() == indexes.len() => {
                    for ((index, context), outcome) in indexes.into_iter().zip(outcomes) {
                        if outcome.is_err() && context.take_given_back() {
                            answers.release(index);
                        } else {
                            answers.push(index, outcome, begun);
                        }
                    }
                }
                failed => {
                    let error = failed.err().unwrap_or_else(|| {
                        JobError::new(
                            "answers",
                            "the handler did not return one answer for each job of its batch",
                        )
                    });
                    for (index, _) in indexes {
                        answers.push(index, Err::<V, _>(error.clone()), begun);
                    }
                }
            }
        }
        answers.send();
    }

    fn capacity(&self) -> Capacity {
        Capacity {
            whole_batches: true,
            gathers_for: Duration::ZERO,
            ..Capacity::default()
        }
    }
}

/// The parsed job. A job that must finalize is refused, because this handler has no finalizer.
fn beginning<P: DeserializeOwned>(
    work: &MicroBatch,
    job: &MicroBatchJob<'_>,
    context: JobContext,
) -> Result<Job<P>, JobError> {
    if work.is_finalizing() {
        Err(JobError::new(
            "children",
            "the job must finalize, but its handler on this worker has no finalizer",
        ))
    } else {
        parsed(job, job.payload, context)
    }
}

pub(crate) fn parsed<P: DeserializeOwned>(
    job: &MicroBatchJob<'_>,
    payload: &str,
    context: JobContext,
) -> Result<Job<P>, JobError> {
    match serde_json::from_str(payload) {
        Ok(payload) => Ok(Job {
            id: job.id,
            attempt: job.attempt,
            payload,
            context,
        }),
        Err(error) => Err(JobError::new(
            "payload",
            format!("the payload of job {} does not match its kind: {error}", job.id),
        )
        .permanent()),
    }
}

/// Awaits `begin()` within the timeout of the work. If the job is cancelled, awaits it only until the grace period
/// ends. A panic becomes an error.
pub(crate) async fn guarded<T, R: Future<Output = T>>(
    work: &MicroBatch,
    context: Option<&JobContext>,
    begin: impl FnOnce() -> R,
) -> Result<T, JobError> {
    let guarded = std::panic::AssertUnwindSafe(async move { begin().await }).catch_unwind();
    let guarded = async {
        match context {
            None => Some(guarded.await),
            Some(context) => tokio::select! {
                biased;
                ended = guarded => Some(ended),
                () = context.given_up() => None,
            },
        }
    };
    let ended = match work.timeout_ms() {
        None => guarded.await,
        Some(timeout_ms) => match tokio::time::timeout(Duration::from_millis(timeout_ms), guarded).await {
            Ok(ended) => ended,
            Err(_) => {
                return Err(JobError::new(
                    "timeout",
                    format!("the attempt exceeded its timeout of {timeout_ms} ms"),
                ));
            }
        },
    };
    let Some(ended) = ended else {
        return Err(JobError::new(
            "cancelled",
            "the job continued after its cancellation, and was abandoned",
        ));
    };
    ended.map_err(|panic| JobError::new("panic", format!("the handler panicked: {}", panic_text(&*panic))))
}
