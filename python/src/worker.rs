//! A worker over the warm processes of some kinds.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use gristmill_engine::{Engine, Handler, SourceError, Stopper, WorkerSettings, WorkerSummary};
use gristmill_runtime::limits::START_PATIENCE_MS;
use gristmill_runtime::{
    DetectOptions, ForkServers, PrintListener, ProcessListener, RuntimeOptions, STORE_VARIABLES, Script,
    ScriptHandler,
};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tokio::sync::watch;

use crate::limits::SIGNALS_EVERY;
use crate::news::News;
use crate::outcomes::Piece;
use crate::owned::Owned;
use crate::waiting::{deadline, fork_servers, runtime, wait};
use crate::worker_error;

/// How the jobs of one kind run.
#[derive(FromPyObject)]
pub struct KindSpec {
    #[pyo3(item)]
    kind: String,
    /// The script that its processes import.
    #[pyo3(item)]
    script: String,
    /// The interpreter of the script.
    #[pyo3(item)]
    python: String,
    /// The maximum number of processes.
    #[pyo3(item)]
    processes: usize,
    /// The maximum number of asynchronous jobs at once in a process.
    #[pyo3(item)]
    concurrency: u32,
    /// The maximum number of synchronous jobs at once in a process.
    #[pyo3(item)]
    threads: u32,
}

impl KindSpec {
    /// Starts the first process, which imports the script. A worker that ends by itself does not wait forever for a
    /// process that can start.
    async fn start(
        self,
        until: Until,
        prints: Option<PrintListener>,
        fork_servers: Arc<ForkServers>,
    ) -> Result<(String, Arc<dyn Handler>), String> {
        let options = DetectOptions {
            interpreter: Some(self.python.into()),
            ..DetectOptions::default()
        };
        let script = Script::detect(Path::new(&self.script), &options).map_err(|error| error.to_string())?;
        // The functions of an application use its own database and models.
        let script = script.passing(&STORE_VARIABLES).passing(&[
            "PGPASSWORD",
            "PGPASSFILE",
            "OPENAI_API_KEY",
            "OPENAI_API_KEY_FILE",
        ]);
        let options = RuntimeOptions {
            processes: self.processes,
            concurrency: self.concurrency,
            threads: self.threads,
            start_patience_ms: (until != Until::Stopped).then_some(START_PATIENCE_MS),
            listener: ProcessListener::new(tell),
            prints,
            fork_servers: Some(fork_servers),
            ..RuntimeOptions::default()
        };
        let handler = ScriptHandler::new(script, &options).map_err(|error| error.to_string())?;
        handler
            .check()
            .await
            .map_err(|error| format!("the processes for `{}` cannot start: {error}", self.kind))?;
        Ok((self.kind, Arc::new(handler)))
    }
}

/// Writes news of the processes to standard error. An error of this write has no other place to go.
fn tell(words: &str) {
    let _ = writeln!(std::io::stderr(), "gristmill: {words}");
}

/// When a worker ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Never.
    Stopped,
    /// When nothing can be claimed now.
    Idle,
    /// When nothing can be claimed now or later.
    Empty,
}

impl FromPyObject<'_, '_> for Until {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Until> {
        match object.extract::<String>()?.as_str() {
            "stopped" => Ok(Until::Stopped),
            "idle" => Ok(Until::Idle),
            "empty" => Ok(Until::Empty),
            other => Err(pyo3::exceptions::PyValueError::new_err(format!(
                "until is \"stopped\", \"idle\" or \"empty\", and not {other:?}"
            ))),
        }
    }
}

/// The task of a worker.
pub struct Plan {
    pub kinds: Vec<KindSpec>,
    pub queues: Vec<String>,
    pub runners: usize,
    pub name: String,
    pub until: Until,
    /// The queue of its outcomes, if it is followed.
    pub news: Option<Arc<News>>,
    /// The listener for output of its functions, if it is shown.
    pub prints: Option<PrintListener>,
}

