//! Submits the items of a map in the background, in order.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gristmill_model::limits::BATCH_BYTES_TARGET;
use gristmill_model::{BatchOptions, NewBatch, PackedArray, PackedBuilder, RunId};
use gristmill_store::{RunAdvance, RunState, Store, StoreError};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::limits::{BATCH_JOBS, BATCHES_FED_MAX, SUBMIT_BYTES};
use crate::news::News;
use crate::outcomes::Piece;
use crate::owned::Owned;
use crate::payload::Encoder;
use crate::waiting::{runtime, wait};

/// The part that submits.
struct Submitter {
    store: Arc<dyn Store>,
    news: Arc<News>,
    kind: String,
    queue: String,
    options: BatchOptions,
    /// The run whose input the items are, and how far that has been submitted.
    run: Option<RunAdvance>,
}

impl Submitter {
    async fn submit_all(mut self, mut fed: mpsc::Receiver<PackedArray>) {
        while let Some(first) = fed.recv().await {
            let mut group = vec![first];
            let mut bytes = group[0].as_str().len();
            // Whatever has gathered meanwhile shares one transaction.
            while bytes < SUBMIT_BYTES && group.len() < BATCHES_FED_MAX {
                let Ok(next) = fed.try_recv() else { break };
                bytes += next.as_str().len();
                group.push(next);
            }
            if let Err(error) = self.submit(group).await {
                self.news.push(Piece::Broken(error.to_string()));
                return;
            }
        }
        if let Err(error) = self.end().await {
            self.news.push(Piece::Broken(error.to_string()));
        }
    }

    async fn submit(&mut self, group: Vec<PackedArray>) -> Result<(), StoreError> {
        let counts: Vec<u32> = group.iter().map(PackedArray::count).collect();
        if let Some(run) = &mut self.run {
            for payloads in &group {
                run.progress = advanced(run.progress, payloads);
            }
        }
        let batches = group.into_iter().map(|payloads| NewBatch {
            queue: self.queue.clone(),
            options: self.options.clone(),
            ..NewBatch::new(self.kind.as_str(), payloads)
        });
        let ids = self.store.submit(batches.collect(), self.run).await?;
        for (batch, count) in ids.into_iter().zip(counts) {
            self.news.push(Piece::Submitted(batch, count));
        }
        Ok(())
    }

    async fn end(&self) -> Result<(), StoreError> {
        match self.run {
            Some(run) => {
                let end = RunAdvance {
                    state: RunState::Submitted,
                    ..run
                };
                self.store.submit(Vec::new(), Some(end)).await.map(drop)
            }
            None => Ok(()),
        }
    }
}

/// The progress of a run after these items, each a line.
pub fn advanced(
    before: gristmill_store::run::RunProgress,
    payloads: &PackedArray,
) -> gristmill_store::run::RunProgress {
    let mut digest = crc32fast::Hasher::new_with_initial_len(before.crc32, before.bytes);
    let mut after = before;
    for item in payloads.items() {
        digest.update(item.as_bytes());
        digest.update(b"\n");
        after.bytes += item.len() as u64 + 1;
    }
    after.jobs += u64::from(payloads.count());
    after.lines = after.jobs;
    after.crc32 = digest.finalize();
    after
}

/// Submits the items of a map in the background.
#[pyclass(frozen, module = "gristmill._native")]
pub struct Feeder {
    feeding: Owned<Mutex<Feeding>>,
}

struct Feeding {
    batches: Option<mpsc::Sender<PackedArray>>,
    submitting: Option<JoinHandle<()>>,
}

impl Feeder {
    fn lock(&self) -> PyResult<MutexGuard<'_, Feeding>> {
        Ok(self.feeding.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts to submit for the waiter of `news`.
    pub fn start(
        store: Arc<dyn Store>,
        news: Arc<News>,
        (kind, queue): (String, String),
        options: BatchOptions,
        run: Option<RunAdvance>,
    ) -> PyResult<Feeder> {
        let (sender, fed) = mpsc::channel(BATCHES_FED_MAX);
        let submitter = Submitter {
            store,
            news,
            kind,
            queue,
            options,
            run,
        };
        let submitting = runtime()?.spawn(submitter.submit_all(fed));
        Ok(Feeder {
            feeding: Owned::new(Mutex::new(Feeding {
                batches: Some(sender),
                submitting: Some(submitting),
            })),
        })
    }
}

#[pymethods]
impl Feeder {
    /// Packs a list of payloads, and submits them in the background, in order. Waits while too many batches are on their
    /// way. Returns how many bytes they have. `first` is the number of the first one, for errors.
    fn feed(
        &self,
        py: Python<'_>,
        items: Vec<Bound<'_, PyAny>>,
        to_plain: Bound<'_, PyAny>,
        first: u64,
    ) -> PyResult<usize> {
        let packed = pack(&items, &to_plain, Some(first))?;
        let bytes = packed.iter().map(|payloads| payloads.as_str().len()).sum();
        let sender = self.lock()?.batches.clone();
        let sender =
            sender.ok_or_else(|| PyRuntimeError::new_err("the map is already at the end of its items"))?;
        wait(py, async move {
            for payloads in packed {
                // Where the submits have failed, the news say so.
                let _ = sender.send(payloads).await;
            }
        })?;
        Ok(bytes)
    }

    /// Ends the items: the run's input is submitted once those before are.
    fn finish(&self) -> PyResult<()> {
        self.lock()?.batches = None;
        Ok(())
    }

    /// Ends the items, and waits until the last ones are submitted; with `abort`, those that are still on their way are
    /// dropped.
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

/// Payloads as packed arrays of full size. An error names the item, where `first` is the number of the first one.
pub fn pack<'py>(
    items: &[Bound<'py, PyAny>],
    to_plain: &Bound<'py, PyAny>,
    first: Option<u64>,
) -> PyResult<Vec<PackedArray>> {
    let encoder = Encoder { to_plain };
    let mut packed = Vec::new();
    let mut builder = PackedBuilder::new();
    for (index, item) in (0..).zip(items) {
        match first {
            Some(first) => encoder.push_item(&mut builder, item, first + index)?,
            None => encoder.push(&mut builder, item)?,
        }
        if is_full(&builder) {
            packed.push(std::mem::take(&mut builder).finish());
        }
    }
    if builder.count() > 0 {
        packed.push(builder.finish());
    }
    Ok(packed)
}

/// Whether a batch takes no further payload.
pub fn is_full(builder: &PackedBuilder) -> bool {
    builder.count() >= BATCH_JOBS || builder.bytes() >= BATCH_BYTES_TARGET
}

/// The step of a run that nothing was submitted in yet.
pub fn first_step(run: RunId, progress: gristmill_store::run::RunProgress) -> RunAdvance {
    RunAdvance {
        run,
        progress,
        state: RunState::Submitting,
    }
}
