//! Checks the promises of Gristmill at each operation on the store.
//!
//! The checker sees the answers of all handles of the store, in the order of the commits. It remembers the lease that
//! holds each job, and the end of each job.

use std::collections::{BTreeMap, BTreeSet};

use gristmill_model::{BatchId, JobId, JobState, LeaseId, PackedArray, Positions, Receipt, Report, WorkerId};
use gristmill_store::{BatchOutcomes, Exchanged, JobRow};

use crate::limits::LIMITED_JOBS_MAX;

/// The kind with a limit of concurrent jobs.
pub const LIMITED: &str = "limited";

/// The end of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ending {
    Completed(String),
    Dead,
    /// Cancelled or expired. Only steps of flows end so.
    Dropped,
}

/// The holder of a job.
#[derive(Debug, Clone, Copy)]
struct Holder {
    lease: LeaseId,
    worker: WorkerId,
    is_limited: bool,
}

/// The known facts about all jobs.
#[derive(Debug, Default)]
pub struct Checker {
    /// The number of jobs in each submitted batch.
    stored: BTreeMap<BatchId, u32>,
    /// The claimed batches. Those that nobody submitted have steps of flows.
    claimed: BTreeSet<BatchId>,
    /// The outcomes of steps that flows have seen, by the flow and the step.
    seen: BTreeMap<(JobId, String), String>,
    holders: BTreeMap<JobId, Holder>,
    ended: BTreeMap<JobId, Ending>,
    /// The number of jobs that died because too many workers died with them. The store reports the number, but not the jobs.
    died_with_workers: u64,
}

/// The text of a broken promise.
pub type Violation = String;

fn jobs(batch: BatchId, positions: &Positions) -> impl Iterator<Item = JobId> {
    positions.iter().map(move |position| JobId { batch, position })
}

impl Checker {
    /// Adds a committed batch with at least `count` jobs.
    pub fn stored(&mut self, batch: BatchId, count: u32) {
        let known = self.stored.entry(batch).or_default();
        *known = count.max(*known);
    }

    /// Checks the acknowledgement of a batch.
    pub fn acknowledged(&self, batch: BatchId, count: u32) -> Result<(), Violation> {
        match self.stored.get(&batch) {
            Some(stored) if *stored >= count => Ok(()),
            stored => Err(format!(
                "batch {batch} of {count} jobs was acknowledged, but {stored:?} jobs are stored"
            )),
        }
    }

    /// Checks and adds an exchange of the store.
    pub fn exchanged(
        &mut self,
        worker: WorkerId,
        reports: &[Report],
        exchanged: &Exchanged,
    ) -> Result<(), Violation> {
        if reports.len() != exchanged.receipts.len() {
            return Err(format!(
                "{} reports have {} receipts",
                reports.len(),
                exchanged.receipts.len()
            ));
        }
        for (report, receipt) in reports.iter().zip(&exchanged.receipts) {
            self.reported(worker, report, receipt)?;
        }
        let Some(lease) = &exchanged.lease else {
            return Ok(());
        };
        for slice in &lease.slices {
            self.claimed.insert(slice.batch);
            for job in jobs(slice.batch, &slice.positions) {
                if let Some(ending) = self.ended.get(&job) {
                    return Err(format!("job {job} ended as {ending:?}, but was claimed again"));
                }
                let holder = Holder {
                    lease: slice.lease,
                    worker,
                    is_limited: &*slice.kind == LIMITED,
                };
                if let Some(other) = self.holders.insert(job, holder) {
                    return Err(format!("job {job} is held twice: by {other:?} and by {holder:?}"));
                }
            }
        }
        let limited = self.holders.values().filter(|holder| holder.is_limited).count();
        if limited > LIMITED_JOBS_MAX as usize {
            return Err(format!(
                "{limited} jobs of the kind `{LIMITED}` run, but only {LIMITED_JOBS_MAX} may run"
            ));
        }
        Ok(())
    }

    fn reported(&mut self, worker: WorkerId, report: &Report, receipt: &Receipt) -> Result<(), Violation> {
        for job in jobs(report.batch, &receipt.accepted) {
            match self.holders.remove(&job) {
                Some(holder) if holder.lease == report.lease && holder.worker == worker => {}
                holder => {
                    return Err(format!(
                        "the store accepted a report of worker {worker} under lease {} on job {job}, but the holder is {holder:?}",
                        report.lease
                    ));
                }
            }
        }
        // A worker whose lease is lost may read children that a later run of the flow began.
        let of_flow = report
            .failed
            .iter()
            .find(|failed| failed.error.error_type == "flow" && receipt.accepted.contains(failed.position));
        if let Some(failed) = of_flow {
            let (batch, position) = (report.batch, failed.position);
            let message = &failed.error.message;
            return Err(format!("flow {batch}:{position} cannot go on: {message}"));
        }
        if let Some(completed) = &report.completed {
            let items = completed.positions.iter().zip(completed.values.items());
            for (position, value) in items.filter(|(position, _)| receipt.accepted.contains(*position)) {
                self.end(report.batch, position, Ending::Completed(value.to_owned()))?;
            }
        }
        for position in receipt.dead.iter() {
            self.end(report.batch, position, Ending::Dead)?;
        }
        Ok(())
    }

