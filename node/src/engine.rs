//! The engine: operations, waiting for results, workers.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use gristmill_engine::{Engine as Inner, EngineError, EngineSettings, is_postgres, open_store};
use gristmill_model::{ManualClock, Timestamp};
use gristmill_operations::local::carry_out;
use gristmill_operations::read::read_job;
use gristmill_operations::results::{job_end, no_such_job};
use gristmill_store::Store;
use gristmill_store_sqlite::{SqliteOptions, SqliteStore, Synchronous};
use napi::bindgen_prelude::{Either, PromiseRaw, within_runtime_if_available};
use napi::{Env, Error, Result, Status};
use napi_derive::napi;

use crate::events::Events;
use crate::inbox::Wake;
use crate::limits::{OWN_THREAD_BYTES_MAX, WAIT_MS_MAX};
use crate::run::{Run, RunPlan};
use crate::worker::{Plan, Worker};
use crate::{refusal, store_error};

/// A store with its operations.
#[napi]
pub struct Engine {
    inner: Inner,
    /// Whether commits wait for no disk and no server, so that JavaScript's thread may do them.
    commits_at_once: bool,
    /// The clock of a test.
    clock: Option<Arc<ManualClock>>,
}

/// The end of a job.
#[napi(object, object_from_js = false)]
pub struct Ended {
    /// Its state.
    pub state: &'static str,
    /// The JSON of its value, if it completed.
    pub value: Option<String>,
    /// The JSON of its last error, if it ended otherwise.
    pub error: Option<String>,
}

/// Opens the store at a path or a PostgreSQL URL. A store in a file that is not durable survives the end of the process, but
/// not a loss of power. With `now_ms`, a file is opened for a test: its clock shows that time until `advance` moves it, and
/// nothing is done in the background.
#[napi]
pub async fn open_engine(place: String, durable: bool, now_ms: Option<i64>) -> Result<Engine> {
    let commits_at_once = !is_postgres(&place) && (!durable || now_ms.is_some());
    let clock = now_ms.map(|now_ms| Arc::new(ManualClock::new(Timestamp(now_ms))));
    let open = async {
        let mut settings = EngineSettings::default();
        if let Some(clock) = clock.clone() {
            settings.clock = clock;
            settings.housekeeping = false;
        }
        let store: Arc<dyn Store> = if !commits_at_once {
            open_store(&place).await?
        } else {
            let options = SqliteOptions {
                clock: settings.clock.clone(),
                synchronous: Synchronous::Normal,
                ..SqliteOptions::default()
            };
            Arc::new(SqliteStore::open(&place, options)?)
        };
        Inner::new(store, settings).await
    };
    let inner = open.await.map_err(store_error)?;
    Ok(Engine {
        inner,
        commits_at_once,
        clock,
    })
}

#[napi]
impl Engine {
    /// Closes the store. Workers must have been stopped.
    #[napi]
    pub async fn close(&self) -> Result<()> {
        self.inner.close().await.map_err(store_error)
    }

    /// The time of the store's clock. Milliseconds since 1970.
    #[napi]
    pub fn now_ms(&self) -> i64 {
        self.inner.clock().now().0
    }

    /// Moves the clock of a test. Schedules that are due by then submit their jobs, and jobs that no worker started in time
    /// expire.
    #[napi]
    pub async fn advance(&self, by_ms: i64) -> Result<()> {
        let Some(clock) = &self.clock else {
            return Err(store_error(
                "this store has the machine's clock: open it for tests",
            ));
        };
        clock.advance_ms(by_ms);
        let advanced = async {
            self.inner.fire_schedules().await?;
            self.inner.store().expire().await?;
            Ok::<_, EngineError>(())
        };
        advanced.await.map_err(store_error)
    }

    /// Carries out the operation of this name: its answer as JSON. `subject` is the job, schedule or tag that it is about, and
    /// `request` has its parameters as JSON.
    #[napi]
    pub async fn ask(&self, operation: String, subject: String, request: String) -> Result<String> {
        carry_out(&self.inner, &operation, &subject, &request)
            .await
            .map_err(refusal)
    }

    /// Carries out the operation `submit`. Where commits wait for nothing, a short request begins in JavaScript's thread. A lone
    /// caller's commit ends there, so the answer comes at once; otherwise the rest runs in another thread, and the answer is a
    /// promise.
    #[napi(catch_unwind)]
    pub fn submit<'env>(
        &self,
        env: &'env Env,
        request: String,
    ) -> Result<Either<String, PromiseRaw<'env, String>>> {
        let engine = self.inner.clone();
        let begins_here = self.commits_at_once && request.len() <= OWN_THREAD_BYTES_MAX;
        let mut answer =
            Box::pin(async move { carry_out(&engine, "submit", "", &request).await.map_err(refusal) });
        if begins_here {
            // The promise polls the rest again, with its own waker.
            let mut context = Context::from_waker(Waker::noop());
            let begun = within_runtime_if_available(|| answer.as_mut().poll(&mut context));
            if let Poll::Ready(answer) = begun {
                return answer.map(Either::A);
            }
        }
        Ok(Either::B(env.spawn_future(answer)?))
    }

    /// Waits for the end of a job, at most so long and at most [`WAIT_MS_MAX`]. `None` if the job has not ended by then.
    #[napi]
    pub async fn wait_job(&self, job: String, wait_ms: u32) -> Result<Option<Ended>> {
        let job = read_job(&job).map_err(refusal)?;
        let wait = Duration::from_millis(u64::from(wait_ms.min(WAIT_MS_MAX)));
        let ending = job_end(&**self.inner.store(), job);
        let Ok(details) = tokio::time::timeout(wait, ending).await else {
            return Ok(None);
        };
        let details = details.map_err(store_error)?;
        let details = details.ok_or_else(|| Error::new(Status::ObjectExpected, no_such_job(job)))?;
        let error = details.failures.last().filter(|_| details.value.is_none());
        let error = error.map(|failure| serde_json::to_string(&failure.error));
        Ok(Some(Ended {
            state: details.row.state.name(),
            value: details.value.as_ref().map(|value| value.get().to_owned()),
            error: error.transpose().map_err(store_error)?,
        }))
    }

    /// Listens to events: those after a cursor, or those from now on.
    #[napi]
    pub async fn events(&self, after: Option<String>) -> Result<Events> {
        Events::listen(&self.inner, after).await
    }

    /// Begins the run of a map, or finds it.
    #[napi]
    pub async fn begin_run(&self, plan: RunPlan) -> Result<Run> {
        Run::begin(self.inner.clone(), plan).await
    }

    /// Deletes the run with this name, its jobs and results; whether there was one.
    #[napi]
    pub async fn delete_run(&self, name: String) -> Result<bool> {
        let store = self.inner.store();
        let Some(run) = store.run(&name).await.map_err(store_error)? else {
            return Ok(false);
        };
        store.delete_run(run.id).await.map_err(store_error)?;
        Ok(true)
    }

    /// Starts a worker in the background. `wake` is called when the worker has messages to take.
    #[napi]
    pub async fn start_worker(&self, plan: Plan, wake: Wake) -> Result<Worker> {
        Worker::start(&self.inner, plan, wake)
    }
}
