//! The calls of an executor: submitted in the background, in the order in which they came.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gristmill_engine::Engine;
use gristmill_model::{BatchLimits, NewBatch, PackedArray, PackedCutter};
use gristmill_operations::limits::SUBMIT_BYTES_TARGET;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tokio::sync::Notify;

use crate::limits::{CALLS_BYTES_MAX, CALLS_LOOK_EVERY, SIGNALS_EVERY};
use crate::news::News;
use crate::outcomes::Piece;
use crate::owned::Owned;
use crate::payload::Encoder;
use crate::waiting::{deadline, runtime};

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
    /// A submit has ended.
    submitted: Condvar,
}

/// The calls that are not submitted yet, and the Python objects that stand for them.
struct Gathered {
    cutter: PackedCutter,
    full: VecDeque<PackedArray>,
    futures: VecDeque<Py<PyAny>>,
    /// Bytes of payloads, also of the submit in progress.
    bytes: usize,
    /// The calls of the submit in progress.
    submitting: usize,
    /// The calls that were refused so far.
    refused: usize,
    is_ended: bool,
}

impl Gathered {
    /// The calls that are not stored yet.
    fn left(&self) -> usize {
        self.futures.len() + self.submitting
    }

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
            self.submitting += count;
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
                submitting: 0,
                refused: 0,
                is_ended: false,
            }),
            came: Notify::new(),
            submitted: Condvar::new(),
        });
        runtime()?.spawn(shared.clone().run());
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

    /// Submits what comes, until the calls have ended. At each deadline it says that the store has to be asked, because rarer
    /// ends, such as a cancel by another process, are only there.
    async fn run(self: Arc<Self>) {
        let mut end = End {
            shared: self.clone(),
            is_orderly: false,
        };
        let looking = async {
            loop {
                tokio::time::sleep(CALLS_LOOK_EVERY).await;
                self.news.look();
            }
        };
        tokio::select! {
            () = self.submit_all() => {}
            () = looking => {}
        }
        end.is_orderly = true;
    }

    async fn submit_all(&self) {
        loop {
            let (portion, is_ended) = {
                let mut gathered = self.lock();
                (gathered.portion(), gathered.is_ended)
            };
            if !portion.is_empty() {
                self.submit(portion).await;
            } else if is_ended {
                return;
            } else {
                self.came.notified().await;
            }
        }
    }

    async fn submit(&self, portion: Vec<(PackedArray, Vec<Py<PyAny>>)>) {
        let (payloads, futures): (Vec<PackedArray>, Vec<Vec<Py<PyAny>>>) = portion.into_iter().unzip();
        let bytes: usize = payloads.iter().map(|payloads| payloads.as_str().len()).sum();
        let batches: Vec<NewBatch> = payloads
            .into_iter()
            .map(|payloads| NewBatch {
                payloads,
                ..self.template.clone()
            })
            .collect();
        let engine = self.engine.clone();
        // A task of its own, so that the futures are told of a panic, too.
        let submitted = tokio::spawn(async move { engine.submit_batches(batches).await }).await;
        let (piece, refused) = match submitted {
            Ok(Ok(ids)) => (Piece::Called(ids.into_iter().zip(futures).collect()), 0),
            Ok(Err(error)) => refusal_of(futures, error.to_string()),
            Err(panic) => refusal_of(futures, format!("the submit ended by a panic: {panic}")),
        };
        self.news.push(piece);
        let mut gathered = self.lock();
        gathered.bytes -= bytes;
        gathered.submitting = 0;
        gathered.refused += refused;
        drop(gathered);
        self.submitted.notify_all();
    }
}

/// The refusal of calls, and their number.
fn refusal_of(futures: Vec<Vec<Py<PyAny>>>, reason: String) -> (Piece, usize) {
    let futures: Vec<Py<PyAny>> = futures.into_iter().flatten().collect();
    let count = futures.len();
    (Piece::Refused(futures, reason), count)
}

/// Tells everybody who waits for the calls when the task that submits them ends.
struct End {
    shared: Arc<Shared>,
    is_orderly: bool,
}

impl Drop for End {
    fn drop(&mut self) {
        self.shared.end();
        if !self.is_orderly {
            let reason = "the task that submits calls ended by a panic";
            self.shared.news.push(Piece::Broken(reason.to_owned()));
        }
        self.shared.submitted.notify_all();
    }
}

#[pymethods]
impl Calls {
    /// Waits while too many bytes are not submitted, then adds a call, for which `future` stands in the news. Once the call is
    /// added, this does not fail, and `future.is_queued` is true.
    fn push(
        &self,
        py: Python<'_>,
        future: Bound<'_, PyAny>,
        payload: Bound<'_, PyAny>,
        to_plain: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let shared = self.shared.get()?;
        // Before the lock, because it may run Python code.
        let payload = Encoder { to_plain: &to_plain }.packed(&payload)?;
        while !py.detach(|| {
            let has_room = |gathered: &Gathered| gathered.bytes <= CALLS_BYTES_MAX || gathered.is_ended;
            let gathered = shared.lock();
            if has_room(&gathered) {
                return true;
            }
            let waited = shared.submitted.wait_timeout(gathered, SIGNALS_EVERY);
            has_room(&waited.unwrap_or_else(PoisonError::into_inner).0)
        }) {
            py.check_signals()?;
        }
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
            gathered.futures.push_back(future.clone().unbind());
            gathered.bytes += payload.as_str().len();
        }
        shared.came.notify_one();
        future.setattr("is_queued", true)
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

    /// Asks the teller to read the store: nobody tells it of some ends, such as those of a cancel.
    fn look(&self) -> PyResult<()> {
        self.shared.get()?.news.look();
        Ok(())
    }

    /// Takes no more calls. Those that have come are submitted all the same.
    fn end(&self) -> PyResult<()> {
        self.shared.get()?.end();
        Ok(())
    }

    /// Takes no more calls, and waits at most `timeout` seconds until the others are stored. Returns how many are not.
    fn flush(&self, py: Python<'_>, timeout: f64) -> PyResult<usize> {
        let shared = self.shared.get()?;
        shared.end();
        let deadline = deadline(Some(timeout));
        let refused = shared.lock().refused;
        loop {
            let (left, refused, has_time) = py.detach(|| {
                let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                let patience = left.unwrap_or(SIGNALS_EVERY);
                let gathered = shared.lock();
                let waited =
                    shared
                        .submitted
                        .wait_timeout_while(gathered, patience.min(SIGNALS_EVERY), |gathered| {
                            gathered.left() > 0
                        });
                let gathered = waited.unwrap_or_else(PoisonError::into_inner).0;
                (gathered.left(), gathered.refused - refused, !patience.is_zero())
            });
            if left == 0 || !has_time {
                return Ok(left + refused);
            }
            py.check_signals()?;
        }
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
