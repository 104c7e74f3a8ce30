//! Flows of steps that do nothing, one after the other.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gristmill_engine::{Engine, FlowSteps, Job, JobError, Kind, WorkerBuilder};
use serde_json::Value;
use tokio::sync::Notify;

use crate::order::{Order, Payload, payloads};
use crate::workload::Noop;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A flow. Its payload says how many steps it has.
struct Flow;

impl Kind for Flow {
    const NAME: &'static str = "flow";
    type Payload = usize;
    type Value = ();
}

/// Has a worker run flows, whose payload is the number of their steps.
fn handle_steps(worker: &mut WorkerBuilder) {
    let step = Arc::new(payloads(0, 1).remove(0));
    worker.handle_flow::<Flow, _, _>(move |flow, job: Job<usize>| {
        let step = step.clone();
        async move {
            for _ in 0..job.payload {
                flow.step::<Noop>(&step).await?;
            }
            Ok(())
        }
    });
}

/// Runs `jobs` flows of `length` steps: from the claim of the first to the commit of the last.
pub async fn measure_flows(engine: &Engine, order: &Order) -> Result<Value> {
    let run = |flows: usize| async move {
        let payload: Vec<usize> = vec![order.length; flows];
        for flows in payload.chunks(order.batch_jobs.max(1)) {
            engine.submit_many::<Flow>(flows).await?;
        }
        let began = Instant::now();
        let mut worker = engine.worker();
        worker.handle::<Noop, _, _>(|_: Job<Payload>| async { Ok::<_, JobError>(()) });
        handle_steps(&mut worker);
        let summary = worker.until_empty().run().await?;
        let expected = flows * (order.length + 1);
        match summary.completed as usize == expected {
            true => Ok(began.elapsed().as_secs_f64()),
            false => Err::<f64, Box<dyn Error + Send + Sync>>(
                format!("{expected} jobs were to complete: {summary:?}").into(),
            ),
        }
    };
    if order.warm_up_jobs > 0 {
        run(order.warm_up_jobs).await?;
    }
    let seconds = run(order.jobs).await?;
    Ok(serde_json::json!({"jobs": order.jobs * order.length, "seconds": seconds}))
}

/// Runs `jobs` flows of `length` steps, one flow after the other: the seconds between the beginnings of their steps.
pub async fn measure_steps(engine: &Engine, order: &Order) -> Result<Value> {
    let moments: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let all_begun = Arc::new(Notify::new());
    let mut worker = engine.worker();
    worker.handle::<Noop, _, _>({
        let (moments, all_begun, length) = (moments.clone(), all_begun.clone(), order.length);
        move |_: Job<Payload>| {
            let mut moments = moments.lock().expect("no holder panics");
            moments.push(Instant::now());
            if moments.len() == length {
                all_begun.notify_one();
            }
            async { Ok::<_, JobError>(()) }
        }
    });
    handle_steps(&mut worker);
    let worker = worker.start();
    let mut spans = Vec::new();
    for flow in 0..=order.jobs {
        engine.submit::<Flow>(&order.length).await?;
        all_begun.notified().await;
        let moments = std::mem::take(&mut *moments.lock().expect("no holder panics"));
        let between = moments.windows(2).map(|two| two[1].duration_since(two[0]));
        // The first flow warms up.
        spans.extend(
            between
                .filter(|_| flow > 0)
                .map(|span: Duration| span.as_secs_f64()),
        );
    }
    worker.stop().await?;
    Ok(serde_json::json!({"spans": spans}))
}
