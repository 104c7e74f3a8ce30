//! The newest jobs that match a filter, found through pages in the order of ids.
//!
//! The search begins behind the newest batch, and doubles its distance until a page is full. Then it bisects to the
//! place after which exactly the wanted jobs follow. So it reads little more than those jobs, whatever the store has
//! before them.

use gristmill_model::limits::BATCH_JOBS_MAX;
use gristmill_model::{BatchId, JobId};

use crate::{JobFilter, JobRow, Page, Store, StoreError};

/// Reads the matching jobs with the highest ids, in descending order of id, at most `limit`.
pub async fn newest_jobs<S: Store + ?Sized>(
    store: &S,
    filter: &JobFilter,
    limit: u32,
) -> Result<Vec<JobRow>, StoreError> {
    let page = |after: JobId| {
        let page = Page {
            after: Some(after),
            limit,
        };
        store.jobs(filter, page)
    };
    let is_full = |rows: &[JobRow]| rows.len() as u64 >= u64::from(limit);
    // The page behind `full` is full, and the page behind `short` is not. If `full` is 0, there are no more jobs.
    let mut short = newest_batch(store).await?;
    let mut reach = 1;
    let mut full = loop {
        let from = (short - reach).max(0);
        if from == 0 || is_full(&page(end_of(from)).await?) {
            break from;
        }
        (short, reach) = (from, reach * 2);
    };
    while full + 1 < short {
        let middle = full + (short - full) / 2;
        if is_full(&page(end_of(middle)).await?) {
            full = middle;
        } else {
            short = middle;
        }
    }
    // Bisect the positions of the batch behind `full` in the same way.
    assert!(full < short || full == 0, "a bisection ends between two");
    let batch = BatchId(full + 1);
    let mut rows = page(end_of(full)).await?;
    let (mut next, mut short) = (0, BATCH_JOBS_MAX);
    while next < short {
        let position = next + (short - next) / 2;
        let found = page(JobId { batch, position }).await?;
        if is_full(&found) {
            (next, rows) = (position + 1, found);
        } else {
            short = position;
        }
    }
    assert!(rows.len() as u64 <= u64::from(limit), "a page keeps to its limit");
    assert!(
        rows.is_sorted_by(|row, next| row.job < next.job),
        "a page is in the order of ids"
    );
    rows.reverse();
    Ok(rows)
}

/// The place behind a batch's last job.
fn end_of(batch: i64) -> JobId {
    JobId {
        batch: BatchId(batch),
        position: BATCH_JOBS_MAX,
    }
}

/// Finds the highest id of a batch; 0 if there is none.
async fn newest_batch<S: Store + ?Sized>(store: &S) -> Result<i64, StoreError> {
    let any = JobFilter::default();
    let next = |after: i64| {
        let page = Page {
            after: Some(end_of(after)),
            limit: 1,
        };
        store.jobs(&any, page)
    };
    let (mut newest, mut reach) = (0_i64, 1_i64);
    while let [found] = next(newest.saturating_add(reach - 1)).await?.as_slice() {
        (newest, reach) = (found.job.batch.0, reach.saturating_mul(2));
    }
    while reach > 1 {
        reach /= 2;
        if let [found] = next(newest.saturating_add(reach - 1)).await?.as_slice() {
            newest = found.job.batch.0;
        }
    }
    Ok(newest)
}
