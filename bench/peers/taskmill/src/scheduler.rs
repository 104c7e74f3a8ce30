//! The scheduler's works, like those of the driver for Gristmill.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use taskmill::{
    BackoffStrategy, Domain, DomainTaskContext, IoBudget, RateLimit, RetryPolicy, Scheduler, TaskError,
    TaskSubmission, TypedExecutor, TypedTask,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{Bench, Executor, Noop, Order, build, drained, jobs, noop, open, rate, submission, submit_batches};

/// Kinds of a history, of which the query asks for one.
const HISTORY_KINDS: usize = 5;
const HISTORY_ROWS: i32 = 100;

/// The minimum number of repetitions of a query, and their minimum duration.
const QUERIES_MIN: usize = 5;
const QUERIES_FOR: Duration = Duration::from_secs(1);

/// Carries out the order.
pub async fn measure(order: &Order) -> Value {
    match order.work.as_str() {
        "duplicates" => measure_duplicates(order).await,
        "tags" => measure_tags(order).await,
        "tag_ids" => measure_tag_ids(order).await,
        "failures" => measure_failures(order).await,
        "history" => measure_history(order).await,
        "chains" => measure_chains(order).await,
        "fan_ins" => measure_fan_ins(order).await,
        "groups" => measure_groups(order).await,
        "rate_limit" => measure_rate(order).await,
        other => panic!("no work is called {other}"),
    }
}

fn run(scheduler: &Scheduler) -> CancellationToken {
    let (scheduler, stop) = (scheduler.clone(), CancellationToken::new());
    let stopped = stop.clone();
    tokio::spawn(async move { scheduler.run(stopped).await });
    stop
}

async fn measure_duplicates(order: &Order) -> Value {
    let scheduler = open(order, Executor::default()).await;
    let jobs = jobs(0, order.batch_jobs);
    submit_batches(&scheduler, &jobs, order.batch_jobs).await;
    for _ in 0..order.warm_up_jobs / order.batch_jobs {
        submit_batches(&scheduler, &jobs, order.batch_jobs).await;
    }
    let batches = order.jobs / order.batch_jobs;
    let began = Instant::now();
    for _ in 0..batches {
        submit_batches(&scheduler, &jobs, order.batch_jobs).await;
    }
    let answer = rate(batches * order.batch_jobs, began);
    let waiting = scheduler.store().pending_count().await.expect("the store answers");
    assert_eq!(waiting as usize, order.batch_jobs);
    answer
}

/// Submits jobs with `tags` tags each, which have their own values.
async fn submit_tagged(scheduler: &Scheduler, jobs: &[Noop], order: &Order) {
    for chunk in jobs.chunks(order.batch_jobs) {
        let tagged = |job: &Noop| {
            (0..order.tags).fold(submission(job), |job_submission, tag| {
                job_submission.tag(format!("key-{tag}"), format!("val-{}-{tag}", job.id))
            })
        };
        let batch: Vec<TaskSubmission> = chunk.iter().map(tagged).collect();
        scheduler.submit_batch(&batch).await.expect("the batch is taken");
    }
}

async fn measure_tags(order: &Order) -> Value {
    let scheduler = open(order, Executor::default()).await;
    submit_tagged(&scheduler, &jobs(0, order.warm_up_jobs), order).await;
    let measured = jobs(order.warm_up_jobs, order.jobs);
    let began = Instant::now();
    submit_tagged(&scheduler, &measured, order).await;
    rate(order.jobs, began)
}

/// The median duration of a repeated query. Milliseconds.
async fn query_ms<F: Future<Output = ()>>(mut query: impl FnMut() -> F) -> f64 {
    query().await;
    let (began, mut samples_ms) = (Instant::now(), Vec::new());
    while samples_ms.len() < QUERIES_MIN || began.elapsed() < QUERIES_FOR {
        let began = Instant::now();
        query().await;
        samples_ms.push(began.elapsed().as_secs_f64() * 1e3);
    }
    samples_ms.sort_by(f64::total_cmp);
    samples_ms[samples_ms.len() / 2]
}

async fn measure_tag_ids(order: &Order) -> Value {
    let scheduler = open(order, Executor::default()).await;
    for chunk in jobs(0, order.jobs).chunks(order.batch_jobs) {
        let batch: Vec<_> = chunk.iter().map(|job| submission(job).tag("bucket", "b0")).collect();
        scheduler.submit_batch(&batch).await.expect("the batch is taken");
    }
    let found_ms = query_ms(|| async {
        let ids = scheduler.store().task_ids_by_tags(&[("bucket", "b0")], None).await;
        assert_eq!(ids.expect("the store answers").len(), order.jobs);
    })
    .await;
    json!({"ms": found_ms, "jobs": 1, "seconds": found_ms / 1e3})
}

