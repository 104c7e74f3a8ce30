//! The outcomes of jobs, as a handler returns them.

use gristmill_model::{
    Completed, EarlierFailure, FailedJob, JobLog, Positions, Report, ReportWrite, Siblings, Suspended,
};

/// The outcomes of some jobs, handed over as soon as they are known. A handler numbers the jobs by their places in its
/// [`MicroBatch`](crate::MicroBatch). A report numbers them by their positions in the batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcomes {
    /// The completed jobs, with their values and durations.
    pub completed: Option<Completed>,
    /// The failed jobs. Each is charged an attempt.
    pub failed: Vec<FailedJob>,
    /// The jobs that were not run. They go back to the store without charge.
    pub released: Positions,
    /// The jobs that were recalled before they began. The worker gives them to free slots.
    pub returned: Positions,
    /// The jobs that wait for their children.
    pub suspended: Vec<Suspended>,
    /// The duration of each entry of `suspended`, in microseconds, by which the worker learns how quick the jobs are. A
    /// report does not have them.
    pub suspended_us: Vec<u32>,
    /// The siblings of completed jobs. Functions spawn them through their [`JobContext`](crate::JobContext).
    pub siblings: Vec<Siblings>,
    /// The logs of jobs.
    pub logs: Vec<JobLog>,
    /// The earlier failed attempts that were repeated at once. Only the worker fills this list.
    pub earlier: Vec<EarlierFailure>,
    /// The statements of completed jobs for the transaction of their report. Only the worker fills this list. Jobs add
    /// statements through their [`JobContext`](crate::JobContext).
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
            suspended_us: Vec::new(),
            siblings: report.siblings,
            logs: report.logs,
            earlier: report.earlier,
            writes: report.writes,
        }
    }
}

impl Outcomes {
    /// Reports whether no job has an outcome.
    pub fn is_empty(&self) -> bool {
        self.completed.is_none()
            && self.failed.is_empty()
            && self.released.is_empty()
            && self.returned.is_empty()
            && self.suspended.is_empty()
    }

    /// The positions of all jobs with an outcome.
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
