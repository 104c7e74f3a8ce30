//! What a worker hears of the runners of a handler.

use std::fmt;
use std::sync::Arc;

/// A change of what the runners of a handler can do. Runners are numbered from 0, and can take jobs at first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerChange {
    /// This runner can take no jobs: it answers what it has not begun, and what it is given, as returned.
    Out(usize),
    /// This runner can take jobs again.
    Back(usize),
    /// No runner will take jobs again, for this reason: the worker gives back what it holds, and ends with the reason.
    Failed(String),
}

/// Hears of the runners of one handler.
#[derive(Clone)]
pub struct RunnerListener(Arc<dyn Fn(RunnerChange) + Send + Sync>);

impl RunnerListener {
    /// Calls `listener`, which must not block, for each change.
    pub fn new(listener: impl Fn(RunnerChange) + Send + Sync + 'static) -> Self {
        RunnerListener(Arc::new(listener))
    }

    /// Tells of a change.
    pub fn tell(&self, change: RunnerChange) {
        (self.0)(change);
    }
}

impl fmt::Debug for RunnerListener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RunnerListener(…)")
    }
}
