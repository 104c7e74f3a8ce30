//! Runners that cannot take jobs for a while, because their processes cannot start.
//!
//! Such a runner is out: the dispatcher gives it no jobs. If all runners of a kind are out, the worker claims no jobs
//! of the kind, and gives its waiting jobs back without charge: other workers may run them. A worker that ends when
//! nothing is left first waits for its runners.

use super::Mill;
use crate::claims::held_slice::HeldSlice;
use crate::handler::runners::RunnerChange;
use crate::source::{SourceError, SourceErrorKind};

impl Mill {
    pub(super) fn take_change(&mut self, kind: usize, change: RunnerChange) {
        // The waiting claim names the kinds that could run before.
        self.offer = None;
        let now = self.since_began();
        match change {
            RunnerChange::Out(runner) => {
                self.dispatcher.out(kind, runner, now);
                // The jobs that wait at the gate of this runner also come back.
                self.lanes[kind].handler.recall(runner);
            }
            RunnerChange::Back(runner) => {
                self.dispatcher.back(kind, runner, now);
                self.claims.announce();
                self.is_trip_outdated = self.trip.is_some();
            }
            RunnerChange::Failed(message) => {
                self.failed.get_or_insert(SourceError {
                    message,
                    kind: SourceErrorKind::Fatal,
                });
                self.begin_drain();
            }
        }
    }

    /// Reports whether any kind can run now.
    pub(super) fn can_run_any(&self) -> bool {
        (0..self.lanes.len()).any(|kind| self.dispatcher.can_run(kind))
    }

    /// Reports whether all kinds can run now.
    pub(super) fn can_run_all(&self) -> bool {
        (0..self.lanes.len()).all(|kind| self.dispatcher.can_run(kind))
    }

    /// Gives jobs back whose runners are all out.
    pub(super) fn give_up_unrunnable(&mut self) {
        for kind in 0..self.lanes.len() {
            if self.lanes[kind].waiting() == 0 || self.dispatcher.can_run(kind) {
                continue;
            }
            let waiting: Vec<HeldSlice> = self.lanes[kind].take_all();
            waiting.iter().for_each(|held| self.give_up(held));
        }
    }
}
