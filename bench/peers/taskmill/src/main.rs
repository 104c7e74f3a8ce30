//! Runs one piece of work on taskmill: `peer-taskmill '{"work":"drain","store":"a.db",…}'`.
//! Prints one line of JSON: `{"jobs":…,"seconds":…}`, or latencies in milliseconds.
//!
//! Settings follow taskmill's own benchmarks: 100 tasks at once, a poll every 10 ms, no resource monitoring.

mod scheduler;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use taskmill::{
    Domain, DomainKey, DomainTaskContext, Scheduler, SchedulerBuilder, StoreConfig, TaskError, TaskSubmission, TypedExecutor,
    TypedTask,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The number of connections in taskmill's pool; its default.
const CONNECTIONS: u32 = 16;

/// The order; the same for every driver of this benchmark.
#[derive(Deserialize)]
struct Order {
    work: String,
    store: String,
    synchronous: String,
    #[serde(default)]
    jobs: usize,
    #[serde(default)]
    warm_up_jobs: usize,
    #[serde(default)]
    batch_jobs: usize,
    #[serde(default)]
    callers: usize,
    #[serde(default)]
    rate_per_second: f64,
    #[serde(default)]
    tags: usize,
    #[serde(default)]
    length: usize,
    #[serde(default)]
    together: usize,
    #[serde(default)]
    attempts: usize,
    #[serde(default)]
    groups: usize,
    #[serde(default)]
    limits: Vec<usize>,
}

struct Bench;

impl DomainKey for Bench {
    const NAME: &'static str = "bench";
}

/// A payload of exactly 100 bytes as JSON.
#[derive(Serialize, Deserialize, Clone)]
struct Noop {
    id: String,
    to: String,
    pad: String,
}

impl TypedTask for Noop {
    type Domain = Bench;
    const TASK_TYPE: &'static str = "noop";
}

fn noop(id: usize) -> Noop {
    Noop {
        id: format!("{id:08}"),
        to: "user@example.com".to_owned(),
        pad: "x".repeat(50),
    }
}

fn submission(job: &Noop) -> TaskSubmission {
    TaskSubmission::new("bench::noop")
        .key(job.id.as_str())
        .payload_json(job)
}

/// Counts the jobs that it runs, and records when each began, if asked to.
#[derive(Clone, Default)]
struct Executor {
    begun: Arc<AtomicUsize>,
    begun_at: Option<Arc<Mutex<Vec<(usize, Instant)>>>>,
    changed: Arc<Notify>,
}

impl TypedExecutor<Noop> for Executor {
    async fn execute<'a>(
        &'a self,
        job: Noop,
        _context: DomainTaskContext<'a, Bench>,
    ) -> Result<(), TaskError> {
        if let Some(begun_at) = &self.begun_at {
            let now = Instant::now();
            let id = job.id.parse().expect("ids are numbers");
            begun_at.lock().expect("no holder panics").push((id, now));
        }
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
        Ok(())
    }
}

async fn open(order: &Order, executor: Executor) -> Scheduler {
    let domain = Domain::<Bench>::new().task::<Noop>(executor);
    build(order, |builder| builder.domain(domain)).await
}

/// A scheduler with the settings of the benchmark, and further ones.
async fn build(order: &Order, set: impl FnOnce(SchedulerBuilder) -> SchedulerBuilder) -> Scheduler {
    let builder = Scheduler::builder()
        .store_path(&order.store)
        .store_config(StoreConfig {
            max_connections: CONNECTIONS,
            ..StoreConfig::default()
        })
        .max_concurrency(100)
        .poll_interval(Duration::from_millis(10));
    let scheduler = set(builder).build().await.expect("the store opens");
    set_synchronous(&scheduler, &order.synchronous).await;
    scheduler
}

/// taskmill opens its connections with NORMAL and has no setting for it, so this takes all connections of the pool at
/// once and sets them.
async fn set_synchronous(scheduler: &Scheduler, level: &str) {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = scheduler
            .store()
            .pool()
            .acquire()
            .await
            .expect("the pool has room");
        sqlx::query(&format!("PRAGMA synchronous = {level}"))
            .execute(&mut *connection)
            .await
            .expect("the level is known");
        connections.push(connection);
    }
}

async fn submit_batches(scheduler: &Scheduler, jobs: &[Noop], batch_jobs: usize) {
    for chunk in jobs.chunks(batch_jobs) {
        let batch: Vec<_> = chunk.iter().map(submission).collect();
        scheduler.submit_batch(&batch).await.expect("the batch is taken");
    }
}

fn jobs(from: usize, count: usize) -> Vec<Noop> {
    (from..from + count).map(noop).collect()
}

