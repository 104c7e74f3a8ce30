//! The extension module below the Python package: a thin layer over the engine. `gristmill/_native.pyi` is its interface in
//! Python's terms.

mod callbacks;
mod calls;
mod engine;
mod events;
mod feeder;
mod foreign;
mod limits;
mod name_lock;
mod news;
mod outcomes;
mod owned;
mod payload;
mod portions;
mod printed;
mod waiting;
mod worker;

use gristmill_operations::Refused;
use pyo3::prelude::*;

pyo3::import_exception!(gristmill._errors, NotFound);
pyo3::import_exception!(gristmill._errors, StoreError);
pyo3::import_exception!(gristmill._errors, WorkerError);

#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::callbacks::end_callbacks;
    #[pymodule_export]
    use crate::calls::Calls;
    #[pymodule_export]
    use crate::engine::{Engine, digest};
    #[pymodule_export]
    use crate::events::Events;
    #[pymodule_export]
    use crate::feeder::Feeder;
    #[pymodule_export]
    use crate::foreign::submit_over;
    #[pymodule_export]
    use crate::name_lock::NameLock;
    #[pymodule_export]
    use crate::printed::Printed;
    #[pymodule_export]
    use crate::waiting::calls_open;
    #[pymodule_export]
    use crate::worker::Worker;

    /// Makes the module. Functions that are registered first run last at the interpreter's end.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let atexit = module.py().import("atexit")?;
        atexit.call_method1("register", (module.getattr("end_callbacks")?,))?;
        Ok(())
    }
}

/// An error of the store or the engine, for Python.
fn store_error(error: impl std::fmt::Display) -> PyErr {
    StoreError::new_err(error.to_string())
}

/// A refusal of an operation, for Python.
fn refusal(refused: Refused) -> PyErr {
    match refused {
        Refused::NotFound { .. } => NotFound::new_err(refused.to_string()),
        refused => StoreError::new_err(refused.told()),
    }
}

/// An error of a worker or its processes, for Python.
fn worker_error(error: impl std::fmt::Display) -> PyErr {
    WorkerError::new_err(error.to_string())
}
