//! Changes of all jobs that match a filter, in portions.
//!
//! Each portion is a transaction with a bounded number of jobs and batches. Claims, reports and submits continue
//! between two portions. After an error or an early end, the earlier portions stay. The same change can be repeated: it
//! finds the rest.

use std::collections::VecDeque;
use std::sync::Arc;

use gristmill_model::limits::PORTION_JOBS_MAX;
use gristmill_model::{BatchId, JobId, JobState};
use gristmill_store::rules::check::check_change;
use gristmill_store::{BatchPositions, Change, JobFilter, Selection, Store, StoreError};

/// The largest number of batches that one transaction changes. Each costs several statements.
const PORTION_BATCHES_MAX: usize = 250;

/// The largest number of batches that one query finds. A query may read all open work of a SQLite store, so one query
/// serves many portions.
const LOOKED_AT_BATCHES: u32 = 10_000;

/// A running change of all jobs that match a filter.
///
/// It finds jobs of the batches that exist at its start. It does not change jobs that begin to match after their batch
/// was read, or that no longer match when their turn comes.
#[derive(Debug)]
pub struct Portions {
    store: Arc<dyn Store>,
    filter: JobFilter,
    change: Change,
    /// The newest batch at the start of the change. `None` when all batches up to it were read.
    last: Option<BatchId>,
    /// The newest batch that was read.
    after: Option<BatchId>,
    /// The jobs that were found and not changed yet.
    found: VecDeque<BatchPositions>,
}

impl Portions {
    /// Starts a change, without changing a job yet. Fails with [`StoreError::InvalidInput`] if the filter or the change
    /// is wrong.
    pub async fn of(
        store: Arc<dyn Store>,
        filter: JobFilter,
        change: Change,
    ) -> Result<Portions, StoreError> {
        let selection = Selection::Filter(filter.clone());
        check_change(&selection, &change)?;
        let is_meant = |state: &&JobState| filter.states.is_empty() || filter.states.contains(*state);
        let states: Vec<JobState> = change.states().iter().filter(is_meant).copied().collect();
        let last = if states.is_empty() {
            None
        } else {
            store.newest_batch().await?
        };
        Ok(Portions {
            store,
            filter: JobFilter { states, ..filter },
            change,
            last,
            after: None,
            found: VecDeque::new(),
        })
    }

    /// The number of jobs that the change can still find.
    pub async fn matching(&self) -> Result<u64, StoreError> {
        match self.last {
            Some(_) => Ok(self.store.counts(&self.filter).await?.total()),
            None => Ok(0),
        }
    }

    /// Changes the next portion. Returns the number of changed jobs, or `None` if no jobs are left.
    pub async fn change_next(&mut self) -> Result<Option<u64>, StoreError> {
        if self.found.is_empty() {
            self.look().await?;
        }
        let jobs = self.next_portion();
        if jobs.is_empty() {
            return Ok(None);
        }
        let named: u64 = jobs.iter().map(|jobs| u64::from(jobs.positions.len())).sum();
        // A cancel that names a batch also cancels cleanups in it. A cancel of some states changes only jobs that are in them.
        let is_named = self.filter.batch.is_some() && self.filter.states == self.change.states();
        let selection = if is_named && self.change == Change::Cancel {
            let ids = jobs.iter().flat_map(|jobs| {
                let batch = jobs.batch;
                jobs.positions
                    .iter()
                    .map(move |position| JobId { batch, position })
            });
            Selection::Jobs(ids.collect())
        } else {
            let states = self.filter.states.clone();
            Selection::Packed { jobs, states }
        };
        let changed = self.store.change(selection, self.change.clone()).await?;
        assert!(
            changed.changed <= named,
            "{} jobs changed, but a portion has {named}",
            changed.changed
        );
        Ok(Some(changed.changed))
    }

    /// Changes all remaining portions. Returns the number of changed jobs.
    pub async fn change_all(&mut self) -> Result<u64, StoreError> {
        let mut changed = 0;
        while let Some(more) = self.change_next().await? {
            changed += more;
        }
        Ok(changed)
    }

    /// Finds the jobs of the next batches.
    async fn look(&mut self) -> Result<(), StoreError> {
        let Some(last) = self.last else { return Ok(()) };
        let page = self
            .store
            .job_ids(&self.filter, self.after, LOOKED_AT_BATCHES)
            .await?;
        let batches = page.iter().map(|jobs| Some(jobs.batch));
        assert!(
            std::iter::once(self.after)
                .chain(batches)
                .is_sorted_by(|one, next| one < next),
            "a page of ids ascends from its cursor"
        );
        self.after = page.last().map(|jobs| jobs.batch);
        if self.after.is_none_or(|after| after >= last) {
            self.last = None;
        }
        assert!(self.found.is_empty(), "a look begins when nothing is left");
        self.found
            .extend(page.into_iter().filter(|jobs| jobs.batch <= last));
        Ok(())
    }

    /// Takes the jobs of one transaction.
    fn next_portion(&mut self) -> Vec<BatchPositions> {
        let mut portion = Vec::new();
        let mut count = 0;
        while let Some(next) = self.found.pop_front_if(|next| {
            count += next.positions.len();
            portion.is_empty() || (portion.len() < PORTION_BATCHES_MAX && count <= PORTION_JOBS_MAX)
        }) {
            portion.push(next);
        }
        let jobs: u32 = portion.iter().map(|next| next.positions.len()).sum();
        assert!(
            portion.len() <= 1 || (portion.len() <= PORTION_BATCHES_MAX && jobs <= PORTION_JOBS_MAX),
            "a portion of {} batches and {jobs} jobs exceeds its limits",
            portion.len()
        );
        assert!(self.found.is_empty() || !portion.is_empty(), "it is used up");
        portion
    }
}
