//! Very many schedules, fired by two schedulers at once, on a clock that moves second by second.

use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use gristmill_engine::{Engine, EngineSettings, Job, JobError, RecurrenceRule};
use gristmill_model::{BatchOptions, Clock, ManualClock, SystemClock};
use gristmill_store::{CatchUp, NewSchedule, Overlap};
use serde_json::{Value, json};

use crate::order::{Order, Payload, payloads};
use crate::workload::{Noop, open, pack};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Seconds from one moment of a schedule to the next: a hundredth of the schedules is due each second.
const INTERVAL_SECONDS: usize = 100;

/// Makes `jobs` schedules, and fires those of the given `seconds`. Fails if one fired twice or not at all.
pub async fn measure(order: &Order) -> Result<Value> {
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let first = scheduler(order, &clock).await?;
    let second = scheduler(order, &clock).await?;
    let due_each_second = order.jobs / INTERVAL_SECONDS;
    let began = Instant::now();
    for number in 0..INTERVAL_SECONDS {
        let schedules = payloads(number * due_each_second, due_each_second);
        let schedules: Result<Vec<NewSchedule>> = schedules.iter().map(schedule).collect();
        first.store().put_schedules(schedules?).await?;
        clock.advance_ms(1_000);
    }
    let put_per_second = (due_each_second * INTERVAL_SECONDS) as f64 / began.elapsed().as_secs_f64();
    let mut slowest_ms: f64 = 0.0;
    let (began, mut fired) = (Instant::now(), 0);
    for _ in 0..order.seconds {
        let began = Instant::now();
        let (left, right) = (first.clone(), second.clone());
        let (left, right) = tokio::join!(
            tokio::spawn(async move { left.fire_schedules().await }),
            tokio::spawn(async move { right.fire_schedules().await }),
        );
        fired += left?? + right??;
        slowest_ms = slowest_ms.max(began.elapsed().as_secs_f64() * 1e3);
        clock.advance_ms(1_000);
    }
    let seconds = began.elapsed().as_secs_f64();
    let expected = due_each_second * order.seconds as usize;
    check(&first, fired as usize, expected).await?;
    first.close().await?;
    second.close().await?;
    Ok(json!({
        "jobs": expected, "seconds": seconds, "slowest_ms": slowest_ms, "put_per_second": put_per_second,
    }))
}

async fn scheduler(order: &Order, clock: &Arc<ManualClock>) -> Result<Engine> {
    let store = open(order, Some(clock.clone())).await?;
    let settings = EngineSettings {
        clock: clock.clone(),
        housekeeping: false,
        ..EngineSettings::default()
    };
    Ok(Engine::new(store, settings).await?)
}

fn schedule(job: &Payload) -> Result<NewSchedule> {
    Ok(NewSchedule {
        name: format!("schedule {}", job.id),
        rule: RecurrenceRule::Every {
            interval_ms: 1_000 * INTERVAL_SECONDS as u64,
        },
        kind: "noop".to_owned(),
        queue: "default".to_owned(),
        payload: pack(std::slice::from_ref(job))?,
        options: BatchOptions::default(),
        key: None,
        expires_after_ms: None,
        tags: BTreeMap::new(),
        catch_up: CatchUp::One,
        overlap: Overlap::Allow,
    })
}

/// Runs the submitted jobs: each schedule's job must be there once.
async fn check(engine: &Engine, fired: usize, expected: usize) -> Result<()> {
    let seen: Arc<Mutex<HashSet<String>>> = Arc::default();
    let mut worker = engine.worker();
    worker.handle::<Noop, _, _>({
        let seen = seen.clone();
        move |job: Job<Payload>| {
            seen.lock().expect("no holder panics").insert(job.payload.id);
            async { Ok::<_, JobError>(()) }
        }
    });
    let summary = worker.until_empty().run().await?;
    let different = seen.lock().expect("no holder panics").len();
    if fired != expected || summary.completed as usize != expected || different != expected {
        return Err(format!(
            "{expected} schedules were due: {fired} were fired, {} jobs ran, of {different} schedules",
            summary.completed
        )
        .into());
    }
    Ok(())
}
