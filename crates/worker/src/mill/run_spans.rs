//! The spans of a worker's micro-batches, of their notable jobs, and of its commits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use gristmill_model::{BatchId, JobId, TraceParent};

use super::delivery::DeliveryId;
use crate::handler::Outcomes;
use crate::handler::micro_batch::{MicroBatch, Part};
use crate::spans::{
    self, JOB_SPANS_PER_MICRO_BATCH_MAX, SLOW_JOB_MS, SpanContext, TRACES_PER_SPAN_MAX, tell,
};

/// The number of outcomes, by the trace of their submit.
pub(super) type Traced = BTreeMap<Option<TraceParent>, u64>;

/// The spans that have not ended. There are none while nobody listens.
#[derive(Debug, Default)]
pub(super) struct RunSpans {
    running: HashMap<DeliveryId, Vec<RunSpan>>,
    uncommitted: Traced,
}

/// The jobs of one trace in a micro-batch.
#[derive(Debug)]
struct RunSpan {
    parent: Option<TraceParent>,
    context: SpanContext,
    kind: Arc<str>,
    queue: Arc<str>,
    /// The first batch of the jobs.
    batch: BatchId,
    batches: u64,
    jobs: u64,
    failed: u64,
    slow: u64,
}

/// The place of the span for jobs with this parent.
fn place_of(spans: &[RunSpan], parent: Option<TraceParent>) -> Option<usize> {
    let find = |parent| spans.iter().position(|span| span.parent == parent);
    find(parent).or_else(|| find(None))
}

impl RunSpans {
    /// Notes a micro-batch for a runner. Its span becomes the parent for the work and the submits of its jobs in the
    /// same trace.
    pub fn begin(&mut self, id: DeliveryId, work: &mut MicroBatch) {
        if !spans::is_on() {
            return;
        }
        let mut of_work: Vec<RunSpan> = Vec::new();
        for part in work.parts() {
            let (slice, jobs) = (&part.held.slice, u64::from(part.held.len()));
            let parent = slice.traceparent;
            let is_known = of_work.iter().any(|span| span.parent == parent);
            let traces = of_work.iter().filter(|span| span.parent.is_some()).count();
            let parent = parent.filter(|_| is_known || traces < TRACES_PER_SPAN_MAX);
            match of_work.iter_mut().find(|span| span.parent == parent) {
                Some(span) => {
                    span.batches += 1;
                    span.jobs += jobs;
                }
                None => of_work.push(RunSpan {
                    parent,
                    context: SpanContext::under(parent),
                    kind: slice.kind.clone(),
                    queue: slice.queue.clone(),
                    batch: slice.batch,
                    batches: 1,
                    jobs,
                    failed: 0,
                    slow: 0,
                }),
            }
        }
        for part in work.parts_mut() {
            let parent = part.held.slice.traceparent;
            if let Some((parent, span)) = parent.zip(of_work.iter().find(|span| span.parent == parent)) {
                part.traceparent = Some(TraceParent {
                    span_id: span.context.span_id,
                    ..parent
                });
            }
        }
        debug_assert_eq!(
            of_work.iter().map(|span| span.jobs).sum::<u64>(),
            u64::from(work.jobs_count()),
            "each job of a micro-batch belongs to one span"
        );
        self.running.insert(id, of_work);
    }

    /// Notes jobs of a part that were recalled before they began.
    pub fn returned(&mut self, id: DeliveryId, part: &Part, jobs: u32) {
        if let Some(spans) = self.running.get_mut(&id)
            && let Some(place) = place_of(spans, part.held.slice.traceparent)
        {
            let span = &mut spans[place];
            assert!(
                u64::from(jobs) <= span.jobs,
                "a span of {} jobs loses {jobs} recalled ones",
                span.jobs
            );
            span.jobs -= u64::from(jobs);
        }
    }

    /// Notes outcomes of a part. Each failed or slow job gets a span, within a limit.
    pub fn answered(&mut self, id: DeliveryId, part: &Part, outcomes: &Outcomes) {
        let Some(spans) = self.running.get_mut(&id) else {
            return;
        };
        let Some(place) = place_of(spans, part.held.slice.traceparent) else {
            return;
        };
        let span = &mut spans[place];
        for failed in &outcomes.failed {
            span.failed += 1;
            if span.has_room() {
                let job = JobId {
                    batch: part.batch(),
                    position: failed.position,
                };
                let took = Duration::from_micros(u64::from(failed.duration_us));
                tell!("job", span.context.child(), took,
                    kind = &*span.kind, job = %job, attempt = u64::from(part.last_attempt()),
                    error_type = failed.error.error_type.as_str(), error = failed.error.message.as_str());
            }
        }
        let completed = outcomes.completed.iter();
        let completed =
            completed.flat_map(|completed| completed.positions.iter().zip(&completed.durations_us));
        for (position, duration_us) in completed {
            if *duration_us < SLOW_JOB_MS * 1_000 {
                continue;
            }
            span.slow += 1;
            if span.has_room() {
                let job = JobId {
                    batch: part.batch(),
                    position,
                };
                let took = Duration::from_micros(u64::from(*duration_us));
                tell!("job", span.context.child(), took,
                    kind = &*span.kind, job = %job, attempt = u64::from(part.last_attempt()));
            }
        }
    }

