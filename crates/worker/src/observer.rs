//! Who watches a worker.

use gristmill_model::{Receipt, Report};

/// Is told what a worker did. Calls come from the worker's own task and should return quickly.
pub trait Observer: Send + Sync + 'static {
    /// A claim brought so many jobs.
    fn claimed(&self, jobs: u32) {
        let _ = jobs;
    }

    /// A report is on disk, with the receipt that says what of it was accepted.
    fn committed(&self, report: &Report, receipt: &Receipt) {
        let _ = (report, receipt);
    }
}

/// Watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}
