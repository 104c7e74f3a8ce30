//! Measures how long submits wait while all jobs are changed: `cargo bench -p gristmill-engine --bench portions`.
//!
//! On both stores, it compares a pause of all jobs in one transaction with the same pause in portions. A bystander
//! submits a job every 5 ms meanwhile. `JOBS` is the number of jobs, 1,000,000 by default, and `PER_BATCH` the size of
//! each batch, 1,000 by default.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_engine::{Engine, EngineSettings};
use gristmill_model::{NewBatch, PackedArray, PackedBuilder};
use gristmill_private_postgres::PrivatePostgres;
use gristmill_store::{Change, JobFilter, Selection, Store};
use gristmill_store_postgres::{PostgresOptions, PostgresStore};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};
use tokio::sync::watch;

const SUBMIT_EVERY: Duration = Duration::from_millis(5);

/// The number of batches in one submit of the fill.
const BATCHES_PER_SUBMIT: u64 = 100;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let server =
        PrivatePostgres::start(&[("fsync", "on"), ("synchronous_commit", "on")]).expect("a private server");
    runtime.block_on(async {
        println!("store, pause of all jobs, time, bystander's submits: median, 99th percentile, longest");
        measure("SQLite", on_sqlite(folder.path())).await;
        let url = server.create_database().expect("a database");
        let store = PostgresStore::open(&url, PostgresOptions::default()).await;
        measure("PostgreSQL", Arc::new(store.expect("the store opens"))).await;
    });
}

fn on_sqlite(folder: &Path) -> Arc<dyn Store> {
    let store = SqliteStore::open(folder.join("jobs.db"), SqliteOptions::default());
    Arc::new(store.expect("the store opens"))
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

async fn measure(name: &str, store: Arc<dyn Store>) {
    let settings = EngineSettings {
        housekeeping: false,
        ..EngineSettings::default()
    };
    let engine = Engine::new(store.clone(), settings).await.expect("an engine");
    let (jobs, per_batch) = (number("JOBS", 1_000_000), number("PER_BATCH", 1_000));
    let mut left = jobs / per_batch;
    while left > 0 {
        let count = left.min(BATCHES_PER_SUBMIT);
        let batches = (0..count).map(|_| batch("mail", per_batch)).collect();
        store.submit(batches, None).await.expect("a submit");
        left -= count;
    }
    let of_kind = || {
        Selection::Filter(JobFilter {
            kind: Some("mail".to_owned()),
            ..JobFilter::default()
        })
    };
    let pause = |reason: &str| Change::Pause {
        reason: reason.to_owned(),
        until: None,
    };
    for round in 1..=3 {
        let reasons = [format!("whole {round}"), format!("portions {round}")];
        beside(name, "in one transaction", &store, async {
            let paused = store.change(of_kind(), pause(&reasons[0])).await;
            assert_eq!(paused.expect("a pause").changed, jobs);
        })
        .await;
        store
            .change(of_kind(), Change::Resume { reason: None })
            .await
            .expect("a resume");
        beside(name, "in portions", &store, async {
            let paused = engine.change(of_kind(), pause(&reasons[1])).await;
            assert_eq!(paused.expect("a pause").changed, jobs);
        })
        .await;
        store
            .change(of_kind(), Change::Resume { reason: None })
            .await
            .expect("a resume");
    }
    engine.close().await.expect("the store closes");
}

/// Prints the duration of `work`, and of the submits beside it.
async fn beside(name: &str, how: &str, store: &Arc<dyn Store>, work: impl Future<Output = ()>) {
    let (stop, stopped) = watch::channel(false);
    let bystander = tokio::spawn(submit_until(store.clone(), stopped));
    let begun = Instant::now();
    work.await;
    let took = begun.elapsed();
    stop.send_replace(true);
    let mut latencies = bystander.await.expect("the bystander ends");
    latencies.sort_unstable();
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    println!(
        "{name}, {how}, {:.2} s, {:.1} ms, {:.1} ms, {:.1} ms",
        took.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

/// Submits one job at a time until it is told to stop. Returns the durations.
async fn submit_until(store: Arc<dyn Store>, stopped: watch::Receiver<bool>) -> Vec<Duration> {
    let mut ticks = tokio::time::interval(SUBMIT_EVERY);
    let mut latencies = Vec::new();
    while !*stopped.borrow() {
        ticks.tick().await;
        let begun = Instant::now();
        store.submit_one(batch("bystander", 1)).await.expect("a submit");
        latencies.push(begun.elapsed());
    }
    latencies
}

fn batch(kind: &str, jobs: u64) -> NewBatch {
    let mut payloads = PackedBuilder::new();
    for number in 0..jobs {
        payloads.push_value(&number).expect("a payload");
    }
    let payloads: PackedArray = payloads.finish();
    NewBatch::new(kind, payloads)
}
