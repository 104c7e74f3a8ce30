//! The newest jobs that match a filter, found through pages in the order of ids.
//!
//! The search begins at the newest batch, and doubles its distance until a page is full. Then it bisects to the batch in
//! which the wanted jobs begin. So it reads little more than those jobs, whatever the store has before them: five short
//! queries where the newest batch has enough of them.

use gristmill_model::limits::BATCH_JOBS_MAX;
use gristmill_model::{BatchId, JobId, Positions};

use crate::{JobFilter, JobRow, Page, Store, StoreError};

/// The maximum number of searches for the batch in which the wanted jobs begin. A second one follows if jobs begin to match meanwhile.
const SEARCHES_MAX: usize = 8;

/// Reads the matching jobs with the highest ids, in descending order of id, at most `limit`.
pub async fn newest_jobs<S: Store + ?Sized>(
    store: &S,
    filter: &JobFilter,
    limit: u32,
) -> Result<Vec<JobRow>, StoreError> {
    let pages = StorePages { store, filter, limit };
    let mut rows = last_page(&pages, limit).await?;
    assert!(rows.len() as u64 <= u64::from(limit), "a page keeps to its limit");
    assert!(
        rows.is_sorted_by(|row, next| row.job < next.job),
        "a page is in the order of ids"
    );
    rows.reverse();
    Ok(rows)
}

/// The queries of a search.
trait Pages {
    /// The batch with the highest id.
    fn newest_batch(&self) -> impl Future<Output = Result<Option<BatchId>, StoreError>> + Send;

    /// The first matching jobs after this one, by id ascending.
    fn page(&self, after: JobId) -> impl Future<Output = Result<Vec<JobRow>, StoreError>> + Send;

    /// The positions of the matching jobs of a batch.
    fn positions(&self, batch: BatchId) -> impl Future<Output = Result<Positions, StoreError>> + Send;
}

struct StorePages<'a, S: ?Sized> {
    store: &'a S,
    filter: &'a JobFilter,
    limit: u32,
}

impl<S: Store + ?Sized> Pages for StorePages<'_, S> {
    async fn newest_batch(&self) -> Result<Option<BatchId>, StoreError> {
        self.store.newest_batch().await
    }

    async fn page(&self, after: JobId) -> Result<Vec<JobRow>, StoreError> {
        let page = Page {
            after: Some(after),
            limit: self.limit,
        };
        self.store.jobs(self.filter, page).await
    }

    async fn positions(&self, batch: BatchId) -> Result<Positions, StoreError> {
        let before = Some(BatchId(batch.0 - 1));
        let matching = self.store.job_ids(self.filter, before, 1).await?;
        let matching = matching.into_iter().find(|jobs| jobs.batch == batch);
        Ok(matching.map_or_else(Positions::new, |jobs| jobs.positions))
    }
}

/// The jobs of the batches that exist at the beginning. Jobs of these can begin to match during the search: the batch in which the
/// wanted jobs begin is then a later one, and the search goes on from there.
async fn last_page(pages: &impl Pages, limit: u32) -> Result<Vec<JobRow>, StoreError> {
    let Some(newest) = pages.newest_batch().await? else {
        return Ok(Vec::new());
    };
    let page = async |after: JobId| {
        let mut rows = pages.page(after).await?;
        rows.retain(|row| row.job.batch <= newest);
        Ok::<_, StoreError>(rows)
    };
    let is_full = |rows: &[JobRow]| rows.len() as u64 >= u64::from(limit);
    // The page behind `full` is full, and the page behind `short` is not.
    let mut short = newest.0;
    let mut reach = 1;
    let mut full = loop {
        let from = (short - reach).max(0);
        let rows = page(end_of(from)).await?;
        if is_full(&rows) {
            break from;
        }
        if from == 0 {
            return Ok(rows);
        }
        (short, reach) = (from, reach * 2);
    };
    for _ in 0..SEARCHES_MAX {
        while full + 1 < short {
            let middle = full + (short - full) / 2;
            if is_full(&page(end_of(middle)).await?) {
                full = middle;
            } else {
                short = middle;
            }
        }
        assert_eq!(full + 1, short, "a bisection ends between two");
        let later = page(end_of(short)).await?;
        if is_full(&later) {
            (full, short) = (short, newest.0);
            continue;
        }
        // The last jobs of this batch, before all of the later ones.
        let wanted = limit - later.len() as u32;
        let positions = pages.positions(BatchId(short)).await?;
        let first = positions.len().saturating_sub(wanted);
        let after = match positions.select(&Positions::from(first..first + 1)).first() {
            Some(position) if position > 0 => JobId {
                batch: BatchId(short),
                position: position - 1,
            },
            _ => end_of(full),
        };
        let mut rows = page(after).await?;
        rows.retain(|row| row.job.batch.0 == short);
        rows.truncate(wanted as usize);
        rows.extend(later);
        return Ok(rows);
    }
    // Jobs keep beginning to match; these are among the newest.
    page(end_of(full)).await
}

