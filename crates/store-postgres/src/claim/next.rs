//! The jobs that the next claim would take. The same look and the same admission choose them, on a snapshot.

use std::collections::HashMap;

use gristmill_model::limits::NEXT_JOBS_MAX;
use gristmill_model::{BatchId, Timestamp};
use gristmill_store::rules::admission::Admission;
use gristmill_store::rules::lanes::{LOOK_LANES_MAX, Lane};
use gristmill_store::rules::piece::Piece;
use gristmill_store::{JobRow, Want};

use crate::claim::admitted_claim::{Candidates, READ, look_at};
use crate::claim::control::{all_controls, usage};
use crate::database::connection::Param;
use crate::database::handle_cache::HandleCache;
use crate::database::rows::Slice;
use crate::database::snapshot::Snapshot;
use crate::failure::Result;
use crate::query::due::{read_lane, wanted_lanes};
use crate::query::rows_of;

/// The queues of all lanes.
const QUEUES: &str = "SELECT DISTINCT queue FROM gristmill.lane";

/// The lanes of which jobs are held.
const HELD_LANES: &str = "SELECT l.id, l.queue, l.kind, l.job_group FROM gristmill.lane l \
     WHERE l.id IN (SELECT h.lane_id FROM gristmill.held h WHERE h.lane_id IS NOT NULL)";

/// The jobs that a worker with this wish would get now, in the order of claims.
pub(crate) async fn next_jobs(
    snapshot: &Snapshot,
    cache: &HandleCache,
    now: Timestamp,
    want: &Want,
) -> Result<Vec<JobRow>> {
    let mut want = want.clone();
    if want.queues.is_empty() {
        for row in &snapshot.query(QUEUES, &[]).await? {
            want.queues.push(row.try_get::<_, &str>(0)?.into());
        }
    }
    let lanes = wanted_lanes(snapshot, &want, LOOK_LANES_MAX).await?;
    let mut controls = all_controls(snapshot).await?;
    let needs = controls.needs(&lanes);
    let mut held = HashMap::new();
    if needs.held {
        for row in &snapshot.query(HELD_LANES, &[]).await? {
            let lane = read_lane(row)?;
            held.insert(lane.id, lane);
        }
    }
    let held = |id: i64| -> Option<Lane> { held.get(&id).cloned() };
    let usage = usage(snapshot, &needs, None, held).await?;
    let mut admission = Admission::new(&mut controls, lanes, now, &usage);
    let mut line = Candidates::new(want.jobs_max.min(NEXT_JOBS_MAX), u64::MAX);
    let (mut looks, mut seen, mut found) = (0, Vec::new(), Vec::new());
    loop {
        let exhausted = look_at(snapshot, (cache, now), &want, &admission, &mut line, looks, &seen).await?;
        looks += 1;
        line.choose(&mut admission);
        let (order, chosen) = (std::mem::take(&mut line.order), std::mem::take(&mut line.chosen));
        seen.extend(order.iter().map(|(_, slice)| *slice));
        // Each look but the last takes a slice.
        let is_over = exhausted || order.is_empty() || line.room() == 0;
        let jobs = |key: (BatchId, i64)| chosen.get(&key).map_or(0, |(_, jobs)| *jobs);
        found.extend(order.into_iter().map(|key| (key, jobs(key))));
        if is_over {
            break;
        }
    }
    rows_of(snapshot, &pieces_of(snapshot, now, &found).await?).await
}

/// The first jobs of these slices: of each, as many as it says.
async fn pieces_of(
    snapshot: &Snapshot,
    now: Timestamp,
    found: &[((BatchId, i64), u32)],
) -> Result<Vec<(BatchId, Piece)>> {
    let params: Vec<Param> = vec![
        Box::new(found.iter().map(|(key, _)| key.0.0).collect::<Vec<_>>()),
        Box::new(found.iter().map(|(key, _)| key.1).collect::<Vec<_>>()),
    ];
    let mut slices = HashMap::new();
    for row in &snapshot.send(READ, params).await?.await? {
        let slice = Slice::read(row, 0)?;
        slices.insert(slice.id, slice);
    }
    let mut pieces = Vec::with_capacity(found.len());
    for ((batch, id), jobs) in found {
        let Some(mut slice) = slices.remove(id) else {
            continue;
        };
        let positions = slice.positions.take_first(*jobs);
        let piece = Piece::claimable(positions, slice.attempt, i64::from(slice.rank), slice.run_at, now);
        pieces.push((*batch, piece));
    }
    Ok(pieces)
}
