//! The work that most measurements share: a store, no-op jobs, submits and drains.

use std::error::Error;
use std::sync::Arc;

use gristmill_engine::{Engine, JobError, Kind};
use gristmill_model::{Clock, NewBatch, PackedArray, PackedBuilder};
use gristmill_store::Store;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore, Synchronous};

use crate::order::{Order, Payload, payloads};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// No-op jobs.
pub struct Noop;

impl Kind for Noop {
    const NAME: &'static str = "noop";
    type Payload = Payload;
    type Value = ();
}

/// Opens the store of an order, on its own clock if one is given.
pub async fn open(order: &Order, clock: Option<Arc<dyn Clock>>) -> Result<Arc<dyn Store>> {
    if order.store.starts_with("postgres") {
        let options = PostgresOptions {
            clock,
            ..PostgresOptions::default()
        };
        let store = PostgresStore::open(&order.store, options).await?;
        return Ok(Arc::new(store));
    }
    let synchronous = match order.synchronous.as_str() {
        "full" => Synchronous::Full,
        "normal" => Synchronous::Normal,
        other => return Err(format!("no synchronous level is called `{other}`").into()),
    };
    let mut options = SqliteOptions {
        synchronous,
        ..SqliteOptions::default()
    };
    if let Some(clock) = clock {
        options.clock = clock;
    }
    Ok(Arc::new(SqliteStore::open(&order.store, options)?))
}

/// Submits no-op jobs in batches.
pub async fn submit(engine: &Engine, jobs: &[Payload], batch_jobs: usize) -> Result<()> {
    for batch in jobs.chunks(batch_jobs) {
        engine.submit_many::<Noop>(batch).await?;
    }
    Ok(())
}

/// Runs a worker from its start until every outcome is committed and the worker has left.
pub async fn drain(engine: &Engine, jobs: usize) -> Result<()> {
    let mut worker = engine.worker();
    worker.handle::<Noop, _, _>(|_job| async { Ok::<_, JobError>(()) });
    let summary = worker.until_empty().run().await?;
    if summary.completed != jobs as u64 || summary.failed > 0 {
        return Err(format!("{jobs} jobs were to complete: {summary:?}").into());
    }
    Ok(())
}

/// Submits no-op jobs, and runs them.
pub async fn warm_up(engine: &Engine, order: &Order) -> Result<()> {
    submit(engine, &payloads(0, order.warm_up_jobs), order.batch_jobs).await?;
    drain(engine, order.warm_up_jobs).await
}

/// Payloads, packed.
pub fn pack(jobs: &[Payload]) -> Result<PackedArray> {
    let mut packed = PackedBuilder::new();
    for job in jobs {
        packed.push_value(job)?;
    }
    Ok(packed.finish())
}

/// A batch of these jobs.
pub fn batch_of(jobs: &[Payload]) -> Result<NewBatch> {
    Ok(NewBatch::new("noop", pack(jobs)?))
}