    fn end(&mut self, batch: BatchId, position: u32, ending: Ending) -> Result<(), Violation> {
        let job = JobId { batch, position };
        match self.ended.insert(job, ending.clone()) {
            None => Ok(()),
            Some(before) => Err(format!("job {job} has two outcomes: {before:?} and {ending:?}")),
        }
    }

    /// Adds a rescue: these workers lost their leases.
    pub fn rescued(&mut self, workers: &[WorkerId], dead: u64) {
        self.holders.retain(|_, holder| !workers.contains(&holder.worker));
        self.died_with_workers += dead;
    }

    /// Adds the farewell of a worker.
    pub fn left(&mut self, worker: WorkerId) {
        self.holders.retain(|_, holder| holder.worker != worker);
    }

    /// Checks the outcome of a step that a flow sees: each run of the flow sees the same one.
    pub fn saw(&mut self, flow: JobId, step: &str, outcome: String) -> Result<(), Violation> {
        let seen = self
            .seen
            .entry((flow, step.to_owned()))
            .or_insert_with(|| outcome.clone());
        if *seen == outcome {
            Ok(())
        } else {
            Err(format!(
                "step `{step}` of flow {flow} had the outcome {seen}, and now has {outcome}"
            ))
        }
    }

    /// The number of submitted jobs, and the number of flows that have seen the outcome of a step.
    pub fn counts(&self) -> (u64, u64) {
        assert!(
            self.holders.keys().all(|job| !self.ended.contains_key(job)),
            "a job with an end has no holder"
        );
        let flows: BTreeSet<JobId> = self.seen.keys().map(|(flow, _)| *flow).collect();
        let stored = self.stored.values().copied().map(u64::from).sum();
        (stored, flows.len() as u64)
    }

    /// All submitted batches, and all claimed batches.
    pub fn batches(&self) -> Vec<BatchId> {
        let all: BTreeSet<BatchId> = self.stored.keys().chain(&self.claimed).copied().collect();
        all.into_iter().collect()
    }

    /// Compares the stored outcomes of a batch with the accepted outcomes. Returns the number of jobs that died with workers.
    pub fn compare(&self, batch: BatchId, outcomes: Option<&BatchOutcomes>) -> Result<u64, Violation> {
        let submitted = self.stored.get(&batch).copied();
        let is_whole = |outcomes: &&BatchOutcomes| submitted.is_none_or(|count| outcomes.count == count);
        let Some(outcomes) = outcomes.filter(is_whole) else {
            return Err(format!(
                "batch {batch} of {submitted:?} jobs is not stored, or is different: {outcomes:?}"
            ));
        };
        let mut endings: BTreeMap<u32, Ending> = BTreeMap::new();
        for report in &outcomes.reports {
            let mut values = report.values.as_ref().map(PackedArray::items);
            for position in report.positions.iter() {
                let value = values.as_mut().and_then(|values| values.next());
                let ending = match report.state {
                    JobState::Cancelled | JobState::Expired => Ending::Dropped,
                    _ => value.map_or(Ending::Dead, |value| Ending::Completed(value.to_owned())),
                };
                if endings.insert(position, ending).is_some() {
                    return Err(format!("job {batch}:{position} is stored with two outcomes"));
                }
            }
        }
        let mut died_with_workers = 0;
        for position in 0..outcomes.count {
            let job = JobId { batch, position };
            match (self.ended.get(&job), endings.get(&position)) {
                (accepted, stored) if accepted == stored && stored.is_some() => {}
                (None, Some(Ending::Dead)) => died_with_workers += 1,
                (None, Some(Ending::Dropped)) if submitted.is_none() => {}
                (accepted, stored) => {
                    return Err(format!(
                        "job {job} is stored as {stored:?}, but {accepted:?} was accepted"
                    ));
                }
            }
        }
        Ok(died_with_workers)
    }

    /// Checks jobs that wait for the clock. Clients ask for no delay, so no job may wait before its first attempt.
    pub fn scheduled(jobs: &[JobRow]) -> Result<(), Violation> {
        match jobs.iter().find(|job| job.attempt == 1) {
            None => Ok(()),
            Some(job) => Err(format!(
                "job {} waits until {:?}, but its client asked for no delay",
                job.job, job.run_at
            )),
        }
    }

    /// Compares the number of jobs that died with workers with the number that the store reported.
    pub fn compare_died_with_workers(&self, died: u64) -> Result<(), Violation> {
        if died == self.died_with_workers {
            Ok(())
        } else {
            Err(format!(
                "{died} jobs are dead without a report, but the store reported {}",
                self.died_with_workers
            ))
        }
    }
}
