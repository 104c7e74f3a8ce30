//! The totals of a worker at its end.

/// The totals of a worker at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkerSummary {
    /// Jobs completed and committed.
    pub completed: u64,
    /// Failed attempts committed.
    pub failed: u64,
    /// Outcomes that were refused, because the lease had been lost or the job cancelled.
    pub refused: u64,
}
