//! Changes of a handler's runners.

use std::fmt;
use std::sync::Arc;

/// A change of a handler's runners. Runners are numbered from 0, and can take jobs at first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerChange {
    /// This runner can take no jobs. It answers its unbegun jobs, and further ones, as returned.
    Out(usize),
    /// This runner can take jobs again.
    Back(usize),
    /// No runner will take jobs again, for this reason. The worker gives its jobs back, and ends with the reason.
    Failed(String),
}

/// The listener for the runners of one handler.
#[derive(Clone)]
pub struct RunnerListener(Arc<dyn Fn(RunnerChange) + Send + Sync>);

impl RunnerListener {
    /// Calls `listener` for each change. It must not block.
    pub fn new(listener: impl Fn(RunnerChange) + Send + Sync + 'static) -> Self {
        RunnerListener(Arc::new(listener))
    }

    /// Reports a change.
    pub fn tell(&self, change: RunnerChange) {
        (self.0)(change);
    }
}

impl fmt::Debug for RunnerListener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RunnerListener(…)")
    }
}
