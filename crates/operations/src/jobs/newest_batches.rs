//! Batches with matching jobs, the newest first. The store itself lists them in ascending order.

use gristmill_model::BatchId;
use gristmill_store::{BatchPositions, JobFilter, Store, StoreError};

use crate::limits::BATCH_IDS_LOOKED_AT_MAX;

/// The largest number of ids in one query. The first query has twice as many as the wanted rows, because most batches
/// match most filters. Each later query has twice as many as the one before.
const WINDOW_IDS_MAX: i64 = 4_000;

/// The number of batches in one step towards the newest matching batch.
const STEP_BATCHES: u32 = 16;

/// The newest matching batch, or 0 without one. The store lists ids in ascending order. Growing steps down from the newest batch of
/// all, and then shrinking ones, find it: two short queries where one of the last batches matches.
pub async fn newest(store: &dyn Store, filter: &JobFilter) -> Result<i64, StoreError> {
    let after = async |id: i64| -> Result<Option<i64>, StoreError> {
        let found = store.job_ids(filter, Some(BatchId(id)), STEP_BATCHES).await?;
        Ok(found.last().map(|jobs| jobs.batch.0))
    };
    let Some(BatchId(mut empty_after)) = store.newest_batch().await? else {
        return Ok(0);
    };
    let mut step = i64::from(STEP_BATCHES);
    let mut known = loop {
        let from = (empty_after - step).max(0);
        match after(from).await? {
            Some(found) => break found,
            None if from == 0 => return Ok(0),
            None => (empty_after, step) = (from, step.saturating_mul(2)),
        }
    };
    assert!(known > 0, "batches have positive ids");
    while known < empty_after {
        let middle = known + (empty_after - known) / 2;
        match after(middle).await? {
            Some(found) => known = found,
            None => empty_after = middle,
        }
    }
    Ok(known)
}

/// The matching jobs of batches from `newest` downwards, and the batch before which more may follow.
pub async fn descending(
    store: &dyn Store,
    filter: &JobFilter,
    newest: i64,
    rows_max: usize,
) -> Result<(Vec<BatchPositions>, Option<i64>), StoreError> {
    let mut batches = Vec::new();
    let mut window_ids = (2 * rows_max as i64).min(WINDOW_IDS_MAX);
    let (mut high, lowest) = (newest, newest.saturating_sub(BATCH_IDS_LOOKED_AT_MAX).max(0));
    while high > lowest {
        let low = (high - window_ids).max(lowest);
        window_ids = (2 * window_ids).min(WINDOW_IDS_MAX);
        assert!(lowest <= low && low < high, "each window is lower than the last");
        let window = u32::try_from(high - low).unwrap_or(u32::MAX);
        let found = store.job_ids(filter, Some(BatchId(low)), window).await?;
        for jobs in found.into_iter().rev().filter(|jobs| jobs.batch.0 <= high) {
            let last = jobs.batch.0;
            debug_assert!(
                batches
                    .last()
                    .is_none_or(|other: &BatchPositions| other.batch.0 > last)
            );
            batches.push(jobs);
            if batches.len() == rows_max {
                return Ok((batches, (last > 1).then_some(last)));
            }
        }
        high = low;
    }
    Ok((batches, (high > 0).then_some(high + 1)))
}
