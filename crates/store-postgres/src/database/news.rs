//! What an operation tells workers that wait for jobs.

/// What an operation changes for workers that wait.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct News {
    /// Whether jobs may become claimable, now or later.
    pub woke: bool,
    /// The number of further jobs that become claimable, without those that this operation has claimed itself.
    pub jobs_made: u64,
    /// Whether slots may have become free that a worker waits for.
    pub freed: bool,
    /// Whether the operation has changed slices that were there before, so that a claim cannot tell those that it has made.
    pub changed_slices: bool,
}

impl News {
    /// Whether workers that wait must be woken.
    pub fn wakes(&self) -> bool {
        self.woke || self.freed || self.jobs_made > 0
    }

    /// Takes note of a claim that took this number of the jobs that this operation has made claimable: nobody else needs to
    /// look for them. If it is unclear which jobs those were, others look in vain, which does no harm.
    pub fn claimed_itself(&mut self, jobs: u64) {
        if !self.changed_slices {
            self.jobs_made = self.jobs_made.checked_sub(jobs).unwrap_or(self.jobs_made);
        }
    }
}
