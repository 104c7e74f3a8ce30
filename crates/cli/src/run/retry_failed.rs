//! `gristmill run --retry-failed`: runs the failed items of a run again, with their current lines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::bail;
use gristmill_model::{
    BatchId, BatchLimits, BatchOptions, JobId, JobState, NewBatch, PackedBuilder, pack_tags,
};
use gristmill_store::run::RunProgress;
use gristmill_store::{Change, JobFilter, Run, RunAdvance, Selection, Store, StoreError};

use super::corrections::{Corrections, TAG};
use super::identity::queue_of;
use crate::input::{BatchReader, Input, InputBatch};
use crate::span::show_number_of;

/// The number of batches in one query.
const PAGE_BATCHES: u32 = 256;

/// The number of jobs in one change or submit.
const JOBS_AT_ONCE: usize = 1_000;

/// The bytes of corrected payloads in one submit.
const BYTES_AT_ONCE: usize = 4 << 20;

/// The numbers of items that run again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retried {
    /// Items with the same lines.
    pub same: u64,
    /// Items with corrected lines.
    pub corrected: u64,
    /// Items whose lines are still unreadable.
    pub unreadable: u64,
}

impl std::fmt::Display for Retried {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let again = show_number_of(self.same + self.corrected, "failed item");
        let (verb, corrected) = match self.same + self.corrected {
            1 => ("runs", self.corrected),
            _ => ("run", self.corrected),
        };
        write!(formatter, "{again} {verb} again")?;
        if corrected > 0 {
            write!(formatter, ", {corrected} with a changed line")?;
        }
        if self.unreadable > 0 {
            write!(
                formatter,
                "; {} cannot be read",
                show_number_of(self.unreadable, "item")
            )?;
        }
        Ok(())
    }
}

/// A failed item.
#[derive(Debug, Clone, Copy)]
struct Failed {
    /// The first job of the line.
    first: JobId,
    /// The job that stands for it now.
    current: JobId,
}

/// The failed items of a run.
pub struct FailedItems<'a> {
    store: &'a Arc<dyn Store>,
    run: &'a Run,
    kind: &'a str,
    options: &'a BatchOptions,
    corrections: Corrections,
    /// The run's batches without corrections, by the number of items before each.
    batches: BTreeMap<u64, BatchId>,
    /// The failed items, by the number of items before each.
    failed: BTreeMap<u64, Failed>,
    retried: Retried,
}

