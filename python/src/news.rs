//! Messages of a worker and a feeder to the Python code that waits for them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gristmill_model::{JobState, Receipt, Report};
use gristmill_worker::Observer;

use crate::outcomes::{Failure, Piece, values_of};

/// A queue of pieces. The feeding side bounds it: it holds at most the pieces of the items that were fed.
#[derive(Debug, Default)]
pub struct News {
    pieces: Mutex<VecDeque<Piece>>,
    came: Condvar,
}

impl News {
    /// Adds a piece and wakes the waiter.
    pub fn push(&self, piece: Piece) {
        self.lock().push_back(piece);
        self.came.notify_all();
    }

    /// Takes all pieces; waits at most `patience` for the first one.
    pub fn take(&self, patience: Duration) -> VecDeque<Piece> {
        let pieces = self.lock();
        let waited = self
            .came
            .wait_timeout_while(pieces, patience, |pieces| pieces.is_empty());
        let (mut pieces, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut pieces)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Piece>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
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
