//! Corrected items of a run: jobs with a new payload that stand for failed jobs.
//!
//! A payload never changes. If a line of the input was corrected, its new payload becomes another job of the run, with
//! a tag that names the replaced job. The results have the corrected job in the place of the replaced one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gristmill_model::{BatchId, JobId, JobState, PackedBuilder, Positions, RunId, TagCondition};
use gristmill_store::{BatchOutcomes, JobFilter, Store, StoreError, StoredFailure, StoredReport};

/// The tag of a corrected job: the id of the job that it stands for.
pub const TAG: &str = "corrects";

/// The number of batches in one query.
const PAGE_BATCHES: u32 = 256;

/// The corrected jobs of a run.
#[derive(Debug, Default)]
pub struct Corrections {
    /// The latest job that stands for each corrected one.
    jobs: BTreeMap<JobId, JobId>,
    /// The batches of the jobs that stand for others.
    batches: BTreeSet<BatchId>,
    /// The number of replaced jobs: corrected ones, and corrections that were corrected again.
    replaced: u64,
}

impl Corrections {
    /// Reads the corrections of a run.
    pub async fn of(store: &Arc<dyn Store>, run: RunId) -> Result<Corrections, StoreError> {
        let filter = JobFilter {
            run: Some(run),
            tags: vec![TagCondition::parse(TAG)],
            ..JobFilter::default()
        };
        let mut corrections = Corrections::default();
        let mut after = None;
        loop {
            let page = store.job_ids(&filter, after, PAGE_BATCHES).await?;
            let Some(last) = page.last() else {
                return Ok(corrections);
            };
            after = Some(last.batch);
            for found in page {
                corrections.batches.insert(found.batch);
                for position in found.positions.iter() {
                    let job = JobId {
                        batch: found.batch,
                        position,
                    };
                    let details = store.job(job).await?;
                    let corrected = details.and_then(|details| details.tags.get(TAG)?.parse().ok());
                    if let Some(corrected) = corrected {
                        corrections.jobs.insert(corrected, job);
                        corrections.replaced += 1;
                    }
                }
            }
        }
    }

    /// The number of replaced jobs, which are cancelled.
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    /// The corrected jobs, each with the job that stands for it.
    pub fn jobs(&self) -> &BTreeMap<JobId, JobId> {
        &self.jobs
    }

    /// Reports whether the jobs of a batch stand for others.
    pub fn are_in(&self, batch: BatchId) -> bool {
        self.batches.contains(&batch)
    }

    /// The positions of corrected jobs of a batch, each with the job that stands for it.
    pub fn of_batch(&self, batch: BatchId) -> BTreeMap<u32, JobId> {
        let at = |position| JobId { batch, position };
        let jobs = self.jobs.range(at(0)..=at(u32::MAX));
        jobs.map(|(corrected, job)| (corrected.position, *job)).collect()
    }

    /// Reports whether all jobs of a batch have ended, including the jobs that stand for some of them.
    pub async fn are_finished(&self, store: &Arc<dyn Store>, batch: BatchId) -> Result<bool, StoreError> {
        let others: BTreeSet<BatchId> = self.of_batch(batch).values().map(|job| job.batch).collect();
        for batch in others.into_iter().chain([batch]) {
            if !store.is_finished(batch).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The outcomes of a batch, with the outcomes of corrected jobs in their places.
    pub async fn outcomes(
        &self,
        store: &Arc<dyn Store>,
        batch: BatchId,
    ) -> Result<Option<BatchOutcomes>, StoreError> {
        let Some(mut outcomes) = store.outcomes(batch).await? else {
            return Ok(None);
        };
        let mut by_batch: BTreeMap<BatchId, Vec<(u32, u32)>> = BTreeMap::new();
        for (position, job) in self.of_batch(batch) {
            by_batch
                .entry(job.batch)
                .or_default()
                .push((position, job.position));
        }
        for (other, positions) in by_batch {
            let Some(other) = store.outcomes(other).await? else {
                continue;
            };
            for (position, by) in positions {
                substitute(&mut outcomes, position, &other, by)?;
            }
        }
        Ok(Some(outcomes))
    }
}

/// Replaces the outcome of a job by the outcome of another one, unless the first job has completed after all.
fn substitute(
    outcomes: &mut BatchOutcomes,
    position: u32,
    other: &BatchOutcomes,
    by: u32,
) -> Result<(), StoreError> {
    let one = Positions::from(position..position + 1);
    let report = outcomes
        .reports
        .iter_mut()
        .find(|report| report.positions.contains(position));
    if let Some(report) = report {
        if report.state == JobState::Completed {
            return Ok(());
        }
        report.positions = report.positions.difference(&one);
    }
    outcomes.errors.retain(|failure| failure.position != position);
    if let Some(failure) = other.failure(by) {
        let place = outcomes
            .errors
            .partition_point(|failure| failure.position < position);
        let failure = failure.clone();
        outcomes
            .errors
            .insert(place, StoredFailure { position, ..failure });
    }
    let Some(report) = other.reports.iter().find(|report| report.positions.contains(by)) else {
        return Ok(());
    };
    let index = report
        .positions
        .iter()
        .take_while(|position| *position < by)
        .count();
    let value = report
        .values
        .as_ref()
        .and_then(|values| values.items().nth(index));
    let values = value.map(|value| {
        let mut packed = PackedBuilder::new();
        packed.push(value).map(|()| packed.finish())
    });
    outcomes.reports.push(StoredReport {
        positions: one,
        values: values
            .transpose()
            .map_err(|error| StoreError::InvalidInput(error.to_string()))?,
        durations_us: report.durations_us.get(index).copied().into_iter().collect(),
        ..report.clone()
    });
    Ok(())
}
