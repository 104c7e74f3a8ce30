//! The `extract` job: its kind, its handler, and the worker that runs it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gristmill_engine::{Engine, Handler, Kind, Observer, RunningWorker, WorkerSettings};
use gristmill_llm::calls::{pack, run_calls};
use gristmill_llm::limits::READY_FACTOR;
use gristmill_model::{BatchOptions, JobError, Receipt, Report, RetryPolicy};
use gristmill_worker::{Capacity, MicroBatch, OutcomeSink};
use tokio::sync::mpsc;

use crate::extract::{ChunkText, Extracted, Extractor};
use crate::limits::{DRAIN_GRACE_MS, READY_TEXTS_MAX};
use crate::service::{DENIED, Usage};

/// The duration of the work that the worker holds beyond its running jobs: enough that the model never waits for a claim.
const BUFFER_TARGET: Duration = Duration::from_millis(500);

/// The kind of extractions.
pub struct Extract;

impl Kind for Extract {
    const NAME: &'static str = "extract";
    const QUEUE: &'static str = "extract";
    type Payload = ChunkText;
    type Value = Extracted;

    fn options() -> BatchOptions {
        BatchOptions {
            // The extractor retries by itself, because it knows better when.
            retry: RetryPolicy {
                attempts_max: 1,
                ..RetryPolicy::default()
            },
            ..BatchOptions::default()
        }
    }
}

/// The outcome of an extraction. It is on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The chunk's key.
    pub key: String,
    /// The results, or the error as text.
    pub result: Result<Arc<Extracted>, Arc<str>>,
    /// The cost.
    pub usage: Usage,
    /// Its length in the store, in bytes.
    pub bytes: usize,
    /// Whether the service refused this request as it would refuse any other. Such an outcome is not kept.
    pub is_denied: bool,
}

/// Starts a worker that runs `concurrency` extractions at a time. It sends outcomes once they are on disk.
pub fn start_worker(
    engine: &Engine,
    extractor: Arc<dyn Extractor>,
    concurrency: usize,
    outcomes: mpsc::Sender<Outcome>,
) -> RunningWorker {
    let mut worker = engine.worker();
    worker
        .settings(worker_settings(&*extractor, concurrency))
        .name("ingest")
        .queues([Extract::QUEUE])
        .handler(
            Extract::NAME,
            Arc::new(ExtractHandler::new(extractor, concurrency)),
        )
        .observer(Arc::new(Watch { outcomes }));
    worker.start()
}

/// The settings of a worker that makes `concurrency` calls at a time.
pub fn worker_settings(extractor: &dyn Extractor, concurrency: usize) -> WorkerSettings {
    WorkerSettings {
        buffer_target: BUFFER_TARGET,
        concurrency: ready(extractor, concurrency),
        ..WorkerSettings::default()
    }
}

/// Number of extractions that are begun at a time: enough for the next calls, with all texts that one call reads together.
fn ready(extractor: &dyn Extractor, concurrency: usize) -> usize {
    let together = concurrency.saturating_mul(extractor.texts_at_once() - 1);
    concurrency * READY_FACTOR + together.min(READY_TEXTS_MAX)
}

/// Runs all extractions of a micro-batch at once. The extractor's limiter decides how many of them call a model.
pub struct ExtractHandler {
    extractor: Arc<dyn Extractor>,
    concurrency: usize,
}

impl ExtractHandler {
    /// Makes a handler for workers that run `extract` jobs, with `concurrency` calls at a time.
    pub fn new(extractor: Arc<dyn Extractor>, concurrency: usize) -> ExtractHandler {
        ExtractHandler {
            extractor,
            concurrency,
        }
    }

    async fn extract(&self, payload: &str) -> Result<Extracted, JobError> {
        let chunk: ChunkText = serde_json::from_str(payload).map_err(|error| {
            JobError::new("payload", format!("the payload is not a chunk: {error}")).permanent()
        })?;
        let own = ChunkText::new(&chunk.text, chunk.speaker.as_deref(), &self.extractor.identity());
        if own.key != chunk.key {
            let reason = format!(
                "{} this worker extracts by `{}`, and the ingestion asks for another model or prompt; start the \
                 worker with the ingestion's settings",
                chunk.key,
                self.extractor.identity()
            );
            return Err(JobError::new("settings", reason).permanent());
        }
        let extracted = self.extractor.extract(&chunk).await;
        extracted.map_err(|failed| {
            let message = failure_message(&chunk.key, &failed.usage, &failed.error);
            JobError::new(failed.error.kind(), message).permanent()
        })
    }
}