#[derive(Serialize, Deserialize)]
struct Fail(String);

impl TypedTask for Fail {
    type Domain = Bench;
    const TASK_TYPE: &'static str = "fail";
}

#[derive(Clone)]
struct Failing {
    begun: Arc<AtomicUsize>,
    changed: Arc<Notify>,
    is_permanent: bool,
}

impl TypedExecutor<Fail> for Failing {
    async fn execute<'a>(
        &'a self,
        _job: Fail,
        _context: DomainTaskContext<'a, Bench>,
    ) -> Result<(), TaskError> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
        Err(if self.is_permanent {
TaskError::permanent("this job fails")
} else {
TaskError::retryable("this job fails")
})
    }
}

/// Runs jobs that fail permanently, or several times in a row, from the scheduler's start until all are dead.
async fn fail(order: &Order, from: usize, count: usize) -> Instant {
    let failing = Failing {
        begun: Arc::default(),
        changed: Arc::default(),
        is_permanent: order.attempts == 1,
    };
    let executor = Executor {
        begun: failing.begun.clone(),
        changed: failing.changed.clone(),
        ..Executor::default()
    };
    let retries = order.attempts as i32 - 1;
    let retry = RetryPolicy {
        strategy: BackoffStrategy::Constant { delay: Duration::ZERO },
        max_retries: retries,
    };
    let domain = Domain::<Bench>::new().task::<Fail>(failing).default_retry(retry);
    let scheduler = build(order, |builder| builder.domain(domain).max_retries(retries)).await;
    for chunk in jobs(from, count).chunks(order.batch_jobs) {
        let submission =
            |job: &Noop| TaskSubmission::new("bench::fail").key(job.id.as_str()).payload_json(&Fail(job.pad.clone()));
        let batch: Vec<_> = chunk.iter().map(submission).collect();
        scheduler.submit_batch(&batch).await.expect("the batch is taken");
    }
    let began = Instant::now();
    let stop = run(&scheduler);
    drained(&scheduler, &executor, count * order.attempts).await;
    stop.cancel();
    began
}

async fn measure_failures(order: &Order) -> Value {
    fail(order, 0, order.warm_up_jobs).await;
    rate(order.jobs, fail(order, order.warm_up_jobs, order.jobs).await)
}

/// Measures the history of one of five types. The history is filled through the store, as in taskmill's own benchmark.
async fn measure_history(order: &Order) -> Value {
    let scheduler = open(order, Executor::default()).await;
    let store = scheduler.store();
    for chunk in jobs(0, order.jobs).chunks(order.batch_jobs) {
        let of_kind = |(number, job): (usize, &Noop)| {
            TaskSubmission::new(format!("bench::kind-{}", number % HISTORY_KINDS))
                .key(job.id.as_str())
                .payload_json(job)
        };
        let batch: Vec<_> = chunk.iter().enumerate().map(of_kind).collect();
        scheduler.submit_batch(&batch).await.expect("the batch is taken");
    }
    for _ in 0..order.jobs {
        let task = store.pop_next(None).await.expect("the store answers").expect("a task waits");
        store.complete(task.id, &IoBudget::default()).await.expect("it completes");
    }
    let stats_ms = query_ms(|| async {
        store.history_stats("bench::kind-0").await.expect("the store answers");
    })
    .await;
    let rows_ms = query_ms(|| async {
        let rows = store.history_by_type("bench::kind-0", HISTORY_ROWS).await;
        assert_eq!(rows.expect("the store answers").len(), HISTORY_ROWS as usize);
    })
    .await;
    json!({"stats_ms": stats_ms, "rows_ms": rows_ms})
}

/// Measures chains of `length` jobs, `together` of them at once, from the first submit to the last commit.
async fn measure_chains(order: &Order) -> Value {
    measure_graphs(order, order.length, async |scheduler, jobs| {
        let mut before = None;
        for job in jobs {
            let submission = match before {
                Some(before) => submission(job).depends_on(before),
                None => submission(job),
            };
            before = scheduler.submit(&submission).await.expect("the job is taken").id();
        }
    })
    .await
}

/// Measures jobs that wait for `length` others each.
async fn measure_fan_ins(order: &Order) -> Value {
    measure_graphs(order, order.length + 1, async |scheduler, jobs| {
        let (last, others) = jobs.split_last().expect("there are jobs");
        let batch: Vec<_> = others.iter().map(submission).collect();
        let submitted = scheduler.submit_batch(&batch).await.expect("the batch is taken");
        let waiting = submission(last).depends_on_all(submitted.inserted());
        scheduler.submit(&waiting).await.expect("the job is taken");
    })
    .await
}