/// The place behind a batch's last job.
fn end_of(batch: i64) -> JobId {
    JobId {
        batch: BatchId(batch),
        position: BATCH_JOBS_MAX,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::executor::block_on;
    use gristmill_model::{JobState, Timestamp};

    use super::*;

    const LIMIT: u32 = 10;

    /// Matching jobs of the batches from 1 on, before a query and from it on.
    struct Changing {
        before: Vec<u32>,
        after: Vec<u32>,
        changes_at: usize,
        queries: AtomicUsize,
    }

    impl Changing {
        fn ask(&self) -> &[u32] {
            match self.queries.fetch_add(1, Ordering::Relaxed) {
                query if query < self.changes_at => &self.before,
                _ => &self.after,
            }
        }
    }

    fn jobs_of(batches: &[u32]) -> impl DoubleEndedIterator<Item = JobId> {
        let batches = (1..).map(BatchId).zip(batches.iter().copied());
        let jobs: Vec<JobId> = batches
            .flat_map(|(batch, jobs)| (0..jobs).map(move |position| JobId { batch, position }))
            .collect();
        jobs.into_iter()
    }

    fn newest_of(batches: &[u32]) -> Vec<JobId> {
        let mut jobs: Vec<JobId> = jobs_of(batches).rev().take(LIMIT as usize).collect();
        jobs.reverse();
        jobs
    }

    fn row(job: JobId) -> JobRow {
        JobRow {
            job,
            kind: "k".into(),
            queue: "q".into(),
            group: None,
            state: JobState::Completed,
            attempt: 1,
            priority: 0,
            submitted_at: Timestamp(0),
            run_at: None,
            finished_at: None,
            claimed_at: None,
            progress: None,
            error: None,
        }
    }

    impl Pages for Changing {
        async fn newest_batch(&self) -> Result<Option<BatchId>, StoreError> {
            Ok(Some(BatchId(self.ask().len() as i64)))
        }

        async fn page(&self, after: JobId) -> Result<Vec<JobRow>, StoreError> {
            let jobs = jobs_of(self.ask()).filter(|job| *job > after);
            Ok(jobs.take(LIMIT as usize).map(row).collect())
        }

        async fn positions(&self, batch: BatchId) -> Result<Positions, StoreError> {
            let jobs = self.ask()[batch.0 as usize - 1];
            Ok(Positions::all(jobs))
        }
    }

    /// Checks the answer for a change before each query of a search.
    fn check(before: &[u32], after: &[u32]) {
        let allowed = [newest_of(before), newest_of(after)].concat();
        for changes_at in 0..30 {
            let pages = Changing {
                before: before.to_vec(),
                after: after.to_vec(),
                changes_at,
                queries: AtomicUsize::new(0),
            };
            let rows = block_on(last_page(&pages, LIMIT)).unwrap();
            let jobs: Vec<JobId> = rows.iter().map(|row| row.job).collect();
            let case = format!("{before:?} became {after:?} at {changes_at}: {jobs:?}");
            assert_eq!(jobs.len(), LIMIT as usize, "{case}");
            assert!(jobs.is_sorted_by(|job, next| job < next), "{case}");
            assert!(jobs.iter().all(|job| allowed.contains(job)), "{case}");
        }
    }

    const BATCHES: [u32; 12] = [30, 0, 4, 4, 100, 1, 0, 2, 3, 0, 1, 1];

    #[test]
    fn a_batch_that_is_submitted_during_the_search_shows_none_of_its_first_jobs() {
        for jobs in [1, LIMIT, 1_000] {
            check(&BATCHES, &[&BATCHES[..], &[jobs]].concat());
            check(&[1_000], &[1_000, jobs]);
        }
    }

    #[test]
    fn jobs_that_begin_to_match_during_the_search_show_none_of_the_first_ones() {
        let without = BATCHES.iter().enumerate().filter(|(_, jobs)| **jobs == 0);
        for (changed, _) in without {
            for jobs in [LIMIT, 1_000] {
                let mut after = BATCHES;
                after[changed] = jobs;
                check(&BATCHES, &after);
            }
        }
    }
}
