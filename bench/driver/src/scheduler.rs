//! The scheduler's works: `duplicates`, `tags`, `tag_ids`, `failures`, `history`, and those of
//! [`dependencies`](crate::dependencies), [`limits`](crate::limits) and [`schedules`](crate::schedules).

use std::error::Error;
use std::time::{Duration, Instant};

use gristmill_engine::{Engine, Job, JobError, Kind, RetryPolicy, Unique};
use gristmill_model::{
    Backoff, BatchOptions, JobState, KeyedBatch, NewBatch, PackedBuilder, Positions, Tag, TagCondition,
};
use gristmill_store::{HistoryFilter, JobFilter, Page};
use serde_json::{Value, json};

use crate::claims::{median, milliseconds};
use crate::order::{Order, Payload, payloads, rate};
use crate::workload::{batch_of, pack};
use crate::{dependencies, limits};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Kinds of a history; the query asks for one of them.
const HISTORY_KINDS: usize = 5;

/// Listed rows of a history.
const HISTORY_ROWS: u32 = 100;

/// The minimum number of repetitions of a query, and their minimum duration.
const QUERIES_MIN: usize = 5;
const QUERIES_FOR: Duration = Duration::from_secs(1);

/// Does what the order says.
pub async fn measure(engine: &Engine, order: &Order) -> Result<Value> {
    match order.work.as_str() {
        "duplicates" => measure_duplicates(engine, order).await,
        "tags" => measure_tags(engine, order).await,
        "tag_ids" => measure_tag_ids(engine, order).await,
        "failures" if order.attempts == 1 => measure_failures::<Hopeless>(engine, order).await,
        "failures" => measure_failures::<Retried>(engine, order).await,
        "history" => measure_history(engine, order).await,
        "chains" => dependencies::measure_chains(engine, order).await,
        "fan_ins" => dependencies::measure_fan_ins(engine, order).await,
        "groups" => limits::measure_groups(engine, order).await,
        "rate_limit" => limits::measure_rate(engine, order).await,
        "aging" => limits::measure_aging(engine, order).await,
        other => Err(format!("no work is called `{other}`").into()),
    }
}

/// Submits jobs with the keys of waiting jobs, batch after batch. Returns how many were stored.
async fn submit_keyed(engine: &Engine, jobs: &[Payload], batches: usize) -> Result<u32> {
    let mut stored = 0;
    for _ in 0..batches {
        let mut keys = PackedBuilder::new();
        for job in jobs {
            keys.push_value(&job.id)?;
        }
        let batch = KeyedBatch::new(batch_of(jobs)?, keys.finish(), Unique::default());
        for submitted in engine.submit_keyed(vec![batch]).await? {
            stored += submitted.count;
        }
    }
    Ok(stored)
}

async fn measure_duplicates(engine: &Engine, order: &Order) -> Result<Value> {
    let jobs = payloads(0, order.batch_jobs);
    let first = submit_keyed(engine, &jobs, 1).await?;
    submit_keyed(engine, &jobs, order.warm_up_jobs / order.batch_jobs).await?;
    let batches = order.jobs / order.batch_jobs;
    let began = Instant::now();
    let stored = submit_keyed(engine, &jobs, batches).await?;
    let answer = rate(batches * order.batch_jobs, began);
    match (first as usize == order.batch_jobs, stored) {
        (true, 0) => Ok(answer),
        _ => Err(format!("{first} jobs were stored at first, and {stored} duplicates of them").into()),
    }
}

/// Submits jobs with `tags` tags each, which have their own values.
async fn submit_tagged(engine: &Engine, jobs: &[Payload], order: &Order) -> Result<()> {
    for jobs in jobs.chunks(order.batch_jobs) {
        let mut batch = batch_of(jobs)?;
        for tag in 0..order.tags {
            for (job, position) in jobs.iter().zip(0..) {
                batch.tags.push(Tag {
                    name: format!("key-{tag}"),
                    value: format!("val-{}-{tag}", job.id),
                    positions: Some(Positions::from(position..position + 1)),
                });
            }
        }
        engine.submit_batches(vec![batch]).await?;
    }
    Ok(())
}

async fn measure_tags(engine: &Engine, order: &Order) -> Result<Value> {
    submit_tagged(engine, &payloads(0, order.warm_up_jobs), order).await?;
    let jobs = payloads(order.warm_up_jobs, order.jobs);
    let began = Instant::now();
    submit_tagged(engine, &jobs, order).await?;
    Ok(rate(order.jobs, began))
}

/// The median duration of a repeated query. Milliseconds.
async fn query_ms<F: Future<Output = Result<()>>>(mut query: impl FnMut() -> F) -> Result<f64> {
    query().await?;
    let (began, mut samples_ms) = (Instant::now(), Vec::new());
    while samples_ms.len() < QUERIES_MIN || began.elapsed() < QUERIES_FOR {
        let began = Instant::now();
        query().await?;
        samples_ms.push(milliseconds(began));
    }
    Ok(median(&samples_ms))
}