    /// Notes outcomes of a part that wait for their commit.
    pub fn will_commit(&mut self, part: &Part, outcomes: &Outcomes) {
        if self.running.is_empty() {
            return;
        }
        let left = outcomes.positions().difference(&outcomes.released);
        if !left.is_empty() {
            self.add(part.held.slice.traceparent, u64::from(left.len()));
        }
    }

    fn add(&mut self, parent: Option<TraceParent>, jobs: u64) {
        let is_known = self.uncommitted.contains_key(&parent);
        let traces = self.uncommitted.len() - usize::from(self.uncommitted.contains_key(&None));
        let parent = parent.filter(|_| is_known || traces < TRACES_PER_SPAN_MAX);
        *self.uncommitted.entry(parent).or_default() += jobs;
    }

    /// Ends the spans of a micro-batch.
    pub fn end(&mut self, id: DeliveryId, took: Duration) {
        let spans = self.running.remove(&id).into_iter().flatten();
        for span in spans.filter(|span| span.jobs > 0) {
            tell!(
                "run",
                span.context,
                took,
                kind = &*span.kind,
                queue = &*span.queue,
                batch = span.batch.0,
                batches = span.batches,
                jobs = span.jobs,
                failed = span.failed,
                slow = span.slow
            );
        }
    }

    /// Takes the outcomes that are being sent.
    pub fn take_uncommitted(&mut self) -> Traced {
        std::mem::take(&mut self.uncommitted)
    }

    /// Puts outcomes back that did not arrive and will be sent again.
    pub fn put_back(&mut self, traced: Traced) {
        for (parent, jobs) in traced {
            self.add(parent, jobs);
        }
    }
}

impl RunSpan {
    /// Reports whether the last counted job may have its own span.
    fn has_room(&self) -> bool {
        self.failed + self.slow <= u64::from(JOB_SPANS_PER_MICRO_BATCH_MAX)
    }
}

