//! Asynchronous work for blocking calls: the runtime of this process, and waits that release the interpreter's lock.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use gristmill_runtime::ForkServers;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::limits::{FORKS_DEEP_MAX, SIGNALS_EVERY};

struct OfProcess {
    process_id: u32,
    runtime: Runtime,
    fork_servers: Arc<ForkServers>,
}

/// The runtimes of this process and of the processes it was forked from, eldest first. They are never dropped, because
/// a fork has none of its parent's threads.
static RUNTIMES: [OnceLock<OfProcess>; FORKS_DEEP_MAX] = [const { OnceLock::new() }; FORKS_DEEP_MAX];

/// The runtime of this process.
pub fn runtime() -> PyResult<&'static Runtime> {
    of_process().map(|of_process| &of_process.runtime)
}

/// The fork servers of this process, which its workers use one after the other.
pub fn fork_servers() -> PyResult<Arc<ForkServers>> {
    of_process().map(|of_process| of_process.fork_servers.clone())
}

fn of_process() -> PyResult<&'static OfProcess> {
    let process_id = std::process::id();
    let is_ours = |of_process: &&OfProcess| of_process.process_id == process_id;
    for place in &RUNTIMES {
        if place.get().is_none() {
            let runtime = Builder::new_multi_thread()
                .thread_name("gristmill")
                .enable_all()
                .build()
                .map_err(|error| {
                    PyRuntimeError::new_err(format!("gristmill cannot start its threads: {error}"))
                })?;
            // If another thread of this process was first, its runtime serves both.
            let _ = place.set(OfProcess {
                process_id,
                runtime,
                fork_servers: Arc::default(),
            });
        }
        if let Some(ours) = place.get().filter(is_ours) {
            return Ok(ours);
        }
    }
    Err(PyRuntimeError::new_err(format!(
        "this process is the fork of a fork, more than {FORKS_DEEP_MAX} deep, and each used gristmill: start a new process"
    )))
}

/// The number of calls and watches that currently use a store.
static OPEN_CALLS: AtomicUsize = AtomicUsize::new(0);

/// A call or a watch that uses a store, until it is dropped.
pub struct OpenCall;

impl OpenCall {
    /// Begins the call.
    pub fn begin() -> OpenCall {
        OPEN_CALLS.fetch_add(1, Ordering::Relaxed);
        OpenCall
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        OPEN_CALLS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The number of calls and watches that currently use a store.
#[pyfunction]
pub fn calls_open() -> usize {
    OPEN_CALLS.load(Ordering::Relaxed)
}

/// Waits for a future and releases the interpreter's lock. A signal whose handler raises, such as Ctrl-C, ends the wait
/// and drops the future.
pub fn wait<T: Send + 'static>(
    py: Python<'_>,
    future: impl Future<Output = T> + Send + 'static,
) -> PyResult<T> {
    let _open = OpenCall::begin();
    let (sender, mut receiver) = mpsc::channel();
    let task = runtime()?.spawn(async move {
        // The receiver is gone if a signal ended the wait.
        let _ = sender.send(future.await);
    });
    loop {
        let receiver = &mut receiver;
        match py.detach(move || receiver.recv_timeout(SIGNALS_EVERY)) {
            Ok(value) => return Ok(value),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(raised) = py.check_signals() {
                    task.abort();
                    return Err(raised);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("a task of gristmill's ended by a panic"));
            }
        }
    }
}

/// The moment at which a wait of `timeout_s` seconds ends; `None` for a wait without a limit.
pub fn deadline(timeout_s: Option<f64>) -> Option<Instant> {
    let timeout = std::time::Duration::try_from_secs_f64(timeout_s?.max(0.0)).ok()?;
    Instant::now().checked_add(timeout)
}
