//! Jobs that wait for others: chains, and fan-ins.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use gristmill_engine::{After, Engine, Job, JobError, RunningWorker};
use gristmill_model::NewBatch;
use serde_json::Value;
use tokio::sync::Notify;

use crate::order::{Order, Payload, payloads, rate};
use crate::workload::{Noop, batch_of, warm_up};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Jobs in one submit when there are many chains or fan-ins.
const SUBMIT_JOBS: usize = 1_000;

/// A worker that counts begun jobs, and signals when there are enough.
struct Counting {
    count: Arc<Count>,
    worker: RunningWorker,
}

#[derive(Default)]
struct Count {
    begun: AtomicUsize,
    enough: AtomicUsize,
    reached: Notify,
}

impl Counting {
    fn start(engine: &Engine) -> Self {
        let count = Arc::<Count>::default();
        let mut worker = engine.worker();
        worker.handle::<Noop, _, _>({
            let count = count.clone();
            move |_job: Job<Payload>| {
                let begun = count.begun.fetch_add(1, Ordering::SeqCst) + 1;
                if begun == count.enough.load(Ordering::SeqCst) {
                    count.reached.notify_one();
                }
                async { Ok::<_, JobError>(()) }
            }
        });
        let worker = worker.start();
        Counting { count, worker }
    }

    async fn until(&self, jobs: usize) {
        self.count.enough.store(jobs, Ordering::SeqCst);
        while self.count.begun.load(Ordering::SeqCst) < jobs {
            self.count.reached.notified().await;
        }
    }
}

/// Measures chains of `length` jobs, `together` of them at once, from the first submit to the last commit.
pub async fn measure_chains(engine: &Engine, order: &Order) -> Result<Value> {
    measure(engine, order, order.length, |jobs| {
        let mut chain = Vec::new();
        for (place, job) in jobs.iter().enumerate() {
            let mut batch = batch_of(std::slice::from_ref(job))?;
            batch.after.extend(place.checked_sub(1).map(After::earlier));
            chain.push(batch);
        }
        Ok(chain)
    })
    .await
}

/// Measures jobs that wait for `length` others each.
pub async fn measure_fan_ins(engine: &Engine, order: &Order) -> Result<Value> {
    measure(engine, order, order.length + 1, |jobs| {
        let (last, others) = jobs.split_last().ok_or("there are no jobs")?;
        let mut waiting = batch_of(std::slice::from_ref(last))?;
        waiting.after.push(After::earlier(0));
        Ok(vec![batch_of(others)?, waiting])
    })
    .await
}

async fn measure(
    engine: &Engine,
    order: &Order,
    jobs_each: usize,
    graph: impl Fn(&[Payload]) -> Result<Vec<NewBatch>>,
) -> Result<Value> {
    warm_up(engine, order).await?;
    let rounds = order.jobs / (jobs_each * order.together);
    let jobs = payloads(0, rounds * jobs_each * order.together);
    let began = Instant::now();
    let worker = Counting::start(engine);
    let mut submitted = 0;
    for round in jobs.chunks(jobs_each * order.together) {
        for many in round.chunks(SUBMIT_JOBS / jobs_each * jobs_each) {
            let mut batches: Vec<NewBatch> = Vec::new();
            for jobs in many.chunks(jobs_each) {
                let before = batches.len();
                batches.extend(graph(jobs)?.into_iter().map(|batch| behind(batch, before)));
            }
            engine.submit_batches(batches).await?;
        }
        submitted += round.len();
        worker.until(submitted).await;
    }
    let summary = worker.worker.stop().await?;
    let answer = rate(submitted, began);
    if summary.completed as usize == submitted {
        Ok(answer)
    } else {
        Err(format!("{submitted} jobs were to complete: {summary:?}").into())
    }
}

/// A batch of a submit that waits for the batch before it.
fn behind(mut batch: NewBatch, before: usize) -> NewBatch {
    for after in &mut batch.after {
        if let gristmill_engine::Prerequisite::Earlier(place) = &mut after.prerequisite {
            *place += before;
        }
    }
    batch
}
