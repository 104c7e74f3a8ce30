//! Observers of workers.

use gristmill_model::{Receipt, Report};

/// Observes a worker. The calls come from the worker's own task and must return quickly.
pub trait Observer: Send + Sync + 'static {
    /// A claim got this many jobs.
    fn claimed(&self, jobs: u32) {
        let _ = jobs;
    }

    /// A report is on disk. The receipt names the accepted outcomes.
    fn committed(&self, report: &Report, receipt: &Receipt) {
        let _ = (report, receipt);
    }
}

/// An observer that does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}
