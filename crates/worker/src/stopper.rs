//! Stops a worker from outside.

use tokio::sync::watch;

/// Stops a worker: it claims no more jobs, finishes running jobs, releases the others, commits and leaves.
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    pub(crate) fn new() -> Self {
        Stopper(watch::Sender::new(false))
    }

    /// Asks the worker to stop. Repeated calls have no further effect.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// The receiver of the request to stop.
    pub(crate) fn asked(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }
}
