//! Spans of submits, micro-batches, commits and notable jobs. They are events of the crate `tracing` under [`TARGET`].
//!
//! Each ended span is one event. Its fields are `span` (its name), `trace_id`, `span_id`, `parent_id` (0 for the first
//! span of a trace), `is_remote` (whether a submitter began the trace) and `duration_us`. Further fields describe the
//! span. Without a subscriber for these events nothing is computed.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gristmill_model::{BatchId, NewBatch, TraceParent};

/// The target of the events. Their level is TRACE.
pub const TARGET: &str = "gristmill::span";

/// The duration from which a job gets its own span, in milliseconds. Shorter jobs are visible in their micro-batch. A
/// micro-batch of short jobs takes about 10 ms.
pub const SLOW_JOB_MS: u32 = 5_000;

/// The largest number of spans of single jobs in one micro-batch. The span of the micro-batch counts all jobs.
pub const JOB_SPANS_PER_MICRO_BATCH_MAX: u32 = 32;

/// The largest number of traces that a micro-batch or a commit distinguishes. Jobs of further traces share the span
/// without a parent.
pub const TRACES_PER_SPAN_MAX: usize = 32;

/// Reports whether anyone listens to spans.
pub fn is_on() -> bool {
    tracing::enabled!(target: TARGET, tracing::Level::TRACE)
}

/// The place of a span in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    /// The id of the trace.
    pub trace_id: u128,
    /// The id of the span.
    pub span_id: u64,
    /// The id of the parent span, or 0 if there is none.
    pub parent_id: u64,
    /// A submitter began the trace.
    pub is_remote: bool,
}

/// A new span id. The ids are hashes of a counter: they must differ, and nothing else depends on them.
fn new_id() -> u64 {
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static COUNT: AtomicU64 = AtomicU64::new(0);
    KEYS.hash_one(COUNT.fetch_add(1, Ordering::Relaxed)).max(1)
}

impl SpanContext {
    /// A new span: a child of the submitter's span, or the first of a trace.
    pub fn under(parent: Option<TraceParent>) -> SpanContext {
        SpanContext {
            trace_id: parent.map_or_else(
                || u128::from(new_id()) << 64 | u128::from(new_id()),
                |parent| parent.trace_id,
            ),
            span_id: new_id(),
            parent_id: parent.map_or(0, |parent| parent.span_id),
            is_remote: parent.is_some(),
        }
    }

    /// A new span below this one.
    pub fn child(&self) -> SpanContext {
        SpanContext {
            span_id: new_id(),
            parent_id: self.span_id,
            ..*self
        }
    }
}

/// Emits an ended span: its name, its place, its duration, and its other fields.
macro_rules! tell {
    ($name:literal, $context:expr, $took:expr, $($fields:tt)+) => {{
        let (context, took): (&$crate::spans::SpanContext, std::time::Duration) = (&$context, $took);
        tracing::trace!(
            target: $crate::spans::TARGET,
            span = $name,
            trace_id = context.trace_id,
            span_id = context.span_id,
            parent_id = context.parent_id,
            is_remote = context.is_remote,
            duration_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            $($fields)+
        )
    }};
}
pub(crate) use tell;

/// The batches of one submit that belong to one trace.
#[derive(Debug)]
struct Submit {
    parent: TraceParent,
    context: SpanContext,
    kind: String,
    queue: String,
    /// The place of its first batch in the submit.
    first: usize,
    batches: u64,
    jobs: u64,
}

/// The spans of one submit: one for each trace of its batches.
#[derive(Debug)]
pub struct SubmitSpans {
    began: Instant,
    submits: Vec<Submit>,
}

impl SubmitSpans {
    /// Begins the spans before the store gets these batches. The jobs become children of the submit's span.
    pub fn begin<B: AsMut<NewBatch>>(batches: &mut [B]) -> SubmitSpans {
        let mut submits: Vec<Submit> = Vec::new();
        if is_on() {
            for (place, batch) in batches.iter_mut().map(AsMut::as_mut).enumerate() {
                let Some(parent) = batch.options.traceparent else {
                    continue;
                };
                let jobs = u64::from(batch.payloads.count());
                let known = submits.iter().position(|submit| submit.parent == parent);
                if known.is_none() && submits.len() >= TRACES_PER_SPAN_MAX {
                    continue;
                }
                let known = known.unwrap_or_else(|| {
                    submits.push(Submit {
                        parent,
                        context: SpanContext::under(Some(parent)),
                        kind: batch.kind.clone(),
                        queue: batch.queue.clone(),
                        first: place,
                        batches: 0,
                        jobs: 0,
                    });
                    submits.len() - 1
                });
                let submit = &mut submits[known];
                submit.batches += 1;
                submit.jobs += jobs;
                batch.options.traceparent = Some(TraceParent {
                    span_id: submit.context.span_id,
                    ..parent
                });
            }
        }
        SubmitSpans {
            began: Instant::now(),
            submits,
        }
    }

    /// Ends the spans with the ids of the stored batches, in order. A batch of duplicates has no id.
    pub fn end(self, ids: impl IntoIterator<Item = Option<BatchId>>) {
        if self.submits.is_empty() {
            return;
        }
        let took = self.began.elapsed();
        let ids: Vec<Option<BatchId>> = ids.into_iter().collect();
        for submit in self.submits {
            let batch = ids.get(submit.first).copied().flatten().map(|batch| batch.0);
            tell!(
                "submit",
                submit.context,
                took,
                kind = submit.kind,
                queue = submit.queue,
                batch,
                batches = submit.batches,
                jobs = submit.jobs
            );
        }
    }
}

/// The span of a commit: the outcomes of one trace among all outcomes of the commit.
pub(crate) fn committed(parent: Option<TraceParent>, jobs: u64, jobs_in_all: u64, took: Duration) {
    tell!(
        "commit",
        SpanContext::under(parent),
        took,
        jobs = jobs,
        commit_jobs = jobs_in_all
    );
}