/// Reports the spans of a commit.
pub(super) fn committed(traced: &Traced, took: Duration) {
    let in_all = traced.values().sum();
    for (parent, jobs) in traced {
        spans::committed(*parent, *jobs, in_all, took);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use gristmill_model::{
        Completed, FailedJob, JobError, LeaseId, LeasedSlice, PackedArray, Positions, RetryPolicy, Timestamp,
    };
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// The names and numbers of events, such as `run` with its `jobs`.
    #[derive(Debug, Default, Clone)]
    struct Told {
        name: String,
        numbers: BTreeMap<&'static str, u64>,
        trace_id: u128,
    }

    impl Visit for Told {
        fn record_u64(&mut self, field: &Field, value: u64) {
            self.numbers.insert(field.name(), value);
        }

        fn record_u128(&mut self, _: &Field, value: u128) {
            self.trace_id = value;
        }

        fn record_str(&mut self, field: &Field, value: &str) {
            if field.name() == "span" {
                value.clone_into(&mut self.name);
            }
        }

        fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
    }

    #[derive(Default, Clone)]
    struct Listener(Arc<Mutex<Vec<Told>>>);

    impl Subscriber for Listener {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == spans::TARGET
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut told = Told::default();
            event.record(&mut told);
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(told);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    /// Runs `does`, and returns the events that it emits.
    fn told(does: impl FnOnce()) -> Vec<Told> {
        let listener = Listener::default();
        tracing::subscriber::with_default(listener.clone(), does);
        listener.0.lock().unwrap().clone()
    }

    fn slice(batch: i64, jobs: u32, traceparent: Option<TraceParent>) -> LeasedSlice {
        LeasedSlice {
            lease: LeaseId(1),
            batch: BatchId(batch),
            kind: "work".into(),
            queue: "default".into(),
            group: None,
            positions: Positions::all(jobs),
            payloads: PackedArray::repeat("1", jobs).unwrap(),
            attempt: 1,
            rescues: 0,
            timeout_ms: None,
            priority: 0,
            retry: RetryPolicy::default(),
            submitted_at: Timestamp(0),
            memos: None,
            deadline: None,
            labels: None,
            traceparent,
        }
    }

    fn parent(trace: u32) -> Option<TraceParent> {
        Some(TraceParent {
            trace_id: u128::from(trace) + 1,
            span_id: 7,
        })
    }

    fn sum(told: &[Told], name: &str, number: &str) -> u64 {
        let named = told.iter().filter(|told| told.name == name);
        named.map(|told| told.numbers[number]).sum()
    }

    #[test]
    fn a_micro_batch_of_many_traces_has_a_bounded_number_of_spans() {
        let traces = 2 * TRACES_PER_SPAN_MAX as u32;
        let slices = (0..traces).flat_map(|trace| {
            let (first, second) = (i64::from(2 * trace) + 1, i64::from(2 * trace) + 2);
            [slice(first, 3, parent(trace)), slice(second, 2, parent(trace))]
        });
        let mut work = MicroBatch::new(slices.collect());
        let told = told(|| {
            let mut spans = RunSpans::default();
            spans.begin(DeliveryId(1), &mut work);
            let below_the_run = |part: &&Part| {
                let span = spans.running[&DeliveryId(1)]
                    .iter()
                    .find(|span| span.parent == part.held.slice.traceparent);
                let context = span.map(|span| (span.context.trace_id, span.context.span_id));
                context == part.traceparent.map(|parent| (parent.trace_id, parent.span_id))
            };
            assert_eq!(
                work.parts().iter().filter(below_the_run).count(),
                2 * TRACES_PER_SPAN_MAX
            );
            for part in work.parts() {
                let outcomes = Outcomes {
                    completed: Some(Completed {
                        positions: part.positions().clone(),
                        values: PackedArray::repeat("1", part.held.len()).unwrap(),
                        durations_us: vec![1; part.held.len() as usize],
                    }),
                    ..Outcomes::default()
                };
                spans.answered(DeliveryId(1), part, &outcomes);
                spans.will_commit(part, &outcomes);
            }
            spans.end(DeliveryId(1), Duration::from_millis(3));
            let traced = spans.take_uncommitted();
            spans.put_back(traced);
            committed(&spans.take_uncommitted(), Duration::from_millis(2));
        });
        for name in ["run", "commit"] {
            let named: Vec<&Told> = told.iter().filter(|told| told.name == name).collect();
            assert_eq!(named.len(), TRACES_PER_SPAN_MAX + 1, "{name}");
            assert_eq!(sum(&told, name, "jobs"), u64::from(5 * traces), "{name}");
            assert!(named.iter().any(|told| told.trace_id == 1), "{name}");
        }
        assert_eq!(sum(&told, "run", "batches"), u64::from(2 * traces));
    }

    #[test]
    fn failed_and_slow_jobs_have_spans_up_to_a_limit() {
        let jobs = 2 * JOB_SPANS_PER_MICRO_BATCH_MAX;
        let mut work = MicroBatch::new(vec![slice(1, jobs, None)]);
        let told = told(|| {
            let mut spans = RunSpans::default();
            spans.begin(DeliveryId(1), &mut work);
            let failed = (0..jobs - 2).map(|position| FailedJob {
                position,
                error: JobError::new("E", "no"),
                duration_us: 5,
            });
            let outcomes = Outcomes {
                completed: Some(Completed {
                    positions: Positions::from(jobs - 2..jobs),
                    values: PackedArray::repeat("1", 2).unwrap(),
                    durations_us: vec![1, SLOW_JOB_MS * 1_000],
                }),
                failed: failed.collect(),
                ..Outcomes::default()
            };
            spans.answered(DeliveryId(1), &work.parts()[0], &outcomes);
            spans.end(DeliveryId(1), Duration::from_millis(3));
        });
        let of_jobs = told.iter().filter(|told| told.name == "job").count();
        assert_eq!(of_jobs, JOB_SPANS_PER_MICRO_BATCH_MAX as usize);
        let counts = ["failed", "slow"].map(|number| sum(&told, "run", number));
        assert_eq!(counts, [u64::from(jobs) - 2, 1]);
        let run = told.iter().find(|told| told.name == "run").unwrap();
        let below = |told: &&Told| {
            told.trace_id == run.trace_id && told.numbers["parent_id"] == run.numbers["span_id"]
        };
        assert_eq!(
            told.iter().filter(below).count(),
            of_jobs,
            "they are below the run"
        );
    }

    #[test]
    fn nothing_is_kept_without_a_listener() {
        let mut work = MicroBatch::new(vec![slice(1, 3, parent(1))]);
        let mut spans = RunSpans::default();
        tracing::subscriber::with_default(tracing::subscriber::NoSubscriber::default(), || {
            spans.begin(DeliveryId(1), &mut work);
        });
        assert!(spans.running.is_empty());
        let outcomes = Outcomes {
            completed: Some(Completed {
                positions: Positions::all(3),
                values: PackedArray::repeat("1", 3).unwrap(),
                durations_us: vec![1; 3],
            }),
            ..Outcomes::default()
        };
        spans.will_commit(&work.parts()[0], &outcomes);
        assert!(spans.take_uncommitted().is_empty());
    }
}