/// Measures a query for the ids of jobs with a tag that all jobs have.
async fn measure_tag_ids(engine: &Engine, order: &Order) -> Result<Value> {
    for jobs in payloads(0, order.jobs).chunks(order.batch_jobs) {
        let mut batch = batch_of(jobs)?;
        batch.tags = vec![Tag::all("bucket", "b0")];
        engine.submit_batches(vec![batch]).await?;
    }
    let filter = JobFilter {
        tags: vec![TagCondition::parse("bucket=b0")],
        ..JobFilter::default()
    };
    let found_ms = query_ms(|| async {
        let found = engine.store().job_ids(&filter, None, u32::MAX).await?;
        // One by one, as a caller uses them.
        let ids: Vec<(i64, u32)> = found
            .iter()
            .flat_map(|of| of.positions.iter().map(|position| (of.batch.0, position)))
            .collect();
        if std::hint::black_box(&ids).len() == order.jobs {
            Ok(())
        } else {
            Err(format!("{} of {} jobs were found", ids.len(), order.jobs).into())
        }
    })
    .await?;
    Ok(json!({"ms": found_ms, "jobs": 1, "seconds": found_ms / 1e3}))
}

/// Jobs that fail permanently.
struct Hopeless;

impl Kind for Hopeless {
    const NAME: &'static str = "hopeless";
    type Payload = Payload;
    type Value = ();
}

/// Jobs that fail and are retried at once, three attempts in all.
struct Retried;

impl Kind for Retried {
    const NAME: &'static str = "retried";
    type Payload = Payload;
    type Value = ();

    fn options() -> BatchOptions {
        BatchOptions {
            retry: RetryPolicy {
                attempts_max: 3,
                backoff: Backoff::Constant,
                delay_ms: 0,
                delay_ms_max: 0,
            },
            ..BatchOptions::default()
        }
    }
}

/// Measures the time from the worker's start until all jobs are dead.
async fn fail<K: Kind<Payload = Payload, Value = ()>>(
    engine: &Engine,
    jobs: &[Payload],
    order: &Order,
) -> Result<Instant> {
    for jobs in jobs.chunks(order.batch_jobs) {
        engine.submit_many::<K>(jobs).await?;
    }
    let is_permanent = order.attempts == 1;
    let began = Instant::now();
    let mut worker = engine.worker();
    worker.handle::<K, _, _>(move |_job| async move {
        let error = JobError::new("bench", "this job fails");
        Err::<(), _>(if is_permanent { error.permanent() } else { error })
    });
    let summary = worker.until_empty().run().await?;
    if summary.failed as usize == jobs.len() * order.attempts {
        Ok(began)
    } else {
        Err(format!("{} jobs were to fail: {summary:?}", jobs.len()).into())
    }
}

async fn measure_failures<K: Kind<Payload = Payload, Value = ()>>(
    engine: &Engine,
    order: &Order,
) -> Result<Value> {
    fail::<K>(engine, &payloads(0, order.warm_up_jobs), order).await?;
    let jobs = payloads(order.warm_up_jobs, order.jobs);
    let began = fail::<K>(engine, &jobs, order).await?;
    let answer = rate(order.jobs, began);
    let dead = JobFilter {
        states: vec![JobState::Dead],
        ..JobFilter::default()
    };
    let dead = engine.store().counts(&dead).await?.dead as usize;
    if dead == order.warm_up_jobs + order.jobs {
        Ok(answer)
    } else {
        Err(format!("{dead} jobs are dead").into())
    }
}

/// Measures the history of one of five kinds: the numbers of its jobs by state, their durations, and its first jobs.
async fn measure_history(engine: &Engine, order: &Order) -> Result<Value> {
    let kinds: Vec<String> = (0..HISTORY_KINDS).map(|kind| format!("kind-{kind}")).collect();
    let of_each = order.jobs / HISTORY_KINDS;
    for kind in &kinds {
        let mut first = 0;
        while first < of_each {
            let jobs = payloads(first, order.batch_jobs.min(of_each - first));
            first += jobs.len();
            let batch = NewBatch::new(kind, pack(&jobs)?);
            engine.submit_batches(vec![batch]).await?;
        }
    }
    let mut worker = engine.worker();
    for kind in kinds {
        worker.handler(
            kind,
            gristmill_worker::job_handler(|_job: Job<Payload>| async { Ok::<_, JobError>(()) }),
        );
    }
    let summary = worker.until_empty().run().await?;
    if summary.completed as usize != of_each * HISTORY_KINDS {
        return Err(format!("{} jobs were to complete: {summary:?}", order.jobs).into());
    }
    let history = HistoryFilter {
        kind: Some("kind-0".to_owned()),
        ..HistoryFilter::default()
    };
    let stats_ms = query_ms(|| async {
        let rows = engine.store().history(&history).await?;
        let found: u64 = rows.iter().map(|row| row.completed).sum();
        if found as usize == of_each {
            Ok(())
        } else {
            Err(format!("the history tells of {found} jobs").into())
        }
    })
    .await?;
    let listed = JobFilter {
        kind: Some("kind-0".to_owned()),
        states: vec![JobState::Completed],
        ..JobFilter::default()
    };
    let page = Page {
        after: None,
        limit: HISTORY_ROWS,
    };
    let rows_ms = query_ms(|| async {
        let rows = engine.store().jobs(&listed, page).await?;
        if rows.len() == HISTORY_ROWS as usize {
            Ok(())
        } else {
            Err(format!("{} rows were listed", rows.len()).into())
        }
    })
    .await?;
    Ok(json!({"stats_ms": stats_ms, "rows_ms": rows_ms}))
}
