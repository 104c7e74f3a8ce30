//! The run of a map: its items are submitted in order, and the run's position moves in the same transactions, so that another
//! process can go on with them.

use gristmill_engine::{Engine, end_reason, is_postgres};
use gristmill_model::{
    BatchId, BatchLimits, BatchOptions, JobState, NewBatch, PackedArray, PackedCutter, RunId,
};
use gristmill_operations::JobOptions;
use gristmill_operations::read::read_request;
use gristmill_store::run::RunProgress;
use gristmill_store::{Change, JobFilter, NewRun, RunAdvance, RunState, Selection};
use napi::Result;
use napi_derive::napi;
use serde_json::value::RawValue;
use tokio::sync::Mutex;

use crate::run_lock::RunLock;
use crate::{refusal, store_error};

/// Where a run belongs, and what its jobs have in common.
#[napi(object)]
pub struct RunPlan {
    /// The store, as the application names it.
    pub store: String,
    /// The name of the run.
    pub name: String,
    /// Its description, by which it is known again.
    pub description: String,
    /// The kind of its jobs.
    pub kind: String,
    /// The queue of its jobs.
    pub queue: String,
    /// Their options as JSON.
    pub options: String,
}

/// A batch of a run.
#[napi(object, object_from_js = false)]
pub struct RunBatch {
    /// Its id.
    pub batch: i64,
    /// Its number of jobs.
    pub count: u32,
}

/// A run, which this process holds until it is released.
#[napi]
pub struct Run {
    engine: Engine,
    id: RunId,
    name: String,
    description: String,
    kind: String,
    queue: String,
    options: BatchOptions,
    /// The submitted part.
    progress: Mutex<RunProgress>,
    /// The part of the items that were compared with it.
    compared: std::sync::Mutex<RunProgress>,
    lock: std::sync::Mutex<Option<RunLock>>,
}

impl Run {
    /// Begins a run or finds it. Fails if another process has it, or if another run has its name.
    pub async fn begin(engine: Engine, plan: RunPlan) -> Result<Run> {
        let name = plan.name;
        let options: JobOptions = read_request(plan.options.as_bytes()).map_err(store_error)?;
        let options = options.check(engine.store().now()).map_err(refusal)?;
        let place = (!is_postgres(&plan.store)).then(|| plan.store.clone());
        let lock = RunLock::try_take(&plan.store, place.as_deref(), &name).await?;
        let lock = lock.ok_or_else(|| {
            store_error(format!(
                "the map `{name}` runs in another process: wait for it, or choose another name"
            ))
        })?;
        let store = engine.store();
        let run = match store.run(&name).await.map_err(store_error)? {
            Some(run) if run.description != plan.description => {
                return Err(store_error(format!(
                    "the name `{name}` belongs to another run ({}): choose another name, or call `app.forget`",
                    run.description
                )));
            }
            Some(run) => run,
            None => {
                let new = NewRun {
                    name: name.clone(),
                    description: plan.description.clone(),
                };
                store.create_run(new).await.map_err(store_error)?
            }
        };
        Ok(Run {
            id: run.id,
            name,
            description: plan.description,
            kind: plan.kind,
            queue: plan.queue,
            options,
            progress: Mutex::new(run.progress),
            compared: std::sync::Mutex::default(),
            lock: std::sync::Mutex::new(Some(lock)),
            engine,
        })
    }
}

#[napi]
impl Run {
    /// The number of jobs that were submitted so far.
    #[napi]
    pub async fn jobs(&self) -> f64 {
        self.progress.lock().await.jobs as f64
    }

    /// Notes further items that were submitted before, a JSON array, to compare them.
    #[napi]
    pub fn compare(&self, items: String) -> Result<()> {
        let mut compared = self
            .compared
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for payloads in pack(&items)? {
            *compared = compared.after_lines(&payloads);
        }
        Ok(())
    }

    /// Whether the compared items are those that were submitted.
    #[napi]
    pub async fn is_same(&self) -> bool {
        let submitted = *self.progress.lock().await;
        let compared = self
            .compared
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        (compared.jobs, compared.bytes, compared.crc32) == (submitted.jobs, submitted.bytes, submitted.crc32)
    }

    /// Lets the dead, cancelled and expired jobs be claimed again; how many there are.
    #[napi]
    pub async fn retry_failed(&self) -> Result<f64> {
        let failed = JobFilter {
            run: Some(self.id),
            states: JobState::ALL
                .into_iter()
                .filter(|state| state.is_final() && *state != JobState::Completed)
                .collect(),
            ..JobFilter::default()
        };
        let changed = self.engine.change(Selection::Filter(failed), Change::Retry).await;
        Ok(changed.map_err(store_error)?.changed as f64)
    }

    /// The batches of the run after this one, at most so many.
    #[napi]
    pub async fn batches(&self, after: Option<i64>, limit: u32) -> Result<Vec<RunBatch>> {
        let rows = self
            .engine
            .store()
            .run_batches(self.id, after.map(BatchId), limit)
            .await;
        let rows = rows.map_err(store_error)?.into_iter();
        Ok(rows
            .map(|row| RunBatch {
                batch: row.batch.0,
                count: row.count,
            })
            .collect())
    }

    /// Submits further items, a JSON array, all or none.
    #[napi]
    pub async fn feed(&self, items: String) -> Result<Vec<RunBatch>> {
        let mut progress = self.progress.lock().await;
        let mut after = *progress;
        let (mut batches, mut counts) = (Vec::new(), Vec::new());
        for payloads in pack(&items)? {
            after = after.after_lines(&payloads);
            let end = end_reason(&payloads);
            counts.push(payloads.count());
            let batch = NewBatch {
                queue: self.queue.clone(),
                options: self.options.clone(),
                ..NewBatch::new(self.kind.as_str(), payloads)
            };
            batches.push((batch, end));
        }
        let advance = RunAdvance {
            run: self.id,
            progress: after,
            state: RunState::Submitting,
        };
        let ids = self
            .engine
            .submit_step(batches, Some(advance))
            .await
            .map_err(store_error)?;
        *progress = after;
        let ids = ids.into_iter().map(|id| id.0);
        Ok(ids
            .zip(counts)
            .map(|(batch, count)| RunBatch { batch, count })
            .collect())
    }

    /// Notes that all jobs of the run have ended and its results were taken.
    #[napi]
    pub async fn finish(&self) -> Result<()> {
        let new = NewRun {
            name: self.name.clone(),
            description: self.description.clone(),
        };
        let finished = self
            .engine
            .store()
            .update_run(self.id, new, RunState::Finished)
            .await;
        finished.map_err(store_error)
    }

    /// Deletes the run with its jobs and results.
    #[napi]
    pub async fn delete(&self) -> Result<()> {
        self.engine.store().delete_run(self.id).await.map_err(store_error)
    }

    /// Lets other processes have the run.
    #[napi]
    pub fn release(&self) {
        drop(
            self.lock
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .take(),
        );
    }
}

/// Cuts a JSON array into batches.
fn pack(items: &str) -> Result<Vec<PackedArray>> {
    let items: Vec<&RawValue> = serde_json::from_str(items).map_err(store_error)?;
    PackedCutter::cut_values(BatchLimits::default(), items).map_err(store_error)
}
