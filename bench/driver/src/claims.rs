//! Measures single claims and commits, each one call of the store: the cost of their SQL.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use gristmill_batching::BatchStats;
use gristmill_model::{Completed, Lease, NewBatch, PackedBuilder, Positions, Report, WorkerId};
use gristmill_store::{NewWorker, Store, Want};
use serde_json::{Value, json};

use crate::order::{Order, payloads};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Jobs of one claim, and of one commit.
const CLAIM_JOBS: u32 = 100;
const COMMIT_JOBS: u32 = 50;

/// The number of measured claims, after as many that are not measured.
const CLAIMS: usize = 100;

/// Batches in one submit while a store is filled.
const FILL_BATCHES: usize = 50;

/// Measures claims of 100 jobs and commits of 50.
pub async fn measure_exchange(store: &Arc<dyn Store>, order: &Order) -> Result<Value> {
    let jobs = 2 * CLAIMS * CLAIM_JOBS as usize;
    fill(store, 0, jobs, order.batch_jobs, 1).await?;
    let worker = register(store).await?;
    let (mut claims_ms, mut commits_ms) = (Vec::new(), Vec::new());
    for _ in 0..2 * CLAIMS {
        let (lease, claim_ms) = claim(store, worker).await?;
        claims_ms.push(claim_ms);
        for report in reports(&lease)? {
            let began = Instant::now();
            let answer = store.exchange(worker, vec![report], None).await?;
            commits_ms.push(milliseconds(began));
            if answer.receipts[0].accepted.len() != COMMIT_JOBS {
                return Err(format!("a report was not accepted: {:?}", answer.receipts[0]).into());
            }
        }
    }
    Ok(json!({"claim_ms": median(&claims_ms[CLAIMS..]), "commit_ms": median(&commits_ms[CLAIMS..])}))
}

/// Fills a store with jobs.
pub async fn measure_fill(store: &Arc<dyn Store>, order: &Order) -> Result<Value> {
    let began = Instant::now();
    fill(store, 0, order.jobs, order.batch_jobs, 1).await?;
    Ok(json!({"submits_per_second": order.jobs as f64 / began.elapsed().as_secs_f64()}))
}

/// Measures claims of 100 from a store that another process has filled.
pub async fn measure_claims(store: &Arc<dyn Store>) -> Result<Value> {
    Ok(json!({"claim_ms": claims(store).await?}))
}

/// The median of claims that are given back at the end. Milliseconds.
pub async fn claims(store: &Arc<dyn Store>) -> Result<f64> {
    let worker = register(store).await?;
    let mut claims_ms = Vec::new();
    // No more than the smaller store has.
    for _ in 0..CLAIMS {
        claims_ms.push(claim(store, worker).await?.1);
    }
    store.leave(worker, BatchStats::default()).await?;
    Ok(median(&claims_ms[CLAIMS / 5..]))
}

async fn claim(store: &Arc<dyn Store>, worker: WorkerId) -> Result<(Lease, f64)> {
    let want = Want {
        jobs_max: CLAIM_JOBS,
        queues: vec!["default".into()],
        kinds: vec!["noop".into()],
        priority_min: None,
    };
    let began = Instant::now();
    let answer = store.exchange(worker, Vec::new(), Some(want)).await?;
    let claim_ms = milliseconds(began);
    let lease = answer.lease.ok_or("there was nothing to claim")?;
    if lease.jobs() != CLAIM_JOBS {
        return Err(format!("{} jobs were claimed", lease.jobs()).into());
    }
    Ok((lease, claim_ms))
}

async fn register(store: &Arc<dyn Store>) -> Result<WorkerId> {
    let worker = NewWorker {
        name: "bench".to_owned(),
        host: "bench".to_owned(),
        process_id: std::process::id(),
        process_started: String::new(),
        queues: Vec::new(),
        kinds: Vec::new(),
    };
    Ok(store.register_worker(worker).await?)
}

/// The outcomes of a lease, 50 per report.
fn reports(lease: &Lease) -> Result<Vec<Report>> {
    let mut reports = Vec::new();
    for slice in &lease.slices {
        let mut left = slice.positions.clone();
        while !left.is_empty() {
            let positions: Positions = left.take_first(COMMIT_JOBS);
            let mut values = PackedBuilder::new();
            for _ in positions.iter() {
                values.push("null")?;
            }
            let mut report = Report::new(slice.lease, slice.batch, slice.attempt);
            report.completed = Some(Completed {
                durations_us: vec![1; positions.len() as usize],
                values: values.finish(),
                positions,
            });
            reports.push(report);
        }
    }
    Ok(reports)
}

/// Submits this many jobs, numbered from `from`, in batches that take turns with the priorities.
pub async fn fill(
    store: &Arc<dyn Store>,
    from: usize,
    jobs: usize,
    batch_jobs: usize,
    priorities: usize,
) -> Result<()> {
    let mut first = from;
    while first < from + jobs {
        let mut batches = Vec::new();
        while first < from + jobs && batches.len() < FILL_BATCHES {
            let count = batch_jobs.min(from + jobs - first);
            let mut packed = PackedBuilder::new();
            for payload in payloads(first, count) {
                packed.push_value(&payload)?;
            }
            let mut batch = NewBatch::new("noop", packed.finish());
            batch.options.priority = i16::try_from(first / batch_jobs % priorities)?;
            batches.push(batch);
            first += count;
        }
        store.submit(batches, None).await?;
    }
    Ok(())
}

/// The time since `began`.
pub fn milliseconds(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

/// The median.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