impl<'a> FailedItems<'a> {
    /// Finds the failed items.
    pub async fn of(
        store: &'a Arc<dyn Store>,
        run: &'a Run,
        kind: &'a str,
        options: &'a BatchOptions,
    ) -> Result<FailedItems<'a>, StoreError> {
        let corrections = Corrections::of(store, run.id).await?;
        let (mut batches, mut firsts) = (BTreeMap::new(), BTreeMap::new());
        let (mut items, mut after) = (0, None);
        loop {
            let page = store.run_batches(run.id, after, PAGE_BATCHES).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.batch);
            for row in page.iter().filter(|row| !corrections.are_in(row.batch)) {
                batches.insert(items, row.batch);
                firsts.insert(row.batch, items);
                items += u64::from(row.count);
            }
        }
        let ended = failed_jobs(store, run).await?;
        let index_of = |job: &JobId| Some(firsts.get(&job.batch)? + u64::from(job.position));
        let mut failed = BTreeMap::new();
        for job in &ended {
            if !corrections.jobs().contains_key(job)
                && let Some(index) = index_of(job)
            {
                failed.insert(
                    index,
                    Failed {
                        first: *job,
                        current: *job,
                    },
                );
            }
        }
        for (first, current) in corrections.jobs() {
            if ended.contains(current)
                && let Some(index) = index_of(first)
            {
                let (first, current) = (*first, *current);
                failed.insert(index, Failed { first, current });
            }
        }
        Ok(FailedItems {
            store,
            run,
            kind,
            options,
            corrections,
            batches,
            failed,
            retried: Retried::default(),
        })
    }

    /// Makes all of them claimable again. Their lines have not changed.
    pub async fn retry(mut self) -> Result<Retried, StoreError> {
        let jobs: Vec<JobId> = self.failed.values().map(|failed| failed.current).collect();
        self.retry_jobs(&jobs).await?;
        Ok(self.retried)
    }

    /// Reads the changed input in step with the run. Submits items with changed lines again, and makes the others
    /// claimable again. Afterwards the reader stands after the run's items. The neighbours of failed items are compared, unless the
    /// lines are known to be the same.
    pub async fn correct(
        mut self,
        input: &Input,
        limits: BatchLimits,
        compares_neighbours: bool,
    ) -> anyhow::Result<(Retried, BatchReader)> {
        let items = self.run.progress.jobs;
        let mut reader = input.open(limits)?.with_jobs_limit(Some(items));
        let neighbours = match compares_neighbours {
            true => self.neighbours(items),
            false => BTreeSet::new(),
        };
        let mut index = 0;
        let (mut same, mut corrected) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        while let Some(batch) = reader.next_batch()? {
            for (position, item) in batch.payloads.items().enumerate() {
                let at = index + position as u64;
                if let Some(failed) = self.failed.get(&at).copied() {
                    if is_rejected(&batch, position) {
                        self.retried.unreadable += 1;
                    } else if self.is_same(failed.current, item).await? {
                        same.push(failed.current);
                    } else {
                        bytes += item.len();
                        corrected.push((failed, item.to_owned()));
                    }
                } else if neighbours.contains(&at) && !self.is_same(self.job_at(at), item).await? {
                    bail!(
                        "item {} of {} has changed, and its job did not fail: correct the lines of failed items in \
                         their places, or run everything anew with --restart",
                        at + 1,
                        input.name()
                    );
                }
                if corrected.len() == JOBS_AT_ONCE || bytes > BYTES_AT_ONCE {
                    self.submit(std::mem::take(&mut corrected), self.run.progress)
                        .await?;
                    bytes = 0;
                }
                if same.len() == JOBS_AT_ONCE {
                    self.retry_jobs(&std::mem::take(&mut same)).await?;
                }
            }
            index += u64::from(batch.payloads.count());
        }
        if index < items {
            bail!(
                "{} has {index} items, and the run has {items}: correct the lines of failed items in their places, or \
                 run everything anew with --restart",
                input.name()
            );
        }
        self.retry_jobs(&same).await?;
        self.submit(corrected, reader.progress()).await?;
        Ok((self.retried, reader))
    }

    /// The items beside failed ones. If they have not changed, the failed items are still in their places.
    fn neighbours(&self, items: u64) -> BTreeSet<u64> {
        let beside = |index: &u64| [index.checked_sub(1), Some(index + 1).filter(|next| *next < items)];
        self.failed.keys().flat_map(beside).flatten().collect()
    }

    fn job_at(&self, index: u64) -> JobId {
        let (first, batch) = self
            .batches
            .range(..=index)
            .next_back()
            .map_or((index, BatchId(0)), |(first, batch)| (*first, *batch));
        let position = u32::try_from(index - first).unwrap_or(u32::MAX);
        let job = JobId { batch, position };
        self.corrections.jobs().get(&job).copied().unwrap_or(job)
    }

    /// Reports whether a job that could run has this payload.
    async fn is_same(&self, job: JobId, item: &str) -> Result<bool, StoreError> {
        let Some(details) = self.store.job(job).await? else {
            return Ok(false);
        };
        let is_rejected = details.failures.iter().any(|failure| failure.attempt == 0);
        Ok(!is_rejected && details.payload.get() == item)
    }

    async fn retry_jobs(&mut self, jobs: &[JobId]) -> Result<(), StoreError> {
        for jobs in jobs.chunks(JOBS_AT_ONCE) {
            let changed = self
                .store
                .change(Selection::Jobs(jobs.to_vec()), Change::Retry)
                .await?;
            self.retried.same += changed.changed;
            self.retried.unreadable += changed.unchanged;
        }
        Ok(())
    }

    /// Submits corrected items, and moves the run to this place of its input.
    async fn submit(
        &mut self,
        corrected: Vec<(Failed, String)>,
        progress: RunProgress,
    ) -> anyhow::Result<()> {
        let mut payloads = PackedBuilder::new();
        let mut tags = Vec::with_capacity(corrected.len());
        for (failed, item) in &corrected {
            payloads.push(item)?;
            tags.push(BTreeMap::from([(TAG.to_owned(), failed.first.to_string())]));
        }
        let batch = (!corrected.is_empty()).then(|| NewBatch {
            kind: self.kind.to_owned(),
            queue: queue_of(&self.run.name),
            payloads: payloads.finish(),
            options: self.options.clone(),
            rejected: Vec::new(),
            after: Vec::new(),
            tags: pack_tags(&tags),
            memos: None,
        });
        let advance = RunAdvance {
            run: self.run.id,
            progress,
            state: self.run.state,
        };
        self.store
            .submit(batch.into_iter().collect(), Some(advance))
            .await?;
        self.retried.corrected += corrected.len() as u64;
        // They no longer count as dead, because the corrected jobs stand for them.
        let replaced: Vec<JobId> = corrected.iter().map(|(failed, _)| failed.current).collect();
        if !replaced.is_empty() {
            self.store
                .change(Selection::Jobs(replaced), Change::Discard)
                .await?;
        }
        Ok(())
    }
}

/// The run's jobs that ended without a value.
async fn failed_jobs(store: &Arc<dyn Store>, run: &Run) -> Result<BTreeSet<JobId>, StoreError> {
    let filter = JobFilter {
        run: Some(run.id),
        states: vec![JobState::Dead, JobState::Cancelled, JobState::Expired],
        ..JobFilter::default()
    };
    let (mut jobs, mut after) = (BTreeSet::new(), None);
    loop {
        let page = store.job_ids(&filter, after, PAGE_BATCHES).await?;
        let Some(last) = page.last() else {
            return Ok(jobs);
        };
        after = Some(last.batch);
        for found in page {
            let batch = found.batch;
            jobs.extend(found.positions.iter().map(|position| JobId { batch, position }));
        }
    }
}

fn is_rejected(batch: &InputBatch, position: usize) -> bool {
    batch
        .rejected
        .binary_search_by_key(&position, |rejected| rejected.position as usize)
        .is_ok()
}