type Ending = Arc<Result<WorkerSummary, SourceError>>;

/// A worker that runs in the background.
#[pyclass(frozen, module = "gristmill._native")]
pub struct Worker {
    running: Owned<Running>,
}

struct Running {
    stopper: Stopper,
    news: Arc<News>,
    ended: watch::Receiver<Option<Ending>>,
}

impl Worker {
    /// Starts a worker once the first process of each kind has imported its script.
    pub fn start(py: Python<'_>, engine: Engine, plan: Plan) -> PyResult<Worker> {
        let observer = plan.news.clone();
        let news = plan.news.unwrap_or_else(|| News::new(None));
        let failed = news.clone();
        let fork_servers = fork_servers()?;
        let started = wait(py, async move {
            let mut handlers = Vec::new();
            for kind in plan.kinds {
                handlers.push(
                    kind.start(plan.until, plan.prints.clone(), fork_servers.clone())
                        .await?,
                );
            }
            let mut worker = engine.worker();
            worker.name(plan.name).settings(WorkerSettings {
                queues: plan.queues.into_iter().map(Into::into).collect(),
                concurrency: plan.runners.max(1),
                until_idle: plan.until == Until::Idle,
                until_empty: plan.until == Until::Empty,
                ..WorkerSettings::default()
            });
            for (kind, handler) in handlers {
                worker.handler(kind, handler);
            }
            if let Some(observer) = observer {
                worker.observer(observer);
            }
            Ok::<_, String>(worker.start())
        })?
        .map_err(worker_error)?;
        let stopper = started.stopper();
        let (sender, ended) = watch::channel(None);
        runtime()?.spawn(async move {
            let ending = Arc::new(started.join().await);
            sender.send_replace(Some(ending.clone()));
            match &*ending {
                Ok(_) => failed.look(),
                Err(error) => failed.push(Piece::Broken(error.to_string())),
            }
        });
        Ok(Worker {
            running: Owned::new(Running { stopper, news, ended }),
        })
    }

    /// The queue of its outcomes, if it is followed.
    pub fn news(&self) -> PyResult<Arc<News>> {
        Ok(self.running.get()?.news.clone())
    }
}

#[pymethods]
impl Worker {
    /// Asks it to stop: it claims no more and finishes the running jobs.
    fn stop(&self) -> PyResult<()> {
        self.running.get()?.stopper.stop();
        Ok(())
    }

    /// Waits for its end. Returns the numbers of completed and of failed attempts, or None after the timeout.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<(u64, u64)>> {
        let mut ended = self.running.get()?.ended.clone();
        let deadline = deadline(timeout).map(Into::into);
        let ending = wait(py, async move {
            let ending = ended.wait_for(Option::is_some);
            let ending = match deadline {
                Some(deadline) => match tokio::time::timeout_at(deadline, ending).await {
                    Ok(ending) => ending,
                    Err(_) => return Ok(None),
                },
                None => ending.await,
            };
            // If there is no sender, the task that joins the worker has panicked.
            ending
                .map(|ending| ending.clone())
                .map_err(|_| "the worker ended by a panic")
        })?;
        match ending.map_err(worker_error)?.as_deref() {
            Some(Ok(summary)) => Ok(Some((summary.completed, summary.failed))),
            Some(Err(error)) => Err(worker_error(error)),
            None => Ok(None),
        }
    }

    /// Takes the outcomes since the last call; waits at most `patience` seconds for the first one.
    fn take<'py>(&self, py: Python<'py>, patience: f64) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let news = self.news()?;
        let deadline = deadline(Some(patience));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left = left.unwrap_or(SIGNALS_EVERY);
            let pieces = py.detach(|| news.take(left.min(SIGNALS_EVERY)));
            if !pieces.is_empty() || left.is_zero() {
                return pieces.into_iter().map(|piece| piece.into_python(py)).collect();
            }
            py.check_signals()?;
        }
    }
}