/// Waits until this many jobs have begun and none are pending or running.
async fn drained(scheduler: &Scheduler, executor: &Executor, jobs: usize) {
    while executor.begun.load(Ordering::Relaxed) < jobs {
        executor.changed.notified().await;
    }
    loop {
        let store = scheduler.store();
        let pending = store.pending_count().await.expect("the store answers");
        let running = store.running_count().await.expect("the store answers");
        if pending + running == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn rate(jobs: usize, began: Instant) -> serde_json::Value {
    serde_json::json!({"jobs": jobs, "seconds": began.elapsed().as_secs_f64()})
}

async fn measure_submit(order: &Order) -> serde_json::Value {
    let scheduler = open(order, Executor::default()).await;
    submit_batches(&scheduler, &jobs(0, order.warm_up_jobs), order.batch_jobs).await;
    let measured = jobs(order.warm_up_jobs, order.jobs);
    let began = Instant::now();
    submit_batches(&scheduler, &measured, order.batch_jobs).await;
    rate(order.jobs, began)
}

async fn measure_drain(order: &Order) -> serde_json::Value {
    let executor = Executor::default();
    let scheduler = open(order, executor.clone()).await;
    submit_batches(&scheduler, &jobs(0, order.warm_up_jobs), order.batch_jobs).await;
    let stop = CancellationToken::new();
    let warm_up = tokio::spawn({
        let (scheduler, stop) = (scheduler.clone(), stop.clone());
        async move { scheduler.run(stop).await }
    });
    drained(&scheduler, &executor, order.warm_up_jobs).await;
    stop.cancel();
    warm_up.await.expect("the scheduler stops");

    let executor = Executor::default();
    let scheduler = open(order, executor.clone()).await;
    submit_batches(
        &scheduler,
        &jobs(order.warm_up_jobs, order.jobs),
        order.batch_jobs,
    )
    .await;
    let began = Instant::now();
    tokio::spawn({
        let scheduler = scheduler.clone();
        async move { scheduler.run(CancellationToken::new()).await }
    });
    drained(&scheduler, &executor, order.jobs).await;
    rate(order.jobs, began)
}

/// A lone caller is the program's own task; more callers are concurrent tasks.
async fn submit_singly(scheduler: &Scheduler, jobs: Vec<Noop>, callers: usize) {
    let caller = Caller {
        scheduler: scheduler.clone(),
        jobs: jobs.into(),
        next: Arc::default(),
    };
    if callers == 1 {
        return caller.submit().await;
    }
    let callers: Vec<_> = (0..callers)
        .map(|_| tokio::spawn(caller.clone().submit()))
        .collect();
    for caller in callers {
        caller.await.expect("callers do not panic");
    }
}

/// Takes the next job and submits it, until none are left.
#[derive(Clone)]
struct Caller {
    scheduler: Scheduler,
    jobs: Arc<[Noop]>,
    next: Arc<AtomicUsize>,
}

impl Caller {
    async fn submit(self) {
        while let Some(job) = self.jobs.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            self.scheduler
                .submit(&submission(job))
                .await
                .expect("the job is taken");
        }
    }
}

async fn measure_single(order: &Order) -> serde_json::Value {
    let scheduler = open(order, Executor::default()).await;
    submit_singly(&scheduler, jobs(0, order.warm_up_jobs), order.callers).await;
    let measured = jobs(order.warm_up_jobs, order.jobs);
    let began = Instant::now();
    submit_singly(&scheduler, measured, order.callers).await;
    rate(order.jobs, began)
}

async fn measure_latency(order: &Order) -> serde_json::Value {
    let all = order.warm_up_jobs + order.jobs;
    let executor = Executor {
        begun_at: Some(Arc::default()),
        ..Executor::default()
    };
    let scheduler = open(order, executor.clone()).await;
    tokio::spawn({
        let scheduler = scheduler.clone();
        async move { scheduler.run(CancellationToken::new()).await }
    });
    let mut sent_at = Vec::new();
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / order.rate_per_second));
    for id in 0..all {
        ticks.tick().await;
        let job = submission(&noop(id));
        sent_at.push(Instant::now());
        scheduler.submit(&job).await.expect("the job is taken");
    }
    while executor.begun.load(Ordering::Relaxed) < all {
        executor.changed.notified().await;
    }
    let begun_at = executor.begun_at.expect("it was asked for");
    let mut latencies_ms: Vec<f64> = begun_at
        .lock()
        .expect("no holder panics")
        .iter()
        .filter(|(id, _)| *id >= order.warm_up_jobs)
        .map(|(id, begun)| begun.duration_since(sent_at[*id]).as_secs_f64() * 1e3)
        .collect();
    latencies_ms.sort_by(f64::total_cmp);
    let at = |share: f64| latencies_ms[((latencies_ms.len() - 1) as f64 * share).round() as usize];
    serde_json::json!({"samples": latencies_ms.len(), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0)})
}

#[tokio::main]
async fn main() {
    let order = std::env::args().nth(1).expect("one argument: the order, as JSON");
    let order: Order = serde_json::from_str(&order).expect("the order is JSON");
    let result = match order.work.as_str() {
        "submit_batches" => measure_submit(&order).await,
        "drain" => measure_drain(&order).await,
        "submit_single" => measure_single(&order).await,
        "latency" => measure_latency(&order).await,
        _ => scheduler::measure(&order).await,
    };
    println!("{result}");
    // Its background tasks have nothing left to do and need not be awaited.
    std::process::exit(0);
}
