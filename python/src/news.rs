//! Messages of a worker and a feeder to the Python code that waits for them, or is called with them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use gristmill_model::{JobState, Receipt, Report};
use gristmill_worker::Observer;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::callbacks;
use crate::outcomes::{Failure, Piece, values_of};
use crate::waiting::runtime;

/// A queue of pieces. The feeding side bounds it: it holds at most the pieces of the items that were fed.
#[derive(Debug)]
pub struct News {
    gathered: Mutex<Gathered>,
    came: Condvar,
    /// Called with the pieces; without it, they are taken.
    told: Option<Py<PyAny>>,
    this: Weak<News>,
}

#[derive(Debug, Default)]
struct Gathered {
    pieces: VecDeque<Piece>,
    /// Whether a thread calls `told`, or is about to.
    is_telling: bool,
}

impl News {
    /// A queue whose pieces are taken or, with `told`, handed to this function. It is called from another thread, again and
    /// again with all pieces that have come, and never twice at once.
    pub fn new(told: Option<Py<PyAny>>) -> Arc<News> {
        Arc::new_cyclic(|this| News {
            gathered: Mutex::default(),
            came: Condvar::new(),
            told,
            this: this.clone(),
        })
    }

    /// Adds a piece and wakes the waiter.
    pub fn push(&self, piece: Piece) {
        let mut gathered = self.lock();
        // They are told of one quiet moment at a time, however long they take.
        if !(matches!(piece, Piece::Quiet) && matches!(gathered.pieces.back(), Some(Piece::Quiet))) {
            gathered.pieces.push_back(piece);
        }
        if self.told.is_none() {
            self.came.notify_all();
        } else if !std::mem::replace(&mut gathered.is_telling, true)
            && let (Some(news), Ok(runtime)) = (self.this.upgrade(), runtime())
        {
            // What is told may call the engine in turn, which would block a thread of the runtime.
            runtime.spawn_blocking(move || news.tell());
        }
    }

    /// Lets those who are told look for what nobody tells them.
    pub fn look(&self) {
        if self.told.is_some() {
            self.push(Piece::Quiet);
        }
    }

    /// Takes all pieces; waits at most `patience` for the first one.
    pub fn take(&self, patience: Duration) -> VecDeque<Piece> {
        let gathered = self.lock();
        let waited = self
            .came
            .wait_timeout_while(gathered, patience, |gathered| gathered.pieces.is_empty());
        let (mut gathered, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut gathered.pieces)
    }

    /// Calls `told` until there are no more pieces, unless the interpreter has ended.
    fn tell(&self) {
        callbacks::call(|py| {
            let Some(told) = &self.told else { return };
            loop {
                let pieces = {
                    let mut gathered = self.lock();
                    if gathered.pieces.is_empty() {
                        gathered.is_telling = false;
                        return;
                    }
                    std::mem::take(&mut gathered.pieces)
                };
                let pieces: PyResult<Vec<Bound<'_, PyTuple>>> =
                    pieces.into_iter().map(|piece| piece.into_python(py)).collect();
                if let Err(raised) = pieces.and_then(|pieces| told.call1(py, (pieces,))) {
                    raised.write_unraisable(py, Some(told.bind(py)));
                }
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for News {
    fn committed(&self, report: &Report, receipt: &Receipt) {
        if let Some(completed) = &report.completed {
            let positions = completed.positions.intersection(&receipt.accepted);
            let positions = positions.difference(&receipt.failed);
            if !positions.is_empty() {
                let values = values_of(&completed.values, &completed.positions, &positions);
                self.push(Piece::Values(report.batch, positions, values.text().clone()));
            }
        }
        // Other failures are retried. Rarer ends (a cancel, an expiry) are read from the store.
        let dead = report
            .failed
            .iter()
            .filter(|failed| receipt.dead.contains(failed.position));
        let dead: Vec<Failure> = dead
            .map(|failed| Failure {
                position: failed.position,
                state: JobState::Dead,
                error: Some(failed.error.clone()),
            })
            .collect();
        if !dead.is_empty() {
            self.push(Piece::Failed(report.batch, dead));
        }
    }
}