#[async_trait]
impl Handler for ExtractHandler {
    fn capacity(&self) -> Capacity {
        Capacity {
            runners: Some(ready(&*self.extractor, self.concurrency)),
            concurrency: 1,
            whole_batches: false,
            gathers_for: Duration::ZERO,
        }
    }

    async fn run(&self, _: usize, work: MicroBatch, sink: &dyn OutcomeSink) {
        let grace = Duration::from_millis(DRAIN_GRACE_MS);
        run_calls(&work, sink, Some(grace), |job| async move {
            let extracted = self.extract(job.payload).await?;
            pack(&extracted)
                .map_err(|error| JobError::new("value", format!("{} {error}", extracted.key)).permanent())
        })
        .await;
    }
}

/// Forwards committed outcomes.
struct Watch {
    outcomes: mpsc::Sender<Outcome>,
}

impl Watch {
    fn send(&self, outcome: Outcome) {
        // The outcome is on disk. The ingestion reads it from there if the channel is full, and needs it no more if it
        // has ended.
        let _ = self.outcomes.try_send(outcome);
    }
}

impl Observer for Watch {
    fn committed(&self, report: &Report, receipt: &Receipt) {
        if let Some(completed) = &report.completed {
            let values = completed.positions.iter().zip(completed.values.items());
            for (_, value) in values.filter(|(position, _)| receipt.accepted.contains(*position)) {
                if let Some(outcome) = completed_outcome(value) {
                    self.send(outcome);
                }
            }
        }
        for failed in &report.failed {
            if receipt.dead.contains(failed.position)
                && let Some(outcome) = failed_outcome(&failed.error)
            {
                self.send(outcome);
            }
        }
    }
}

/// Reads the outcome of a completed job from its value; `None` if another program wrote the value.
pub fn completed_outcome(value: &str) -> Option<Outcome> {
    let extracted: Extracted = serde_json::from_str(value).ok()?;
    Some(Outcome {
        key: extracted.key.clone(),
        usage: extracted.usage,
        result: Ok(Arc::new(extracted)),
        bytes: value.len(),
        is_denied: false,
    })
}

/// Reads the outcome of a dead job from its last error.
pub fn failed_outcome(error: &JobError) -> Option<Outcome> {
    let (key, rest) = error.message.split_once(' ')?;
    let (usage, message) = cost_and_reason(rest).unwrap_or((Usage::default(), rest));
    Some(Outcome {
        key: key.to_owned(),
        usage,
        result: Err(message.into()),
        bytes: message.len(),
        is_denied: error.error_type == DENIED,
    })
}

/// Writes the error of a failed extraction: the key of the chunk, the cost, and the reason.
pub(crate) fn failure_message(key: &str, usage: &Usage, reason: &impl std::fmt::Display) -> String {
    format!(
        "{key} calls={} retries={} sent={} answered={}: {reason}",
        usage.calls, usage.retries, usage.input_tokens, usage.output_tokens
    )
}

/// Splits the text after the key into cost and reason; `None` if it names no cost.
fn cost_and_reason(text: &str) -> Option<(Usage, &str)> {
    let (cost, reason) = text.split_once(": ")?;
    let mut parts = cost.split(' ');
    let mut number = |name: &str| -> Option<u64> {
        let value = parts.next()?.strip_prefix(name)?.strip_prefix('=')?;
        value.parse().ok()
    };
    let usage = Usage {
        calls: number("calls")?.try_into().ok()?,
        retries: number("retries")?.try_into().ok()?,
        input_tokens: number("sent")?,
        output_tokens: number("answered")?,
    };
    Some((usage, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_its_cost() {
        let usage = Usage {
            calls: 2,
            retries: 1,
            input_tokens: 810,
            output_tokens: 2_000,
        };
        let message = failure_message("k", &usage, &"line 3: no JSON");
        let outcome = failed_outcome(&JobError::new("malformed", message)).expect("an outcome");
        assert_eq!((outcome.key.as_str(), outcome.usage), ("k", usage));
        assert_eq!(outcome.result, Err("line 3: no JSON".into()));
        assert!(!outcome.is_denied);
        let denied = failed_outcome(&JobError::new(DENIED, "k no quota")).expect("an outcome");
        assert!(denied.is_denied);
        // Other errors name no cost.
        let outcome =
            failed_outcome(&JobError::new("settings", "k this worker: another model")).expect("an outcome");
        assert_eq!(outcome.usage, Usage::default());
        assert_eq!(outcome.result, Err("this worker: another model".into()));
    }
}
