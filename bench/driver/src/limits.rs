//! Measures the cost of limits and aging.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gristmill_engine::{Engine, Job, JobError};
use gristmill_model::{Control, Effect, NewBatch, Scope};
use gristmill_store::ControlFilter;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::claims::{claims, fill, median};
use crate::order::{Order, Payload, payloads};
use crate::workload::{Noop, batch_of, drain, submit, warm_up};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Priorities of the jobs that wait while claims are measured.
const PRIORITIES: usize = 10;

/// Jobs of one submit.
const SUBMIT_JOBS: usize = 10_000;

/// Rounds of claims, with aging and without.
const AGING_ROUNDS: usize = 5;

/// The factor by which a limit may fall below its rate before it counts as stuck.
const PATIENCE: u32 = 3;

async fn put(engine: &Engine, scope: Scope, effect: Effect) -> Result<()> {
    Ok(engine
        .store()
        .put_controls(vec![Control { scope, effect }])
        .await?)
}

async fn lift_all(engine: &Engine) -> Result<()> {
    engine.store().delete_controls(ControlFilter::default()).await?;
    Ok(())
}

/// Drains the jobs of many groups: without limits, and with each of the order's limits. Returns jobs per second, and
/// their share of the unlimited rate.
pub async fn measure_groups(engine: &Engine, order: &Order) -> Result<Value> {
    warm_up(engine, order).await?;
    let mut rates = Vec::new();
    for limit in [None].into_iter().chain(order.limits.iter().copied().map(Some)) {
        lift_all(engine).await?;
        if let Some(jobs_max) = limit {
            let scope = Scope {
                kind: Some("noop".to_owned()),
                each_group: true,
                ..Scope::default()
            };
            put(engine, scope, Effect::Concurrency { jobs_max }).await?;
        }
        let batch_jobs = order.batch_jobs.min(order.jobs / order.groups);
        let jobs = payloads(
            0,
            order.jobs / order.groups / batch_jobs * batch_jobs * order.groups,
        );
        let mut batches: Vec<NewBatch> = Vec::new();
        for (number, jobs) in jobs.chunks(batch_jobs).enumerate() {
            let mut batch = batch_of(jobs)?;
            batch.options.group = Some(format!("group {}", number % order.groups));
            batches.push(batch);
            if batches.len() * batch_jobs >= SUBMIT_JOBS {
                engine.submit_batches(std::mem::take(&mut batches)).await?;
            }
        }
        if !batches.is_empty() {
            engine.submit_batches(batches).await?;
        }
        let began = Instant::now();
        drain(engine, jobs.len()).await?;
        rates.push(jobs.len() as f64 / began.elapsed().as_secs_f64());
    }
    let [unlimited, open, saturated] = rates[..] else {
        return Err("two limits are needed".into());
    };
    Ok(json!({
        "unlimited": unlimited, "open": open, "saturated": saturated,
        "open_share": open / unlimited, "saturated_share": saturated / unlimited,
    }))
}

/// CPU seconds of this process.
fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').ok_or("/proc/self/stat cannot be read")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let (user, system): (f64, f64) = (fields[11].parse()?, fields[12].parse()?);
    // Linux counts them in hundredths (proc(5): USER_HZ).
    Ok((user + system) / 100.0)
}

/// Runs enough jobs for a rate limit. Returns by how many per cent the begun jobs differ from it, and the CPU time.
pub async fn measure_rate(engine: &Engine, order: &Order) -> Result<Value> {
    const BURST: u32 = 200;
    let per_second = order.rate_per_second;
    let effect = Effect::Rate {
        jobs: per_second as u32,
        period_ms: 1_000,
        burst: BURST,
    };
    put(engine, Scope::default(), effect).await?;
    submit(engine, &payloads(0, order.jobs), order.batch_jobs).await?;
    let begun_at: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let all_begun = Arc::new(Notify::new());
    let mut worker = engine.worker();
    worker.handle::<Noop, _, _>({
        let (begun_at, all_begun, jobs) = (begun_at.clone(), all_begun.clone(), order.jobs);
        move |_job: Job<Payload>| {
            let mut begun_at = begun_at.lock().expect("no holder panics");
            begun_at.push(Instant::now());
            if begun_at.len() == jobs {
                all_begun.notify_one();
            }
            async { Ok::<_, JobError>(()) }
        }
    });
    let (cpu_before, began) = (cpu_seconds()?, Instant::now());
    let worker = worker.start();
    let patience = Duration::from_secs_f64(order.jobs as f64 / per_second) * PATIENCE;
    tokio::time::timeout(patience, all_begun.notified())
        .await
        .map_err(|_| "the limit let too few jobs begin")?;
    let (seconds, cpu_seconds) = (began.elapsed().as_secs_f64(), cpu_seconds()? - cpu_before);
    worker.stop().await?;
    let begun_at = begun_at.lock().expect("no holder panics");
    let spent = begun_at[begun_at.len() - 1].duration_since(begun_at[0]);
    let measured = (begun_at.len() as f64 - f64::from(BURST)) / spent.as_secs_f64();
    Ok(json!({
        "off_percent": (measured / per_second - 1.0).abs() * 100.0,
        "cpu_percent": cpu_seconds / seconds * 100.0,
        "measured_per_second": measured,
    }))
}

/// Measures claims of 100 jobs while many jobs of several priorities wait, in turn without aging and with it.
pub async fn measure_aging(engine: &Engine, order: &Order) -> Result<Value> {
    let store = engine.store();
    fill(store, 0, order.jobs, order.batch_jobs, PRIORITIES).await?;
    let (mut without_ms, mut with_ms) = (Vec::new(), Vec::new());
    for _ in 0..AGING_ROUNDS {
        lift_all(engine).await?;
        without_ms.push(claims(store).await?);
        let effect = Effect::Aging {
            grace_ms: 0,
            step_ms: 1_000,
        };
        put(engine, Scope::default(), effect).await?;
        with_ms.push(claims(store).await?);
    }
    let (without_ms, with_ms) = (median(&without_ms), median(&with_ms));
    Ok(json!({"without_ms": without_ms, "with_ms": with_ms, "times": with_ms / without_ms}))
}
