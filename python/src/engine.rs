//! The engine: submitting, waiting for results, runs, workers.

use std::sync::Arc;

use gristmill_engine::{Engine as Inner, EngineError, EngineSettings, EventCursor, is_postgres, open_store};
use gristmill_model::limits::{KEPT_EVENTS_MAX, PAGE_ROWS_MAX};
use gristmill_model::{
    BatchId, BatchLimits, BatchOptions, Clock, JobId, KeyedBatch, ManualClock, NewBatch, OnFailure,
    PackedBuilder, PackedCutter, RunId, Tag, Timestamp,
};
use gristmill_operations::local::carry_out;
use gristmill_operations::read::read_request;
use gristmill_operations::results::{job_end, no_such_job};
use gristmill_operations::{JobOptions, Refused, UniqueOptions, check_after, check_names};
use gristmill_store::{
    Change, FlowEvent, FlowEventReceipt, JobDetails, JobFilter, NewRun, Page, RunState, Selection, Store,
    StoreError,
};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore, Synchronous};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::calls::Calls;
use crate::events::Events;
use crate::feeder::{Feeder, pack};
use crate::news::News;
use crate::outcomes::{Ended, ended, pieces};
use crate::owned::Owned;
use crate::payload::Encoder;
use crate::portions::Portions;
use crate::printed::Printed;
use crate::waiting::{OpenCall, runtime, wait};
use crate::worker::{KindSpec, Plan, Until, Worker};
use crate::{refusal, store_error};

/// What the jobs of one submit have in common.
#[derive(FromPyObject)]
pub struct Common {
    #[pyo3(item)]
    kind: String,
    #[pyo3(item)]
    queue: String,
    /// The batch's options as JSON.
    #[pyo3(item)]
    options: String,
    #[pyo3(item)]
    delay_ms: Option<u64>,
    #[pyo3(item)]
    expires_ms: Option<i64>,
    #[pyo3(item)]
    tags: Vec<(String, String)>,
    /// Jobs or batches that have to end before, such as `42:7`.
    #[pyo3(item)]
    after: Vec<String>,
}

impl Common {
    /// A batch without jobs, for a submit at this moment.
    pub fn read(self, now: Timestamp) -> PyResult<NewBatch> {
        self.check(now).map_err(refusal)
    }

    fn check(self, now: Timestamp) -> Result<NewBatch, Refused> {
        check_names(&self.kind, &self.queue)?;
        let mut options = read_options(&self.options)?;
        options.delay_ms = self.delay_ms;
        options.expires_at = self.expires_ms.map(|expires_ms| now.plus_ms(expires_ms).0);
        Ok(NewBatch {
            queue: self.queue,
            options: options.check(now)?,
            tags: self
                .tags
                .into_iter()
                .map(|(name, value)| Tag::all(name, value))
                .collect(),
            after: check_after(&self.after, OnFailure::default())?,
            ..NewBatch::new(self.kind, PackedBuilder::new().finish())
        })
    }
}

fn read_options(options: &str) -> Result<JobOptions, Refused> {
    read_request(options.as_bytes())
        .map_err(|error| Refused::invalid(format!("invalid options: {error}"), "see docs/python.md"))
}

fn batch_options(options: &str, now: Timestamp) -> Result<BatchOptions, Refused> {
    read_options(options)?.check(now)
}

/// A store with its operations.
#[pyclass(frozen, module = "gristmill._native")]
pub struct Engine {
    inner: Owned<Inner>,
    /// The clock of a test.
    clock: Option<Arc<ManualClock>>,
}

impl Engine {
    fn new(inner: Inner, clock: Option<Arc<ManualClock>>) -> Engine {
        Engine {
            inner: Owned::new(inner),
            clock,
        }
    }

    fn store(&self) -> PyResult<Arc<dyn Store>> {
        Ok(self.inner.get()?.store().clone())
    }
}

