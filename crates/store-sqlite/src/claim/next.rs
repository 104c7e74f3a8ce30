//! The jobs that the next claim would take. The same cursors and the same admission choose them, on a snapshot.

use std::collections::HashMap;

use gristmill_model::limits::NEXT_JOBS_MAX;
use gristmill_model::{BatchId, SplitMix64, Timestamp};
use gristmill_store::rules::lanes::Lane;
use gristmill_store::rules::piece::Piece;
use gristmill_store::{JobRow, Want};
use rusqlite::Connection;

use crate::claim::slice::Slice;
use crate::claim::{BusyLanes, LANES_SOUGHT_MAX, Taker};
use crate::failure::Result;
use crate::query::rows_of;
use crate::transaction::{Memory, Transaction};

/// The jobs that a worker with this wish would get now, in the order of claims, whatever the size of their payloads.
pub(crate) fn next_jobs(connection: &Connection, now: Timestamp, mut want: Want) -> Result<Vec<JobRow>> {
    let mut memory = Memory::new(Box::new(SplitMix64::new(0)));
    if want.queues.is_empty() {
        memory.refresh_lanes(connection)?;
        want.queues = memory.lanes.queues();
    }
    let found = Transaction::new(connection, &mut memory, now).look_at_next(&want)?;
    rows_of(connection, now, &found)
}

/// A look at the next jobs.
struct Look {
    now: Timestamp,
    jobs_left: u32,
    found: Vec<(BatchId, Piece)>,
}

impl Taker for Look {
    fn jobs_left(&self) -> u32 {
        self.jobs_left
    }

    fn take(
        &mut self,
        _transaction: &mut Transaction<'_>,
        _lane: &Lane,
        mut slice: Slice,
        jobs_max: u32,
    ) -> Result<(u32, Option<Slice>)> {
        let positions = slice.positions.take_first(self.jobs_left.min(jobs_max));
        let jobs = positions.len();
        self.jobs_left -= jobs;
        let piece = Piece::claimable(positions, slice.attempt, slice.rank, slice.run_at, self.now);
        self.found.push((slice.batch, piece));
        let rest = slice.positions.first().map(|first| {
            slice.first_position = first;
            slice
        });
        Ok((jobs, rest))
    }
}

impl Transaction<'_> {
    /// Finds what [`claim`](Transaction::claim) would take, and writes nothing.
    fn look_at_next(&mut self, want: &Want) -> Result<Vec<(BatchId, Piece)>> {
        let rank_max = i64::from(want.rank_max());
        let look = |now| Look {
            now,
            jobs_left: want.jobs_max.min(NEXT_JOBS_MAX),
            found: Vec::new(),
        };
        let sought = self
            .memory
            .wanted_lanes(self.connection, want, LANES_SOUGHT_MAX)?;
        if let Some(lanes) = sought {
            let (_, look) = self.take_from(lanes, &HashMap::new(), rank_max, look(self.now))?;
            return Ok(look.found);
        }
        let mut after = Some(0);
        while let Some(last) = after {
            let busy = self.with_slices(want, last)?;
            let BusyLanes { lanes, firsts, last } = busy;
            let (_, look) = self.take_from(lanes, &firsts, rank_max, look(self.now))?;
            if !look.found.is_empty() {
                return Ok(look.found);
            }
            after = last;
        }
        Ok(Vec::new())
    }
}
