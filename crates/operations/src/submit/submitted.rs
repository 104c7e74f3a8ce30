//! The stored jobs of a submit.

use gristmill_engine::Engine;
use gristmill_model::BatchId;
use serde::{Deserialize, Serialize};

use super::{Batches, JobCutter, SubmitRequest};
use crate::refused::Refused;

/// One batch of a submit. Its jobs are `batch:0` to `batch:(count - 1)`, in the order of the payloads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SubmittedBatch {
    /// Its id.
    pub batch: i64,
    /// The position of its first job.
    pub first_position: u32,
    /// Its number of jobs.
    pub count: u32,
}

/// The submitted jobs, which are on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Submitted {
    /// The number of jobs.
    pub jobs: u64,
    /// The id of the first of them.
    #[cfg_attr(feature = "schema", schema(example = "42:0"))]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub first: String,
    /// Their batches, in order.
    pub batches: Vec<SubmittedBatch>,
    /// For jobs with keys: the id of each, or of the job that stands for it, in order. (`jobs`, `first` and `batches`
    /// describe the stored jobs only.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
}

/// Submits the jobs of a request to the program's own store, all or none.
pub async fn submit(engine: &Engine, request: SubmitRequest<'_>) -> Result<Submitted, Refused> {
    let (mut cutter, after) = request.cut(engine.store().now())?;
    cutter.wait(after);
    store(cutter, engine).await
}

/// Stores all jobs of a request, or none.
pub async fn store(cutter: JobCutter, engine: &Engine) -> Result<Submitted, Refused> {
    let batch = |batch: BatchId, first_position, count| SubmittedBatch {
        batch: batch.0,
        first_position,
        count,
    };
    let mut ids = None;
    let batches: Vec<SubmittedBatch> = match cutter.finish()? {
        Batches::Plain(mut batches) if batches.len() == 1 && batches[0].payloads.count() == 1 => {
            let job = engine.submit_one(batches.remove(0)).await?;
            vec![batch(job.batch, job.position, 1)]
        }
        Batches::Plain(batches) => {
            let counts: Vec<u32> = batches.iter().map(|batch| batch.payloads.count()).collect();
            let submitted = engine.submit_batches(batches).await?.into_iter().zip(counts);
            submitted.map(|(id, count)| batch(id, 0, count)).collect()
        }
        Batches::Keyed(batches) => {
            let submitted = engine.submit_keyed(batches).await?;
            let jobs = submitted.iter().flat_map(|submitted| &submitted.jobs);
            ids = Some(jobs.map(ToString::to_string).collect());
            let stored = submitted.iter();
            stored
                .filter_map(|submitted| Some(batch(submitted.batch?, 0, submitted.count)))
                .collect()
        }
    };
    let jobs = batches.iter().map(|batch| u64::from(batch.count)).sum();
    let first = batches
        .first()
        .map(|first| format!("{}:{}", first.batch, first.first_position));
    Ok(Submitted {
        jobs,
        first: first.unwrap_or_default(),
        batches,
        ids,
    })
}
