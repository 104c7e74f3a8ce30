//! Output of functions in the processes of a worker, for the standard output of this process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gristmill_runtime::{PrintListener, StandardStream};
use pyo3::prelude::*;

use crate::callbacks;
use crate::limits::PRINTED_BYTES_MAX;
use crate::waiting::runtime;

/// Text that is not shown yet. The code that shows it takes it; if none does, another thread calls `show(this)`.
#[pyclass(frozen, module = "gristmill._native")]
pub struct Printed {
    kept: Arc<Kept>,
}

struct Kept {
    texts: Mutex<Texts>,
    show: Py<PyAny>,
}

#[derive(Default)]
struct Texts {
    /// Whether it is for standard error, and the text.
    texts: Vec<(bool, String)>,
    bytes: usize,
    missing_bytes: u64,
    /// Whether a call of `show` is pending.
    will_show: bool,
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, Texts> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(self: &Arc<Self>, stream: StandardStream, text: &str) {
        let mut kept = self.lock();
        if kept.bytes + text.len() > PRINTED_BYTES_MAX {
            kept.missing_bytes += text.len() as u64;
            return;
        }
        kept.bytes += text.len();
        let is_error = stream == StandardStream::Error;
        match kept.texts.last_mut() {
            Some((before, last)) if *before == is_error => last.push_str(text),
            _ => kept.texts.push((is_error, text.to_owned())),
        }
        if !std::mem::replace(&mut kept.will_show, true)
            && let Ok(runtime) = runtime()
        {
            let shown = self.clone();
            runtime.spawn_blocking(move || shown.show());
        }
    }

    /// Calls `show`, unless the interpreter has ended.
    fn show(self: Arc<Self>) {
        callbacks::call(|py| {
            let kept = self.clone();
            let called = Py::new(py, Printed { kept }).and_then(|printed| self.show.call1(py, (printed,)));
            if let Err(raised) = called {
                raised.write_unraisable(py, Some(self.show.bind(py)));
            }
        });
    }
}

impl Printed {
    /// A listener that fills this one.
    pub fn listener(&self) -> PrintListener {
        let kept = self.kept.clone();
        PrintListener::new(move |stream, text| kept.push(stream, text))
    }
}

#[pymethods]
impl Printed {
    #[new]
    fn new(show: Py<PyAny>) -> Printed {
        let texts = Mutex::default();
        Printed {
            kept: Arc::new(Kept { texts, show }),
        }
    }

    /// Takes the texts, each with a flag for standard error, and the number of bytes that are missing after them.
    fn take(&self) -> (Vec<(bool, String)>, u64) {
        let kept = std::mem::take(&mut *self.kept.lock());
        (kept.texts, kept.missing_bytes)
    }
}