#[pymethods]
impl Engine {
    /// Opens the store at a path or a PostgreSQL URL. A store in a file that is not durable survives the end of the process
    /// but not a loss of power.
    #[staticmethod]
    fn open(py: Python<'_>, place: String, durable: bool) -> PyResult<Engine> {
        let opened = wait(py, async move {
            let store: Arc<dyn Store> = if durable || is_postgres(&place) {
                open_store(&place).await?
            } else {
                let options = SqliteOptions {
                    synchronous: Synchronous::Normal,
                    ..SqliteOptions::default()
                };
                Arc::new(SqliteStore::open(&place, options)?)
            };
            Inner::new(store, EngineSettings::default()).await
        })?;
        Ok(Engine::new(opened.map_err(store_error)?, None))
    }

    /// Opens a store in a file for a test: its clock shows `now_ms` until `advance` moves it, and nothing is done in the
    /// background.
    #[staticmethod]
    fn open_for_tests(py: Python<'_>, place: String, now_ms: i64) -> PyResult<Engine> {
        let clock = Arc::new(ManualClock::new(Timestamp(now_ms)));
        let of_store: Arc<dyn Clock> = clock.clone();
        let opened = wait(py, async move {
            let options = SqliteOptions {
                clock: of_store.clone(),
                synchronous: Synchronous::Normal,
                ..SqliteOptions::default()
            };
            let settings = EngineSettings {
                clock: of_store,
                housekeeping: false,
                ..EngineSettings::default()
            };
            let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&place, options)?);
            Inner::new(store, settings).await
        })?;
        Ok(Engine::new(opened.map_err(store_error)?, Some(clock)))
    }

    /// Moves the clock of a test. Schedules that are due by then submit their jobs, and jobs that no worker started in time
    /// expire.
    fn advance(&self, py: Python<'_>, by_ms: i64) -> PyResult<()> {
        let engine = self.inner.get()?.clone();
        let Some(clock) = &self.clock else {
            return Err(PyValueError::new_err(
                "this store has the machine's clock: open it for tests",
            ));
        };
        clock.advance_ms(by_ms);
        wait(py, async move {
            engine.fire_schedules().await?;
            engine.store().expire().await?;
            Ok::<_, EngineError>(())
        })?
        .map_err(store_error)
    }

    /// Closes the store. Workers must have been stopped.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let engine = self.inner.get()?.clone();
        wait(py, async move { engine.close().await })?.map_err(store_error)
    }

    /// Submits one job.
    fn submit_one(
        &self,
        py: Python<'_>,
        common: Common,
        payload: Bound<'_, PyAny>,
        to_plain: Bound<'_, PyAny>,
    ) -> PyResult<(i64, u32)> {
        let engine = self.inner.get()?.clone();
        let job = NewBatch {
            payloads: Encoder { to_plain: &to_plain }.packed(&payload)?,
            ..common.read(engine.store().now())?
        };
        let id = wait(py, async move { engine.submit_one(job).await })?.map_err(store_error)?;
        Ok((id.batch.0, id.position))
    }

    /// Submits jobs with deduplication keys, whose payloads are JSON, in one transaction. Returns the job that stands for each.
    fn submit_keyed(
        &self,
        py: Python<'_>,
        common: Common,
        payloads: Vec<String>,
        keys: Vec<String>,
        unique: &str,
    ) -> PyResult<Vec<(i64, u32)>> {
        let engine = self.inner.get()?.clone();
        let unique: Result<UniqueOptions, String> = read_request(unique.as_bytes());
        let unique = unique
            .map_err(|error| PyValueError::new_err(format!("invalid deduplication: {error}")))?
            .check()
            .map_err(refusal)?;
        if keys.len() != payloads.len() {
            let error = format!("{} keys for {} jobs", keys.len(), payloads.len());
            return Err(PyValueError::new_err(error));
        }
        let template = common.read(engine.store().now())?;
        let mut cutter = PackedCutter::new(BatchLimits::default());
        let mut cut = Vec::new();
        for payload in &payloads {
            cut.extend(cutter.push(payload).map_err(store_error)?);
        }
        cut.extend(cutter.rest());
        let mut left = keys.iter();
        let batches = cut.into_iter().map(|payloads| {
            let batch = NewBatch {
                payloads,
                ..template.clone()
            };
            KeyedBatch::with_keys(batch, &mut left, unique)
        });
        let batches: Result<Vec<_>, _> = batches.collect();
        let batches = batches.map_err(store_error)?;
        assert!(left.next().is_none(), "each job has the key of its place");
        let submitted = wait(py, async move { engine.submit_keyed(batches).await })?.map_err(store_error)?;
        let jobs = submitted.iter().flat_map(|submitted| &submitted.jobs);
        let jobs: Vec<(i64, u32)> = jobs.map(|job| (job.batch.0, job.position)).collect();
        assert_eq!(jobs.len(), payloads.len(), "each payload has a job");
        Ok(jobs)
    }

    /// Submits the payloads of an iterable. Adds the batches with their numbers of jobs to `stored` as they are stored, in the
    /// order of the payloads, also where it fails then.
    fn submit_many(
        &self,
        py: Python<'_>,
        common: Common,
        payloads: Bound<'_, PyAny>,
        to_plain: Bound<'_, PyAny>,
        stored: Bound<'_, PyList>,
    ) -> PyResult<()> {
        let engine = self.inner.get()?.clone();
        // The iterable may fork: the store stays open for this process.
        let _open = OpenCall::begin();
        let template = common.read(engine.store().now())?;
        let mut portions = Portions::new(engine, stored);
        let submitted = portions.submit(py, &template, &payloads, &Encoder { to_plain: &to_plain });
        let settled = portions.settle(py);
        submitted.and(settled)
    }

    /// Waits for the end of a job: its state, value and error, or None after the timeout (seconds).
    #[pyo3(signature = (batch, position, timeout=None))]
    fn wait_job(
        &self,
        py: Python<'_>,
        batch: i64,
        position: u32,
        timeout: Option<f64>,
    ) -> PyResult<Option<Ended>> {
        let (store, job) = (self.store()?, job_id(batch, position));
        let ending = end_of(store, job);
        let timeout =
            timeout.and_then(|timeout| std::time::Duration::try_from_secs_f64(timeout.max(0.0)).ok());
        let details = wait(py, async move {
            match timeout {
                Some(timeout) => tokio::time::timeout(timeout, ending).await.ok(),
                None => Some(ending.await),
            }
        })?;
        Ok(details.transpose().map_err(store_error)?.map(ended))
    }

    /// Calls `told(state, value, error)`, or `told(None, message, None)` where the store fails, from another thread when the
    /// job has ended.
    fn watch_job(&self, batch: i64, position: u32, told: Py<PyAny>) -> PyResult<()> {
        let (store, job) = (self.store()?, job_id(batch, position));
        let ending = end_of(store, job);
        let open = OpenCall::begin();
        runtime()?.spawn(async move {
            let ending = ending.await;
            drop(open);
            // What is told may call the engine in turn, which would block a thread of the runtime.
            tokio::task::spawn_blocking(move || tell(&told, ending));
        });
        Ok(())
    }

    /// The state of a job, such as "running"; None where there is no such job.
    fn job_state(&self, py: Python<'_>, batch: i64, position: u32) -> PyResult<Option<&'static str>> {
        let store = self.store()?;
        let details = wait(py, async move { store.job(job_id(batch, position)).await })?;
        Ok(details
            .map_err(store_error)?
            .map(|details| details.row.state.name()))
    }

    /// What a job printed in its last attempt.
    fn job_log(&self, py: Python<'_>, batch: i64, position: u32) -> PyResult<Option<String>> {
        let store = self.store()?;
        let details = wait(py, async move { store.job(job_id(batch, position)).await })?;
        Ok(details
            .map_err(store_error)?
            .and_then(|mut details| match details.log {
                Some(log) => Some(log),
                None => details.failures.pop().and_then(|failure| failure.log),
            }))
    }

    /// The numbers of jobs of a queue (of all queues, for None) by state.
    #[pyo3(signature = (queue=None))]
    fn counts(
        &self,
        py: Python<'_>,
        queue: Option<String>,
    ) -> PyResult<std::collections::BTreeMap<&'static str, u64>> {
        let store = self.store()?;
        let filter = JobFilter {
            queue,
            ..JobFilter::default()
        };
        let mut counts = wait(py, async move { store.counts(&filter).await })?.map_err(store_error)?;
        let states = gristmill_model::JobState::ALL.into_iter();
        Ok(states
            .map(|state| (state.name(), *counts.get_mut(state)))
            .collect())
    }

    /// Begins to clean up after cancelled flows. Returns how many instances it has begun.
    fn begin_cleanups(&self, py: Python<'_>) -> PyResult<u64> {
        let engine = self.inner.get()?.clone();
        wait(py, async move { engine.begin_cleanups().await })?.map_err(store_error)
    }

    /// The kinds of which jobs wait to be claimed.
    fn waiting_kinds(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let store = self.store()?;
        let stats = wait(py, async move { store.stats().await })?.map_err(store_error)?;
        let waiting = stats.kinds.iter().filter(|kind| kind.counts.waiting > 0);
        let mut kinds: Vec<String> = waiting.map(|kind| kind.kind.to_string()).collect();
        kinds.dedup();
        Ok(kinds)
    }

    /// The payloads of the stored jobs of a kind, as JSON, by id ascending: at most a page of the store's.
    fn payloads(&self, py: Python<'_>, kind: String) -> PyResult<Vec<String>> {
        let store = self.store()?;
        let read = async move {
            let filter = JobFilter {
                kind: Some(kind),
                ..JobFilter::default()
            };
            let page = Page {
                after: None,
                limit: PAGE_ROWS_MAX,
            };
            let mut payloads = Vec::new();
            for row in store.jobs(&filter, page).await? {
                payloads.extend(
                    store
                        .job(row.job)
                        .await?
                        .map(|details| details.payload.get().to_owned()),
                );
            }
            Ok::<_, StoreError>(payloads)
        };
        wait(py, read)?.map_err(store_error)
    }

    /// Cancels jobs that have not ended; how many that were.
    fn cancel_jobs(&self, py: Python<'_>, jobs: Vec<(i64, u32)>) -> PyResult<u64> {
        let engine = self.inner.get()?.clone();
        let jobs = jobs.into_iter().map(|(batch, position)| job_id(batch, position));
        let selection = Selection::Jobs(jobs.collect());
        let changed = wait(py, async move { engine.change(selection, Change::Cancel).await })?;
        Ok(changed.map_err(store_error)?.changed)
    }

    /// Cancels all jobs of a queue that have not ended.
    fn cancel_queue(&self, py: Python<'_>, queue: String) -> PyResult<u64> {
        let engine = self.inner.get()?.clone();
        let filter = JobFilter {
            queue: Some(queue),
            ..JobFilter::default()
        };
        let changed = wait(py, async move {
            engine.change(Selection::Filter(filter), Change::Cancel).await
        })?;
        Ok(changed.map_err(store_error)?.changed)
    }

    /// Sends an event to a flow; whether the flow had not ended.
    fn send_event(
        &self,
        py: Python<'_>,
        batch: i64,
        position: u32,
        name: String,
        value: &str,
    ) -> PyResult<bool> {
        let engine = self.inner.get()?.clone();
        let job = job_id(batch, position);
        let event = FlowEvent::new(job, name, value).map_err(store_error)?;
        let receipts =
            wait(py, async move { engine.send_events(vec![event]).await })?.map_err(store_error)?;
        match receipts.first() {
            Some(FlowEventReceipt::Unknown) => Err(store_error(no_such_job(job))),
            Some(FlowEventReceipt::Full) => Err(store_error(format!(
                "flow {job} has {KEPT_EVENTS_MAX} events that it has not awaited (KEPT_EVENTS_MAX): send more once it has"
            ))),
            receipt => Ok(receipt != Some(&FlowEventReceipt::Ended)),
        }
    }

    /// The ended jobs of a batch, as pieces.
    fn outcomes<'py>(&self, py: Python<'py>, batch: i64) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let store = self.store()?;
        let outcomes = wait(py, async move { store.outcomes(BatchId(batch)).await })?.map_err(store_error)?;
        let pieces = outcomes.as_ref().map(pieces).unwrap_or_default().into_iter();
        pieces.map(|piece| piece.into_python(py)).collect()
    }

    // --- operations and events ---

    /// Carries out the operation of this name: its answer as JSON. `subject` is the job, schedule or tag that it is about, and
    /// `request` has its parameters as JSON.
    fn carry_out(
        &self,
        py: Python<'_>,
        operation: String,
        subject: String,
        request: String,
    ) -> PyResult<String> {
        let engine = self.inner.get()?.clone();
        let answer = wait(py, async move {
            carry_out(&engine, &operation, &subject, &request).await
        })?;
        answer.map_err(refusal)
    }

    /// Listens to events: those after a cursor, or those from now on.
    #[pyo3(signature = (after=None))]
    fn events(&self, py: Python<'_>, after: Option<String>) -> PyResult<Events> {
        let engine = self.inner.get()?.clone();
        let after: Option<EventCursor> = after.map(|text| text.parse()).transpose().map_err(
            |error: gristmill_store::event::ParseEventCursorError| PyValueError::new_err(error.to_string()),
        )?;
        let events = wait(py, async move { engine.events(after).await })?;
        Ok(Events::new(events.map_err(store_error)?))
    }

    // --- runs ---

    /// The names of all runs, and their descriptions.
    fn runs(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let store = self.store()?;
        let runs = wait(py, async move { store.runs().await })?.map_err(store_error)?;
        Ok(runs.into_iter().map(|run| (run.name, run.description)).collect())
    }

    /// Begins a run or finds it: its id, its description and the number of its submitted jobs.
    fn begin_run(&self, py: Python<'_>, name: String, description: String) -> PyResult<(i64, String, u64)> {
        let store = self.store()?;
        let run = wait(py, async move {
            match store.run(&name).await? {
                Some(run) => Ok(run),
                None => store.create_run(NewRun { name, description }).await,
            }
        })?
        .map_err(store_error)?;
        Ok((run.id.0, run.description, run.progress.jobs))
    }

    /// Lets the dead, cancelled and expired jobs of a run be claimed again; how many there are.
    fn retry_run(&self, py: Python<'_>, run: i64) -> PyResult<u64> {
        let engine = self.inner.get()?.clone();
        let states = gristmill_model::JobState::ALL.into_iter();
        let failed = JobFilter {
            run: Some(RunId(run)),
            states: states
                .filter(|state| state.is_final() && *state != gristmill_model::JobState::Completed)
                .collect(),
            ..JobFilter::default()
        };
        let changed = wait(py, async move {
            engine.change(Selection::Filter(failed), Change::Retry).await
        })?;
        Ok(changed.map_err(store_error)?.changed)
    }

    /// Notes that all jobs of a run have ended and its results were taken.
    fn finish_run(&self, py: Python<'_>, name: String) -> PyResult<()> {
        let store = self.store()?;
        wait(py, async move {
            let Some(run) = store.run(&name).await? else {
                return Ok(());
            };
            let new = NewRun {
                name,
                description: run.description,
            };
            store.update_run(run.id, new, RunState::Finished).await
        })?
        .map_err(store_error)
    }

    /// Deletes a run with its jobs and results; whether there was one.
    fn delete_run(&self, py: Python<'_>, name: String) -> PyResult<bool> {
        let store = self.store()?;
        wait(py, async move {
            match store.run(&name).await? {
                Some(run) => store.delete_run(run.id).await.map(|()| true),
                None => Ok(false),
            }
        })?
        .map_err(store_error)
    }

    /// The batches of a run with their numbers of jobs, after a batch, at most so many.
    fn run_batches(
        &self,
        py: Python<'_>,
        run: i64,
        after: Option<i64>,
        limit: u32,
    ) -> PyResult<Vec<(i64, u32)>> {
        let store = self.store()?;
        let after = after.map(BatchId);
        let rows = wait(
            py,
            async move { store.run_batches(RunId(run), after, limit).await },
        )?;
        let rows = rows.map_err(store_error)?.into_iter();
        Ok(rows.map(|row| (row.batch.0, row.count)).collect())
    }

    /// The CRC-32 of the input of a run so far, and its bytes.
    fn run_digest(&self, py: Python<'_>, name: String) -> PyResult<Option<(u32, u64)>> {
        let store = self.store()?;
        let run = wait(py, async move { store.run(&name).await })?.map_err(store_error)?;
        Ok(run.map(|run| (run.progress.crc32, run.progress.bytes)))
    }

    /// Submits the items of a map for this worker, of a run from where that stands.
    fn feeder(
        &self,
        py: Python<'_>,
        worker: &Worker,
        kind: String,
        queue: String,
        options: &str,
        run: String,
    ) -> PyResult<Feeder> {
        let engine = self.inner.get()?.clone();
        let options = batch_options(options, engine.store().now()).map_err(refusal)?;
        let runs = engine.store().clone();
        let run = wait(py, async move { runs.run(&run).await })?.map_err(store_error)?;
        let run = run.ok_or_else(|| store_error("the run was deleted while it began"))?;
        let feeder = gristmill_operations::feeder::Feeder {
            engine,
            run: run.id,
            progress: run.progress,
            kind,
            queue,
            options,
        };
        Feeder::start(feeder, worker.news()?)
    }

    /// Makes the submitter of an executor's calls. This worker tells of their ends.
    fn calls(&self, worker: &Worker, common: Common) -> PyResult<Calls> {
        let engine = self.inner.get()?.clone();
        let template = common.read(engine.store().now())?;
        Calls::start(engine, worker.news()?, template)
    }

    // --- workers ---

    /// Starts a worker in the background. Its outcomes are taken, or `told` is called with them.
    #[pyo3(signature = (kinds, queues, runners, name, until, is_followed=false, printed=None, told=None))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn start_worker(
        &self,
        py: Python<'_>,
        kinds: Vec<KindSpec>,
        queues: Vec<String>,
        runners: usize,
        name: String,
        until: Until,
        is_followed: bool,
        printed: Option<&Printed>,
        told: Option<Py<PyAny>>,
    ) -> PyResult<Worker> {
        let plan = Plan {
            kinds,
            queues,
            runners,
            name,
            until,
            news: is_followed.then(|| News::new(told)),
            prints: printed.map(Printed::listener),
        };
        Worker::start(py, self.inner.get()?.clone(), plan)
    }
}

