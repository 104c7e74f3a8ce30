//! Submits the items of a map in the background, in order.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gristmill_engine::end_reason;
use gristmill_model::{BatchLimits, PackedArray, PackedCutter};
use gristmill_operations::feeder::{FedBatch, FeedFollower, Feeder as RunFeeder, InputBatch};
use gristmill_operations::limits::BATCHES_FED_MAX;
use gristmill_store::run::RunProgress;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::news::News;
use crate::outcomes::Piece;
use crate::owned::Owned;
use crate::payload::Encoder;
use crate::waiting::{runtime, wait};

impl FeedFollower for News {
    fn submitted(&self, batches: &[FedBatch], _: RunProgress) {
        for fed in batches {
            self.push(Piece::Submitted(fed.batch, fed.jobs));
        }
    }
}

type Fed = Result<InputBatch, Infallible>;

/// Submits the items of a map in the background.
#[pyclass(frozen, module = "gristmill._native")]
pub struct Feeder {
    feeding: Owned<Mutex<Feeding>>,
}

struct Feeding {
    batches: Option<mpsc::Sender<Fed>>,
    /// The progress of the run after all fed items.
    progress: RunProgress,
    submitting: Option<JoinHandle<()>>,
}

impl Feeder {
    fn lock(&self) -> PyResult<MutexGuard<'_, Feeding>> {
        Ok(self.feeding.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts to submit for the waiter of `news`, from the position of the run.
    pub fn start(mut feeder: RunFeeder, news: Arc<News>) -> PyResult<Feeder> {
        let (sender, fed) = mpsc::channel::<Fed>(BATCHES_FED_MAX);
        let progress = feeder.progress;
        let submitting = runtime()?.spawn(async move {
            let ended = match feeder.feed(fed, &*news, std::future::pending()).await {
                Ok(_) => feeder.end().await.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(reason) = ended {
                news.push(Piece::Broken(reason));
            }
        });
        Ok(Feeder {
            feeding: Owned::new(Mutex::new(Feeding {
                batches: Some(sender),
                progress,
                submitting: Some(submitting),
            })),
        })
    }
}

#[pymethods]
impl Feeder {
    /// Packs a list of payloads, and submits them in the background, in order. Waits while too many batches are in
    /// progress. Returns their number of bytes. `first` is the number of the first payload, for errors.
    fn feed(
        &self,
        py: Python<'_>,
        items: Vec<Bound<'_, PyAny>>,
        to_plain: Bound<'_, PyAny>,
        first: u64,
    ) -> PyResult<usize> {
        let packed = pack(&items, &to_plain, Some(first))?;
        let bytes = packed.iter().map(|payloads| payloads.as_str().len()).sum();
        let (sender, fed) = {
            let mut feeding = self.lock()?;
            let sender = feeding.batches.clone();
            let sender = sender
                .ok_or_else(|| PyRuntimeError::new_err("the map is already at the end of its items"))?;
            let mut fed = Vec::with_capacity(packed.len());
            for payloads in packed {
                feeding.progress = feeding.progress.after_lines(&payloads);
                fed.push(InputBatch {
                    end_reason: end_reason(&payloads),
                    payloads,
                    rejected: Vec::new(),
                    progress: feeding.progress,
                });
            }
            (sender, fed)
        };
        wait(py, async move {
            for batch in fed {
                // If the submits have failed, the news say so.
                let _ = sender.send(Ok(batch)).await;
            }
        })?;
        Ok(bytes)
    }

    /// Ends the items: the run's input is submitted once the earlier items are.
    fn finish(&self) -> PyResult<()> {
        self.lock()?.batches = None;
        Ok(())
    }

    /// Ends the items, and waits until the last ones are submitted; `abort` drops the items that are still waiting.
    fn end(&self, py: Python<'_>, abort: bool) -> PyResult<()> {
        let submitting = {
            let mut feeding = self.lock()?;
            feeding.batches = None;
            feeding.submitting.take()
        };
        let Some(submitting) = submitting else {
            return Ok(());
        };
        if abort {
            submitting.abort();
        }
        // An abort is the only error.
        wait(py, submitting).map(drop)
    }
}

/// Packs payloads into arrays of full size. An error names the item; `first` is the number of the first one.
pub fn pack<'py>(
    items: &[Bound<'py, PyAny>],
    to_plain: &Bound<'py, PyAny>,
    first: Option<u64>,
) -> PyResult<Vec<PackedArray>> {
    let encoder = Encoder { to_plain };
    let mut cutter = PackedCutter::new(BatchLimits::default());
    let mut packed = Vec::new();
    for (index, item) in (0..).zip(items) {
        packed.extend(match first {
            Some(first) => encoder.cut_item(&mut cutter, item, first + index)?,
            None => encoder.cut(&mut cutter, item)?,
        });
    }
    packed.extend(cutter.rest());
    Ok(packed)
}
