//! Runners that cannot take jobs for a while, since their processes cannot start.
//!
//! Such a runner is out: the dispatcher gives it nothing. Of a kind whose runners are all out, the worker claims nothing, and
//! what it holds goes back to the source uncharged: other workers may run it. A worker that ends when nothing is left waits
//! for the runners first.

use super::Mill;
use crate::claims::held_slice::HeldSlice;
use crate::handler::runners::RunnerChange;
use crate::source::{SourceError, SourceErrorKind};

impl Mill {
    pub(super) fn take_change(&mut self, kind: usize, change: RunnerChange) {
        // It names the kinds that could be run before.
        self.offer = None;
        let now = self.since_began();
        match change {
            RunnerChange::Out(runner) => {
                self.dispatcher.out(kind, runner, now);
                // What waits for this runner before it, at a gate, comes back, too.
                self.lanes[kind].handler.recall(runner);
            }
            RunnerChange::Back(runner) => {
                self.dispatcher.back(kind, runner, now);
                self.claims.announce();
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

    /// Whether any kind can be run now.
    pub(super) fn can_run_any(&self) -> bool {
        (0..self.lanes.len()).any(|kind| self.dispatcher.can_run(kind))
    }

    /// Whether all kinds can be run now.
    pub(super) fn can_run_all(&self) -> bool {
        (0..self.lanes.len()).all(|kind| self.dispatcher.can_run(kind))
    }

    /// Gives back what waits for runners that are all out.
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