/// The CRC-32 and the bytes of payloads, continued: how a run knows its input again.
#[pyfunction]
pub fn digest(
    before: (u32, u64),
    items: Vec<Bound<'_, PyAny>>,
    to_plain: Bound<'_, PyAny>,
) -> PyResult<(u32, u64)> {
    let mut progress = gristmill_store::run::RunProgress {
        crc32: before.0,
        bytes: before.1,
        ..Default::default()
    };
    for payloads in pack(&items, &to_plain, None)? {
        progress = progress.after_lines(&payloads);
    }
    Ok((progress.crc32, progress.bytes))
}

/// Calls `told` with the end of a job, unless the interpreter has ended.
async fn end_of(store: Arc<dyn Store>, job: JobId) -> Result<JobDetails, StoreError> {
    let details = job_end(&*store, job).await?;
    details.ok_or_else(|| StoreError::InvalidInput(no_such_job(job)))
}

fn tell(told: &Py<PyAny>, ending: Result<JobDetails, StoreError>) {
    crate::callbacks::call(|py| {
        let called = match ending {
            Ok(details) => told.call1(py, ended(details)),
            Err(error) => told.call1(py, (py.None(), error.to_string(), py.None())),
        };
        if let Err(raised) = called {
            raised.write_unraisable(py, Some(told.bind(py)));
        }
    });
}

fn job_id(batch: i64, position: u32) -> JobId {
    JobId {
        batch: BatchId(batch),
        position,
    }
}
