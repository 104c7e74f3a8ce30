//! Compaction: small reports of an ended batch become one row.
//!
//! The row keeps the reports in two packed columns: `parts`, and `bodies` for durations, logs and values. Counts read
//! the row. Queries for single reports read the view `reported`, which restores the original reports. Completed jobs
//! never change, so compaction loses nothing.

use gristmill_model::BatchId;
use gristmill_model::limits::COMPACTED_BYTES_MAX;

/// The first batches that one transaction compacts. Each candidate comes with its bytes.
pub fn portion(candidates: Vec<(BatchId, u64)>) -> Vec<BatchId> {
    let mut left = u64::from(COMPACTED_BYTES_MAX);
    let fitting = candidates.into_iter().map_while(|(batch, bytes)| {
        left = left.checked_sub(bytes)?;
        Some(batch)
    });
    fitting.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portion_is_bounded_by_its_bytes() {
        let max = u64::from(COMPACTED_BYTES_MAX);
        let batches = |bytes: &[u64]| {
            let candidates = (1..).map(BatchId).zip(bytes.iter().copied());
            portion(candidates.collect()).len()
        };
        assert_eq!(batches(&[max, 1]), 1);
        assert_eq!(batches(&[max - 1, 1, 1]), 2);
        assert_eq!(batches(&[5, 6, 7]), 3);
        assert_eq!(batches(&[]), 0);
    }
}
