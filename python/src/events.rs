//! Events for Python.

use std::sync::Arc;
use std::time::Duration;

use gristmill_engine::Events as Inner;
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::owned::Owned;
use crate::store_error;
use crate::waiting::wait;

/// A listener to the events of a store.
#[pyclass(frozen, module = "gristmill._native")]
pub struct Events {
    inner: Owned<Arc<Mutex<Inner>>>,
}

impl Events {
    /// A listener for Python.
    pub fn new(inner: Inner) -> Events {
        Events {
            inner: Owned::new(Arc::new(Mutex::new(inner))),
        }
    }
}

#[pymethods]
impl Events {
    /// Returns the next event as JSON; None after `patience` seconds without one.
    fn take(&self, py: Python<'_>, patience: f64) -> PyResult<Option<String>> {
        let events = self.inner.get()?.clone();
        let patience = Duration::try_from_secs_f64(patience.max(0.0)).unwrap_or(Duration::MAX);
        let next = wait(py, async move {
            let mut events = events.lock().await;
            let next = tokio::time::timeout(patience, events.next()).await;
            next.ok().transpose()
        })?;
        let next = next.map_err(store_error)?;
        next.map(|event| serde_json::to_string(&event).map_err(store_error))
            .transpose()
    }
}
