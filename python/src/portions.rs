//! Submits many items in portions, one after the other: a portion is packed while the one before it is stored.

use gristmill_engine::{Engine, EngineError};
use gristmill_model::{BatchId, BatchLimits, NewBatch, PackedCutter};
use gristmill_operations::limits::SUBMIT_BYTES_TARGET;
use pyo3::prelude::*;
use pyo3::types::PyList;
use tokio::task::JoinHandle;

use crate::payload::Encoder;
use crate::store_error;
use crate::waiting::{runtime, wait};

/// The numbers of jobs of a portion's batches, and the submit in progress.
type Submitting = (Vec<u32>, JoinHandle<Result<Vec<BatchId>, EngineError>>);

/// The portions of one call. Each is stored completely or not at all, and after the one before it. So the stored items
/// are always the first ones, wherever the call fails.
pub struct Portions<'py> {
    engine: Engine,
    /// The stored batches, with their numbers of jobs.
    stored: Bound<'py, PyList>,
    under_way: Option<Submitting>,
}

impl<'py> Portions<'py> {
    pub fn new(engine: Engine, stored: Bound<'py, PyList>) -> Self {
        Portions {
            engine,
            stored,
            under_way: None,
        }
    }

    /// Submits the payloads of an iterable. The last portion may still be in progress afterwards.
    pub fn submit(
        &mut self,
        py: Python<'py>,
        template: &NewBatch,
        payloads: &Bound<'py, PyAny>,
        encoder: &Encoder<'_, 'py>,
    ) -> PyResult<()> {
        let (mut group, mut bytes) = (Vec::new(), 0);
        let mut cutter = PackedCutter::new(BatchLimits::default());
        for (number, item) in (0..).zip(payloads.try_iter()?) {
            let Some(payloads) = encoder.cut_item(&mut cutter, &item?, number)? else {
                continue;
            };
            bytes += payloads.as_str().len();
            group.push(NewBatch {
                payloads,
                ..template.clone()
            });
            if bytes >= SUBMIT_BYTES_TARGET {
                self.begin(py, std::mem::take(&mut group))?;
                bytes = 0;
            }
        }
        group.extend(cutter.rest().map(|payloads| NewBatch {
            payloads,
            ..template.clone()
        }));
        if group.is_empty() {
            Ok(())
        } else {
            self.begin(py, group)
        }
    }

    /// Begins to store a portion, after the one before it is stored.
    fn begin(&mut self, py: Python<'_>, portion: Vec<NewBatch>) -> PyResult<()> {
        self.settle(py)?;
        let counts = portion.iter().map(|batch| batch.payloads.count()).collect();
        let engine = self.engine.clone();
        let task = runtime()?.spawn(async move { engine.submit_batches(portion).await });
        self.under_way = Some((counts, task));
        Ok(())
    }

    /// Waits for the portion in progress.
    pub fn settle(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some((counts, task)) = self.under_way.take() else {
            return Ok(());
        };
        let batches = wait(py, task)?.map_err(store_error)?.map_err(store_error)?;
        assert_eq!(batches.len(), counts.len(), "each batch of a portion has its id");
        for (batch, count) in batches.into_iter().zip(counts) {
            self.stored.append((batch.0, count))?;
        }
        Ok(())
    }
}
