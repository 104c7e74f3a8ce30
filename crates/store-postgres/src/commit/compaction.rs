//! Compacts the small reports of ended batches. The view `reported` returns them as they came.

use gristmill_model::BatchId;
use gristmill_model::limits::{
    COMPACTED_BATCHES_BACK, COMPACTED_BATCHES_PER_TRANSACTION, COMPACTED_BYTES_MAX, SMALL_REPORT_BYTES_MAX,
};
use gristmill_store::rules::compaction::portion;

use crate::database::columns::sum;
use crate::database::snapshot::Snapshot;
use crate::database::transaction::Transaction;
use crate::failure::Result;

/// Batches after `$1` among the latest `$2` ended ones, with more than `$3` small reports, by id.
const CANDIDATES: &str = "SELECT b.id, e.bytes FROM gristmill.batch b CROSS JOIN LATERAL ( \
     SELECT count(*) AS reports, sum(e.bytes) AS bytes FROM ( \
     SELECT coalesce(octet_length(r.durations), 0) + coalesce(octet_length(r.logs), 0) + coalesce(octet_length(r.\"values\"), 0) \
     AS bytes FROM gristmill.report r WHERE r.batch_id = b.id AND r.state = 'completed' AND r.parts IS NULL) e \
     WHERE e.bytes <= $4) e WHERE b.id > greatest($1, (SELECT max(id) FROM gristmill.batch) - $2::bigint) \
     AND e.reports > $3 AND e.bytes <= $5 \
     AND NOT EXISTS (SELECT FROM gristmill.slice WHERE batch_id = b.id) \
     AND NOT EXISTS (SELECT FROM gristmill.held WHERE batch_id = b.id) \
     AND NOT EXISTS (SELECT FROM gristmill.blocked WHERE batch_id = b.id) ORDER BY b.id LIMIT $6";

const COMPACT: &str = "SELECT gristmill.compact($1, $2, $3, $4)";

/// The next batches to compact.
pub(crate) async fn candidates(
    snapshot: &Snapshot,
    after: BatchId,
    reports_max: u32,
) -> Result<Vec<BatchId>> {
    let rows = snapshot
        .query(
            CANDIDATES,
            &[
                &after.0,
                &i64::from(COMPACTED_BATCHES_BACK),
                &i64::from(reports_max),
                &SMALL_REPORT_BYTES_MAX.cast_signed(),
                &i64::from(COMPACTED_BYTES_MAX),
                &i64::from(COMPACTED_BATCHES_PER_TRANSACTION),
            ],
        )
        .await?;
    let candidates = rows
        .iter()
        .map(|row| Ok((BatchId(row.try_get(0)?), sum(row, 1)?)));
    Ok(portion(candidates.collect::<Result<_>>()?))
}

impl Transaction {
    /// Compacts those of the batches that are still ended. Returns how many reports it removed.
    pub async fn compact(&self, batches: &[BatchId], reports_max: u32) -> Result<u64> {
        let batches: Vec<i64> = batches.iter().map(|batch| batch.0).collect();
        let row = self
            .query_opt(
                COMPACT,
                &[
                    &batches,
                    &i64::from(reports_max),
                    &i64::from(SMALL_REPORT_BYTES_MAX),
                    &i64::from(COMPACTED_BYTES_MAX),
                ],
            )
            .await?;
        row.map_or(Ok(0), |row| sum(&row, 0))
    }
}
