//! Stops a worker from outside.

use tokio::sync::watch;

/// Stops a worker: it claims no more, finishes running jobs, releases the others, commits and leaves.
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    pub(crate) fn new() -> Self {
        Stopper(watch::Sender::new(false))
    }

    /// Asks the worker to stop. May be called more than once.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// What tells whether the worker was asked to stop.
    pub(crate) fn asked(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }
}