async fn measure_graphs(order: &Order, jobs_each: usize, submit: impl AsyncFn(&Scheduler, &[Noop])) -> Value {
    let executor = Executor::default();
    let scheduler = open(order, executor.clone()).await;
    run(&scheduler);
    submit_batches(&scheduler, &jobs(0, order.warm_up_jobs), order.batch_jobs).await;
    drained(&scheduler, &executor, order.warm_up_jobs).await;
    let rounds = order.jobs / (jobs_each * order.together);
    let measured = jobs(order.warm_up_jobs, rounds * jobs_each * order.together);
    let began = Instant::now();
    let mut submitted = order.warm_up_jobs;
    for round in measured.chunks(jobs_each * order.together) {
        for graph in round.chunks(jobs_each) {
            submit(&scheduler, graph).await;
        }
        submitted += round.len();
        drained(&scheduler, &executor, submitted).await;
    }
    rate(measured.len(), began)
}

/// Drains the jobs of many groups: without limits, and with each of the order's limits.
async fn measure_groups(order: &Order) -> Value {
    let (mut rates, mut from) = (Vec::new(), 0);
    for limit in [None].into_iter().chain(order.limits.iter().copied().map(Some)) {
        let executor = Executor::default();
        let domain = Domain::<Bench>::new().task::<Noop>(executor.clone());
        let scheduler = build(order, |builder| match limit {
            Some(limit) => builder.domain(domain).default_group_concurrency(limit),
            None => builder.domain(domain),
        })
        .await;
        for chunk in jobs(from, order.jobs).chunks(order.batch_jobs) {
            let in_group = |(number, job): (usize, &Noop)| {
                submission(job).group(format!("group {}", number % order.groups))
            };
            let batch: Vec<_> = chunk.iter().enumerate().map(in_group).collect();
            scheduler.submit_batch(&batch).await.expect("the batch is taken");
        }
        let began = Instant::now();
        let stop = run(&scheduler);
        drained(&scheduler, &executor, order.jobs).await;
        rates.push(order.jobs as f64 / began.elapsed().as_secs_f64());
        stop.cancel();
        from += order.jobs;
    }
    let [unlimited, open, saturated] = rates[..] else { panic!("two limits are needed") };
    json!({
        "unlimited": unlimited, "open": open, "saturated": saturated,
        "open_share": open / unlimited, "saturated_share": saturated / unlimited,
    })
}

/// CPU seconds of this process; Linux counts them in hundredths (proc(5): USER_HZ).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux tells");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name stands there").1.split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<f64>().expect("a number stands there");
    (ticks(11) + ticks(12)) / 100.0
}

/// Runs enough jobs for a rate limit. Returns by how many per cent the begun jobs differ from it, and the CPU time.
async fn measure_rate(order: &Order) -> Value {
    const BURST: u32 = 200;
    let begun_at = Arc::new(Mutex::new(Vec::new()));
    let executor = Executor {
        begun_at: Some(begun_at.clone()),
        ..Executor::default()
    };
    let domain = Domain::<Bench>::new().task::<Noop>(executor.clone());
    let limit = RateLimit::per_second(order.rate_per_second as u32).with_burst(BURST);
    let scheduler = build(order, |builder| builder.domain(domain).rate_limit("bench::noop", limit)).await;
    let all: Vec<Noop> = (0..order.jobs).map(noop).collect();
    submit_batches(&scheduler, &all, order.batch_jobs).await;
    let (cpu_before, began) = (cpu_seconds(), Instant::now());
    run(&scheduler);
    while executor.begun.load(Ordering::Relaxed) < order.jobs {
        executor.changed.notified().await;
    }
    let (seconds, cpu_seconds) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu_before);
    let begun_at = begun_at.lock().expect("no holder panics");
    let (first, last) = (begun_at.iter().map(|(_, at)| *at).min(), begun_at.iter().map(|(_, at)| *at).max());
    let spent: Duration = last.expect("jobs began").duration_since(first.expect("jobs began"));
    let measured = (begun_at.len() as f64 - f64::from(BURST)) / spent.as_secs_f64();
    json!({
        "off_percent": (measured / order.rate_per_second - 1.0).abs() * 100.0,
        "cpu_percent": cpu_seconds / seconds * 100.0,
        "measured_per_second": measured,
    })
}
