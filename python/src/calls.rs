//! The calls of an executor: submitted in the background, in the order in which they came.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use gristmill_engine::Engine;
use gristmill_model::{BatchLimits, NewBatch, PackedArray, PackedCutter};
use gristmill_operations::limits::SUBMIT_BYTES_TARGET;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tokio::sync::Notify;

use crate::limits::{CALLS_BYTES_MAX, QUIET, QUIET_MAX, SIGNALS_EVERY};
use crate::news::News;
use crate::outcomes::Piece;
use crate::owned::Owned;
use crate::payload::Encoder;
use crate::waiting::runtime;

/// Submits calls. Those that come while a submit is in progress go together into the next one.
#[pyclass(frozen, module = "gristmill._native")]
pub struct Calls {
    shared: Owned<Arc<Shared>>,
}

struct Shared {
    engine: Engine,
    news: Arc<News>,
    template: NewBatch,
    gathered: Mutex<Gathered>,
    came: Notify,
    /// Some were submitted.
    submitted: Condvar,
}

/// The calls that are not submitted yet, and the Python objects that stand for them.
struct Gathered {
    cutter: PackedCutter,
    full: VecDeque<PackedArray>,
    futures: VecDeque<Py<PyAny>>,
    /// Bytes of payloads, also of the submit in progress.
    bytes: usize,
    is_ended: bool,
}

impl Gathered {
    /// Takes the calls of the next submit.
    fn portion(&mut self) -> Vec<(PackedArray, Vec<Py<PyAny>>)> {
        let mut portion = Vec::new();
        let mut bytes = 0;
        while bytes < SUBMIT_BYTES_TARGET
            && let Some(payloads) = self.full.pop_front().or_else(|| self.cutter.rest())
        {
            bytes += payloads.as_str().len();
            let count = payloads.count() as usize;
            assert!(count <= self.futures.len(), "a future for each call");
            portion.push((payloads, self.futures.drain(..count).collect()));
        }
        portion
    }
}

impl Calls {
    /// Begins to submit calls like `template`, and to tell of them by `news`.
    pub fn start(engine: Engine, news: Arc<News>, template: NewBatch) -> PyResult<Calls> {
        let shared = Arc::new(Shared {
            engine,
            news,
            template,
            gathered: Mutex::new(Gathered {
                cutter: PackedCutter::new(BatchLimits::default()),
                full: VecDeque::new(),
                futures: VecDeque::new(),
                bytes: 0,
                is_ended: false,
            }),
            came: Notify::new(),
            submitted: Condvar::new(),
        });
        runtime()?.spawn(shared.clone().submit_all());
        Ok(Calls {
            shared: Owned::new(shared),
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.lock().is_ended = true;
        self.came.notify_one();
    }

    /// Submits what comes, until the calls have ended. Where nothing is heard for a while, it says so, because rarer ends, such
    /// as a cancel by another process, are only in the store.
    async fn submit_all(self: Arc<Self>) {
        let (mut quiet, mut heard) = (QUIET, self.news.count());
        loop {
            let (portion, is_ended) = {
                let mut gathered = self.lock();
                (gathered.portion(), gathered.is_ended)
            };
            if !portion.is_empty() {
                self.submit(portion).await;
            } else if is_ended {
                return;
            } else if tokio::time::timeout(quiet, self.came.notified()).await.is_err() {
                let count = self.news.count();
                quiet = if count == heard {
                    self.news.look();
                    (quiet * 2).min(QUIET_MAX)
                } else {
                    QUIET
                };
                heard = self.news.count();
            }
        }
    }

    async fn submit(&self, portion: Vec<(PackedArray, Vec<Py<PyAny>>)>) {
        let (payloads, futures): (Vec<PackedArray>, Vec<Vec<Py<PyAny>>>) = portion.into_iter().unzip();
        let bytes: usize = payloads.iter().map(|payloads| payloads.as_str().len()).sum();
        let batches = payloads.into_iter().map(|payloads| NewBatch {
            payloads,
            ..self.template.clone()
        });
        self.news
            .push(match self.engine.submit_batches(batches.collect()).await {
                Ok(ids) => Piece::Called(ids.into_iter().zip(futures).collect()),
                Err(error) => Piece::Refused(futures.into_iter().flatten().collect(), error.to_string()),
            });
        self.lock().bytes -= bytes;
        self.submitted.notify_all();
    }
}

#[pymethods]
impl Calls {
    /// Adds a call, for which `future` stands in the news. Waits while too many bytes are not submitted.
    fn push(
        &self,
        py: Python<'_>,
        future: Py<PyAny>,
        payload: Bound<'_, PyAny>,
        to_plain: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let shared = self.shared.get()?;
        // Before the lock, because it may run Python code.
        let payload = Encoder { to_plain: &to_plain }.packed(&payload)?;
        {
            let mut gathered = shared.lock();
            if gathered.is_ended {
                return Err(PyRuntimeError::new_err("the calls have ended"));
            }
            for item in payload.items() {
                let full = gathered.cutter.push(item);
                let full = full.map_err(|error| PyValueError::new_err(error.to_string()))?;
                gathered.full.extend(full);
            }
            gathered.futures.push_back(future);
            gathered.bytes += payload.as_str().len();
        }
        shared.came.notify_one();
        loop {
            let has_room = py.detach(|| {
                let gathered = shared.lock();
                if gathered.bytes <= CALLS_BYTES_MAX {
                    return true;
                }
                let waited = shared.submitted.wait_timeout(gathered, SIGNALS_EVERY);
                waited.unwrap_or_else(PoisonError::into_inner).0.bytes <= CALLS_BYTES_MAX
            });
            if has_room {
                return Ok(());
            }
            py.check_signals()?;
        }
    }

    /// Takes back the calls of which no submit has begun.
    fn withdraw(&self) -> PyResult<Vec<Py<PyAny>>> {
        let mut gathered = self.shared.get()?.lock();
        let rest = gathered.cutter.rest();
        let withdrawn = gathered.full.drain(..).chain(rest);
        let bytes: usize = withdrawn.map(|payloads| payloads.as_str().len()).sum();
        gathered.bytes -= bytes;
        Ok(gathered.futures.drain(..).collect())
    }

    /// Says that the store has to be asked for ends that nobody tells of, such as those of a cancel.
    fn look(&self) -> PyResult<()> {
        self.shared.get()?.news.look();
        Ok(())
    }

    /// Takes no more calls. Those that have come are submitted all the same.
    fn end(&self) -> PyResult<()> {
        self.shared.get()?.end();
        Ok(())
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        // A fork leaves them to the process that they belong to.
        if let Ok(shared) = self.shared.get() {
            shared.end();
        }
    }
}
