//! Ended jobs.

use std::sync::Arc;

use gristmill_store::history::HistoryRows;
use gristmill_store::{HistoryFilter, HistoryRow};

use crate::database::columns::{read_state, sum};
use crate::database::snapshot::Snapshot;
use crate::failure::{Failure, Result};

/// Equal reports are counted together, so that reports of single jobs are not all transferred.
const HISTORY: &str = "SELECT l.queue, l.kind, e.period, e.state, e.jobs, e.reports, e.buckets, e.sum_us FROM ( \
     SELECT b.lane_id, r.finished_at / $5::bigint AS period, r.state, sum(r.count) AS jobs, count(*) AS reports, \
     r.duration_buckets AS buckets, coalesce(sum(r.durations_sum_us), 0)::bigint AS sum_us \
     FROM gristmill.reported r JOIN gristmill.batch b ON b.id = r.batch_id \
     WHERE r.row_finished_at >= $1 AND r.finished_at >= $1 AND r.finished_at < $2 \
     AND b.lane_id = ANY (ARRAY(SELECT l.id FROM gristmill.lane l \
     WHERE ($3::text IS NULL OR l.kind = $3) AND ($4::text IS NULL OR l.queue = $4))) \
     GROUP BY b.lane_id, period, r.state, r.duration_buckets) e JOIN gristmill.lane l ON l.id = e.lane_id";

/// How many jobs ended in each state, and how long they took.
pub(crate) async fn history(snapshot: &Snapshot, filter: &HistoryFilter) -> Result<Vec<HistoryRow>> {
    let since = filter.since.map_or(i64::MIN, |moment| moment.0);
    let until = filter.until.map_or(i64::MAX, |moment| moment.0);
    let rows = snapshot
        .query(
            HISTORY,
            &[
                &since,
                &until,
                &filter.kind,
                &filter.queue,
                &filter.by.length_ms(),
            ],
        )
        .await?;
    let mut history = HistoryRows::new(filter);
    for row in &rows {
        let queue: Arc<str> = row.try_get::<_, &str>(0)?.into();
        let kind: Arc<str> = row.try_get::<_, &str>(1)?.into();
        let entry = history.row(row.try_get(2)?, &queue, &kind)?;
        entry.add(read_state(row, 3)?, sum(row, 4)?);
        if let Some(buckets) = row.try_get::<_, Option<&str>>(6)? {
            let added = entry.durations.add_buckets(buckets, sum(row, 5)?, sum(row, 7)?);
            added.ok_or_else(|| Failure::Damaged(format!("`{buckets}` are no durations")))?;
        }
    }
    Ok(history.into_rows())
}
