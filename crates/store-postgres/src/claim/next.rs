//! The jobs that the next claim would take. The same look and the same admission choose them, on a snapshot.

use std::collections::HashMap;
use std::sync::Arc;

use gristmill_model::limits::NEXT_JOBS_MAX;
use gristmill_model::{BatchId, Timestamp};
use gristmill_store::rules::admission::Admission;
use gristmill_store::rules::controls::Controls;
use gristmill_store::rules::lanes::{LOOK_LANES_MAX, Lane};
use gristmill_store::rules::piece::Piece;
use gristmill_store::{JobRow, Want};
use tokio_postgres::Row;

use crate::claim::admitted_claim::{Candidates, READ, look_at};
use crate::claim::control::{all_controls, usage};
use crate::claim::{BUSY, LANES_SOUGHT_MAX};
use crate::database::connection::Param;
use crate::database::rows::Slice;
use crate::database::snapshot::Snapshot;
use crate::failure::Result;
use crate::query::due::{number, read_lane};
use crate::query::rows_of;

/// The queues of all lanes.
const QUEUES: &str = "SELECT DISTINCT queue FROM gristmill.lane";

/// The lanes of which jobs are held.
const HELD_LANES: &str = "SELECT l.id, l.queue, l.kind, l.job_group FROM gristmill.lane l \
     WHERE l.id IN (SELECT h.lane_id FROM gristmill.held h WHERE h.lane_id IS NOT NULL)";

/// Lanes of the queues `$1` and the kinds `$2` (of all, if there are none): at most `$3`.
const WANTED: &str = "SELECT l.id, l.queue, l.kind, l.job_group FROM gristmill.lane l \
     WHERE l.queue = ANY ($1) AND (cardinality($2::text[]) = 0 OR l.kind = ANY ($2)) LIMIT $3";

/// Selects the lanes among `$3` that have the queues `$1` and the kinds `$2`.
const WANTED_OF: &str = "SELECT l.id, l.queue, l.kind, l.job_group FROM gristmill.lane l \
     WHERE l.id = ANY ($3) AND l.queue = ANY ($1) AND (cardinality($2::text[]) = 0 OR l.kind = ANY ($2))";

/// A chosen slice, and how many jobs of it.
type Chosen = ((BatchId, i64), u32);

/// The jobs that a worker with this wish would get now, in the order of claims, whatever the size of their payloads.
///
/// Like a claim, it looks into all wanted lanes at once if they are few. Otherwise it takes those with slices, a part at a time,
/// until a part has jobs.
pub(crate) async fn next_jobs(snapshot: &Snapshot, now: Timestamp, want: &Want) -> Result<Vec<JobRow>> {
    let mut want = want.clone();
    if want.queues.is_empty() {
        for row in &snapshot.query(QUEUES, &[]).await? {
            want.queues.push(row.try_get::<_, &str>(0)?.into());
        }
    }
    let names = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (queues, kinds) = (names(&want.queues), names(&want.kinds));
    let mut controls = all_controls(snapshot).await?;
    let all = snapshot
        .query(WANTED, &[&queues, &kinds, &number(LANES_SOUGHT_MAX + 1)])
        .await?;
    let mut found = Vec::new();
    if all.len() <= LANES_SOUGHT_MAX {
        found = look_into(snapshot, now, &want, &mut controls, lanes_of(&all)?).await?;
    } else {
        let mut after = Some(0);
        while found.is_empty()
            && let Some(last) = after
        {
            let busy = snapshot.query(BUSY, &[&last, &number(LOOK_LANES_MAX)]).await?;
            let ids = busy.iter().map(|row| row.try_get(0));
            let ids = ids.collect::<std::result::Result<Vec<i32>, _>>()?;
            after = ids.last().copied().filter(|_| ids.len() == LOOK_LANES_MAX);
            let wanted = snapshot.query(WANTED_OF, &[&queues, &kinds, &ids]).await?;
            found = look_into(snapshot, now, &want, &mut controls, lanes_of(&wanted)?).await?;
        }
    }
    rows_of(snapshot, &pieces_of(snapshot, now, &found).await?).await
}

/// The lanes of these rows, by id.
fn lanes_of(rows: &[Row]) -> Result<Vec<Lane>> {
    let mut lanes: Vec<Lane> = rows.iter().map(read_lane).collect::<Result<_>>()?;
    lanes.sort_unstable_by_key(|lane| lane.id);
    Ok(lanes)
}

/// Chooses jobs of these lanes, as a claim from them would.
async fn look_into(
    snapshot: &Snapshot,
    now: Timestamp,
    want: &Want,
    controls: &mut Controls,
    lanes: Vec<Lane>,
) -> Result<Vec<Chosen>> {
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
    let mut admission = Admission::new(controls, lanes, now, &usage);
    let mut line = Candidates::new(want.jobs_max.min(NEXT_JOBS_MAX), u64::MAX);
    let (mut looks, mut seen, mut found) = (0, Vec::new(), Vec::new());
    loop {
        // Without the numbers of slices that claims needed last: these are for fewer jobs.
        let exhausted = look_at(snapshot, (None, now), want, &admission, &mut line, looks, &seen).await?;
        looks += 1;
        line.choose(&mut admission);
        let (order, chosen) = (std::mem::take(&mut line.order), std::mem::take(&mut line.chosen));
        seen.extend(order.iter().map(|(_, slice)| *slice));
        // Each look but the last takes a slice.
        let is_over = exhausted || order.is_empty() || line.room() == 0;
        let jobs = |key: (BatchId, i64)| chosen.get(&key).map_or(0, |(_, jobs)| *jobs);
        found.extend(order.into_iter().map(|key| (key, jobs(key))));
        if is_over {
            return Ok(found);
        }
    }
}

/// The first jobs of these slices: of each, as many as it says.
async fn pieces_of(snapshot: &Snapshot, now: Timestamp, found: &[Chosen]) -> Result<Vec<(BatchId, Piece)>> {
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
