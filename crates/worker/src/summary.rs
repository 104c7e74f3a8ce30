//! The totals of a worker at its end.

/// The totals of a worker at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerSummary {
    /// The number of completed and committed jobs.
    pub completed: u64,
    /// The number of committed failed attempts.
    pub failed: u64,
    /// The number of refused outcomes, because the lease was lost or the job was cancelled.
    pub refused: u64,
}
