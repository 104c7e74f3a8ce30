//! The outcomes of jobs, as a handler hands them back.

use gristmill_model::{
    Completed, EarlierFailure, FailedJob, JobLog, Positions, Report, ReportWrite, Siblings, Suspended,
};

/// Outcomes of some jobs, handed back as soon as they are known. A handler numbers the jobs by their places in
/// its [`MicroBatch`](crate::MicroBatch); a report, by their positions in the batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcomes {
    /// Jobs that completed, with their values and durations.
    pub completed: Option<Completed>,
    /// Attempts that failed. They are charged an attempt.
    pub failed: Vec<FailedJob>,
    /// Jobs that were not run. They go back to the store uncharged.
    pub released: Positions,
    /// Jobs that were recalled before they began. The worker gives them to whichever slot is free.
    pub returned: Positions,
    /// Jobs that wait for children, which they spawned.
    pub suspended: Vec<Suspended>,
    /// The siblings of completed jobs. Functions spawn them by their [`JobContext`](crate::JobContext).
    pub siblings: Vec<Siblings>,
    /// The logs of jobs.
    pub logs: Vec<JobLog>,
    /// Attempts before these, which failed and were followed by another at once. The worker sees to them; handlers leave
    /// this empty.
    pub earlier: Vec<EarlierFailure>,
    /// What completed jobs write in the transaction of their report. The worker sees to this, too: jobs say it by their
    /// [`JobContext`](crate::JobContext).
    pub writes: Vec<ReportWrite>,
}

impl From<Report> for Outcomes {
    fn from(report: Report) -> Self {
        Outcomes {
            completed: report.completed,
            failed: report.failed,
            released: report.released,
            returned: Positions::new(),
            suspended: report.suspended,
            siblings: report.siblings,
            logs: report.logs,
            earlier: report.earlier,
            writes: report.writes,
        }
    }
}

impl Outcomes {
    /// Whether no job is answered.
    pub fn is_empty(&self) -> bool {
        self.completed.is_none()
            && self.failed.is_empty()
            && self.released.is_empty()
            && self.returned.is_empty()
            && self.suspended.is_empty()
    }

    /// All positions that are answered.
    pub fn positions(&self) -> Positions {
        let mut positions = self.released.union(&self.returned);
        if let Some(completed) = &self.completed {
            positions = positions.union(&completed.positions);
        }
        for failed in &self.failed {
            positions.insert(failed.position);
        }
        for suspended in &self.suspended {
            positions = positions.union(&suspended.positions);
        }
        positions
    }
}
