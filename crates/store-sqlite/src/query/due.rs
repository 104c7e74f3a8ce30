//! Lanes with due jobs, for workers that claim without success.

use gristmill_model::Timestamp;
use gristmill_store::Want;
use gristmill_store::rules::admission::held_back::{DUE_LANES_MAX, WANTED_LANES_MAX};
use gristmill_store::rules::lanes::{LOOK_LANES_MAX, Lane};
use rusqlite::Connection;

use crate::failure::Result;
use crate::submit::lanes::read_lane;

/// The first `?1` lanes that have slices, each found by one seek.
const BUSY: &str = "WITH RECURSIVE busy (id) AS ( \
     SELECT min(lane_id) FROM slice \
     UNION ALL SELECT (SELECT min(lane_id) FROM slice WHERE lane_id > busy.id) FROM busy WHERE id IS NOT NULL LIMIT ?1) \
     SELECT l.id, l.queue, l.kind, l.job_group, l.sum FROM busy CROSS JOIN lane l ON l.id = busy.id";

/// Reports whether the lane `?1` has slices up to rank `?3` that were due at `?2` and do not expire before `?4`: two
/// seeks per rank.
const IS_DUE: &str = "WITH RECURSIVE head (rank) AS ( \
     SELECT (SELECT rank FROM slice WHERE lane_id = ?1 ORDER BY rank LIMIT 1) \
     UNION ALL SELECT (SELECT rank FROM slice WHERE lane_id = ?1 AND rank > h.rank ORDER BY rank LIMIT 1) \
     FROM head h WHERE h.rank IS NOT NULL) \
     SELECT EXISTS (SELECT 1 FROM head h WHERE h.rank <= ?3 AND EXISTS (SELECT 1 FROM slice \
     WHERE lane_id = ?1 AND rank = h.rank AND run_at <= ?2 AND (expires_at IS NULL OR expires_at > ?4)))";

/// Wanted lanes with jobs that were due by then.
pub(crate) fn due_lanes(
    connection: &Connection,
    want: &Want,
    due_by: Timestamp,
    now: Timestamp,
) -> Result<Vec<Lane>> {
    let mut busy = connection.prepare_cached(BUSY)?;
    let mut is_due = connection.prepare_cached(IS_DUE)?;
    let mut rows = busy.query([i64::try_from(LOOK_LANES_MAX).unwrap_or(i64::MAX)])?;
    let (mut due, mut wanted) = (Vec::new(), 0);
    while wanted < WANTED_LANES_MAX
        && due.len() < DUE_LANES_MAX
        && let Some(row) = rows.next()?
    {
        let Some(lane) = read_lane(row)?.filter(|lane| want.admits(lane)) else {
            continue;
        };
        wanted += 1;
        let params = [lane.id, due_by.0, i64::from(want.rank_max()), now.0];
        if is_due.query_row(params, |row| row.get(0))? {
            due.push(lane);
        }
    }
    Ok(due)
}
