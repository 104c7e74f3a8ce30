//! Calls of the runtime's threads into Python.
//!
//! The interpreter's end waits for the running calls, and refuses further ones. If a thread asks for the interpreter
//! later, CPython ends it in the middle of Rust code, which aborts the process.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use crate::limits::CALLBACKS_END_WITHIN;

/// The calls of one process.
struct Calls {
    process_id: u32,
    running: usize,
    has_ended: bool,
}

static CALLS: Mutex<Calls> = Mutex::new(Calls {
    process_id: 0,
    running: 0,
    has_ended: false,
});
static CHANGED: Condvar = Condvar::new();

/// The calls of this process. A fork begins without calls.
fn calls() -> MutexGuard<'static, Calls> {
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let process_id = std::process::id();
    if calls.process_id != process_id {
        *calls = Calls {
            process_id,
            running: 0,
            has_ended: false,
        };
    }
    calls
}

struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        let mut calls = calls();
        calls.running = calls.running.saturating_sub(1);
        CHANGED.notify_all();
    }
}

/// Calls Python, unless the interpreter ends.
pub fn call(task: impl FnOnce(Python<'_>)) {
    {
        let mut calls = calls();
        if calls.has_ended {
            return;
        }
        calls.running += 1;
    }
    let _running = Running;
    Python::try_attach(task);
}

/// Refuses further calls, and waits for the running ones, at most for [`CALLBACKS_END_WITHIN`].
#[pyfunction]
pub fn end_callbacks(py: Python<'_>) {
    py.detach(|| {
        let mut calls = calls();
        calls.has_ended = true;
        let _ = CHANGED.wait_timeout_while(calls, CALLBACKS_END_WITHIN, |calls| calls.running > 0);
    });
}
