//! Values of one process. A fork of that process has none of its threads, and must not close its files.

use pyo3::PyResult;
use pyo3::exceptions::PyRuntimeError;

/// A value that only the process which made it uses and drops.
#[derive(Debug)]
pub struct Owned<T> {
    process_id: u32,
    value: Option<T>,
}

impl<T> Owned<T> {
    /// Makes a value that belongs to this process.
    pub fn new(value: T) -> Owned<T> {
        Owned {
            process_id: std::process::id(),
            value: Some(value),
        }
    }

    /// The value. Fails in a fork of its process.
    pub fn get(&self) -> PyResult<&T> {
        match &self.value {
            Some(value) if self.process_id == std::process::id() => Ok(value),
            _ => Err(PyRuntimeError::new_err(
                "this object belongs to the process that this one was forked from: make it after the fork",
            )),
        }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.process_id != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}
