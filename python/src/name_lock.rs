//! The lock that lets only one process at a time run a map with a name, if the store is a database.

use std::sync::Mutex;

use gristmill_postgres_link::NameLock as Inner;
use pyo3::prelude::*;

use crate::store_error;
use crate::waiting::wait;

/// A name that this process holds until it releases the name or ends.
#[pyclass(frozen, module = "gristmill._native")]
pub struct NameLock {
    held: Mutex<Option<Inner>>,
}

#[pymethods]
impl NameLock {
    /// Takes the name in the database at `url`; None if another process has it.
    #[staticmethod]
    fn try_take(py: Python<'_>, url: String, name: String) -> PyResult<Option<NameLock>> {
        let taken = wait(py, async move { Inner::try_take(&url, &name).await })?.map_err(store_error)?;
        Ok(taken.map(|held| NameLock {
            held: Mutex::new(Some(held)),
        }))
    }

    fn release(&self) {
        let mut held = self
            .held
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        drop(held.take());
    }
}
