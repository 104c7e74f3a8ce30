//! Observers of workers.

use gristmill_model::{Receipt, Report};

/// Receives the actions of a worker. Calls come from the worker's own task and should return quickly.
pub trait Observer: Send + Sync + 'static {
    /// A claim brought so many jobs.
    fn claimed(&self, jobs: u32) {
        let _ = jobs;
    }

    /// A report is on disk. The receipt names the accepted outcomes.
    fn committed(&self, report: &Report, receipt: &Receipt) {
        let _ = (report, receipt);
    }
}

/// Watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}
