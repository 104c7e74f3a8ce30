//! Lanes with due jobs, for workers that claim without success.

use gristmill_model::Timestamp;
use gristmill_store::Want;
use gristmill_store::rules::admission::held_back::{DUE_LANES_MAX, WANTED_LANES_MAX};
use gristmill_store::rules::lanes::{LOOK_LANES_MAX, Lane};
use tokio_postgres::Row;

use crate::claim::{heads, lane_ids};
use crate::database::snapshot::Snapshot;
use crate::failure::Result;

/// Of the first `$3` lanes that have slices, those of the queues `$1` and the kinds `$2` (of all, if there are none):
/// at most `$4`.
const WANTED: &str = "WITH RECURSIVE busy (id) AS ( \
     (SELECT s.lane_id FROM gristmill.slice s ORDER BY s.lane_id LIMIT 1) \
     UNION ALL SELECT (SELECT s.lane_id FROM gristmill.slice s WHERE s.lane_id > b.id ORDER BY s.lane_id LIMIT 1) \
     FROM busy b WHERE b.id IS NOT NULL) \
     SELECT l.id, l.queue, l.kind, l.job_group FROM (SELECT id FROM busy WHERE id IS NOT NULL LIMIT $3) b \
     JOIN gristmill.lane l ON l.id = b.id \
     WHERE l.queue = ANY ($1) AND (cardinality($2::text[]) = 0 OR l.kind = ANY ($2)) LIMIT $4";

/// Those of the lanes `$1` with slices up to rank `$3` that were due at `$2` and do not expire before `$4`.
const DUE: &str = heads!(
    "SELECT DISTINCT h.lane_id FROM head h CROSS JOIN LATERAL (SELECT FROM gristmill.slice s \
     WHERE s.lane_id = h.lane_id AND s.rank = h.rank AND s.run_at <= $2 AND (s.expires_at IS NULL OR s.expires_at > $4) LIMIT 1) s \
     WHERE h.rank IS NOT NULL ORDER BY 1 LIMIT $5"
);

/// Wanted lanes that have slices, at most `lanes_max`.
async fn wanted_lanes(snapshot: &Snapshot, want: &Want, lanes_max: usize) -> Result<Vec<Lane>> {
    let names = |names: &[std::sync::Arc<str>]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (queues, kinds) = (names(&want.queues), names(&want.kinds));
    let rows = snapshot
        .query(
            WANTED,
            &[&queues, &kinds, &number(LOOK_LANES_MAX), &number(lanes_max)],
        )
        .await?;
    rows.iter().map(read_lane).collect()
}

/// Reads id, queue, kind and group of a lane.
pub(crate) fn read_lane(row: &Row) -> Result<Lane> {
    Ok(Lane {
        id: i64::from(row.try_get::<_, i32>(0)?),
        queue: row.try_get::<_, &str>(1)?.into(),
        kind: row.try_get::<_, &str>(2)?.into(),
        group: row.try_get::<_, &str>(3)?.into(),
    })
}

/// A number of rows as a parameter.
pub(crate) fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Wanted lanes with jobs that were due by then.
pub(crate) async fn due_lanes(
    snapshot: &Snapshot,
    want: &Want,
    due_by: Timestamp,
    now: Timestamp,
) -> Result<Vec<Lane>> {
    let mut lanes = wanted_lanes(snapshot, want, WANTED_LANES_MAX).await?;
    let ids = lane_ids(&lanes);
    if ids.is_empty() {
        return Ok(lanes);
    }
    let rows = snapshot
        .query(
            DUE,
            &[&ids, &due_by.0, &want.rank_max(), &now.0, &number(DUE_LANES_MAX)],
        )
        .await?;
    let due = rows.iter().map(|row| Ok(i64::from(row.try_get::<_, i32>(0)?)));
    let due = due.collect::<Result<Vec<i64>>>()?;
    lanes.retain(|lane| due.contains(&lane.id));
    Ok(lanes)
}
