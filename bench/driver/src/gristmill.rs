//! Gristmill through its public, typed API.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gristmill_engine::{Engine, EngineError, EngineSettings, Job, JobError};
use serde_json::Value;
use tokio::sync::Notify;

use crate::order::{Order, Payload, latencies, payloads, rate};
use crate::workload::{Noop, drain, open, submit};
use crate::{claims, flows, scheduler, schedules};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Carries out the order.
pub async fn measure(order: &Order) -> Result<Value> {
    if order.work == "schedules" {
        return schedules::measure(order).await;
    }
    let store = open(order, None).await?;
    let engine = Engine::new(store, EngineSettings::default()).await?;
    let result = match order.work.as_str() {
        "submit_batches" => measure_submit(&engine, order).await?,
        "drain" => measure_drain(&engine, order).await?,
        "submit_single" => measure_single(&engine, order).await?,
        "latency" => measure_latency(&engine, order).await?,
        "exchange" => claims::measure_exchange(engine.store(), order).await?,
        "fill" => claims::measure_fill(engine.store(), order).await?,
        "flows" => flows::measure_flows(&engine, order).await?,
        "flow_steps" => flows::measure_steps(&engine, order).await?,
        "claims" => claims::measure_claims(engine.store()).await?,
        _ => scheduler::measure(&engine, order).await?,
    };
    engine.close().await?;
    Ok(result)
}

async fn measure_submit(engine: &Engine, order: &Order) -> Result<Value> {
    submit(engine, &payloads(0, order.warm_up_jobs), order.batch_jobs).await?;
    let jobs = payloads(order.warm_up_jobs, order.jobs);
    let began = Instant::now();
    submit(engine, &jobs, order.batch_jobs).await?;
    Ok(rate(order.jobs, began))
}

async fn measure_drain(engine: &Engine, order: &Order) -> Result<Value> {
    submit(engine, &payloads(0, order.warm_up_jobs), order.batch_jobs).await?;
    drain(engine, order.warm_up_jobs).await?;
    submit(
        engine,
        &payloads(order.warm_up_jobs, order.jobs),
        order.batch_jobs,
    )
    .await?;
    let began = Instant::now();
    drain(engine, order.jobs).await?;
    Ok(rate(order.jobs, began))
}

/// A lone caller is the program's own task; more callers are concurrent tasks.
async fn submit_singly(engine: &Engine, jobs: Vec<Payload>, callers: usize) -> Result<()> {
    let caller = Caller {
        engine: engine.clone(),
        jobs: jobs.into(),
        next: Arc::default(),
    };
    if callers == 1 {
        return Ok(caller.submit().await?);
    }
    let callers: Vec<_> = (0..callers)
        .map(|_| tokio::spawn(caller.clone().submit()))
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(())
}

/// Takes the next job and submits it, until none are left.
#[derive(Clone)]
struct Caller {
    engine: Engine,
    jobs: Arc<[Payload]>,
    next: Arc<AtomicUsize>,
}

impl Caller {
    async fn submit(self) -> std::result::Result<(), EngineError> {
        while let Some(job) = self.jobs.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            self.engine.submit::<Noop>(job).await?;
        }
        Ok(())
    }
}

async fn measure_single(engine: &Engine, order: &Order) -> Result<Value> {
    submit_singly(engine, payloads(0, order.warm_up_jobs), order.callers).await?;
    let jobs = payloads(order.warm_up_jobs, order.jobs);
    let began = Instant::now();
    submit_singly(engine, jobs, order.callers).await?;
    Ok(rate(order.jobs, began))
}

/// Measures the time from just before the submit to the handler's first line, on an otherwise idle worker.
async fn measure_latency(engine: &Engine, order: &Order) -> Result<Value> {
    let count = order.warm_up_jobs + order.jobs;
    let jobs = payloads(0, count);
    let begun_at: Arc<Mutex<Vec<(usize, Instant)>>> = Arc::default();
    let all_begun = Arc::new(Notify::new());
    let mut worker = engine.worker();
    worker.handle::<Noop, _, _>({
        let (begun_at, all_begun) = (begun_at.clone(), all_begun.clone());
        move |job: Job<Payload>| {
            let now = Instant::now();
            let id = job.payload.id.parse().expect("ids are numbers");
            let mut begun_at = begun_at.lock().expect("no holder panics");
            begun_at.push((id, now));
            if begun_at.len() == count {
                all_begun.notify_one();
            }
            async { Ok::<_, JobError>(()) }
        }
    });
    let worker = worker.start();
    let mut sent_at = Vec::with_capacity(count);
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / order.rate_per_second));
    for job in &jobs {
        ticks.tick().await;
        sent_at.push(Instant::now());
        engine.submit::<Noop>(job).await?;
    }
    all_begun.notified().await;
    worker.stop().await?;
    let begun_at = begun_at.lock().expect("no holder panics");
    let measured = begun_at.iter().filter(|(id, _)| *id >= order.warm_up_jobs);
    let milliseconds =
        |(id, begun): &(usize, Instant)| begun.duration_since(sent_at[*id]).as_secs_f64() * 1e3;
    Ok(latencies(measured.map(milliseconds).collect()))
}
