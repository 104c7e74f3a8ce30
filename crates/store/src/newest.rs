//! The newest jobs that match a filter, found through pages in the order of ids.
//!
//! The search begins at the newest batch, and doubles its distance until a page is full. Then it bisects to the batch in
//! which the wanted jobs begin. So it reads little more than those jobs, whatever the store has before them: five short
//! queries where the newest batch has enough of them.

use gristmill_model::limits::BATCH_JOBS_MAX;
use gristmill_model::{BatchId, JobId, Positions};

use crate::{JobFilter, JobRow, Page, Store, StoreError};

/// Reads the matching jobs with the highest ids, in descending order of id, at most `limit`.
pub async fn newest_jobs<S: Store + ?Sized>(
    store: &S,
    filter: &JobFilter,
    limit: u32,
) -> Result<Vec<JobRow>, StoreError> {
    let mut rows = last_page(store, filter, limit).await?;
    assert!(rows.len() as u64 <= u64::from(limit), "a page keeps to its limit");
    assert!(
        rows.is_sorted_by(|row, next| row.job < next.job),
        "a page is in the order of ids"
    );
    rows.reverse();
    Ok(rows)
}

async fn last_page<S: Store + ?Sized>(
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
    // The page behind `full` is full, and the page behind `short` is not.
    let Some(BatchId(mut short)) = store.newest_batch().await? else {
        return Ok(Vec::new());
    };
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
    while full + 1 < short {
        let middle = full + (short - full) / 2;
        if is_full(&page(end_of(middle)).await?) {
            full = middle;
        } else {
            short = middle;
        }
    }
    assert_eq!(full + 1, short, "a bisection ends between two");
    // The last jobs of this batch, before all of the later ones.
    let later = page(end_of(short)).await?.len() as u32;
    let matching = store.job_ids(filter, Some(BatchId(full)), 1).await?;
    let matching = matching.into_iter().find(|jobs| jobs.batch.0 == short);
    let positions = matching.map_or_else(Positions::new, |jobs| jobs.positions);
    let first = (positions.len() + later).saturating_sub(limit);
    let after = match positions.select(&Positions::from(first..first + 1)).first() {
        Some(position) if position > 0 => JobId {
            batch: BatchId(short),
            position: position - 1,
        },
        _ => end_of(full),
    };
    page(after).await
}

/// The place behind a batch's last job.
fn end_of(batch: i64) -> JobId {
    JobId {
        batch: BatchId(batch),
        position: BATCH_JOBS_MAX,
    }
}
