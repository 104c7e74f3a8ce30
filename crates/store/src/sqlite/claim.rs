//! Claiming slices.
//!
//! The slices of a lane lie in the order of claims: by rank (the priority, negated), the moment from
//! which they can be claimed, and batch. Within a rank, those that are due come first. So a claim
//! reads the heads of the wanted lanes, rank by rank, and seeks past everything that is not due: a
//! million delayed jobs of a high priority cost it one seek.

use std::collections::VecDeque;

use gristmill_model::limits::{LEASE_BYTES_TARGET, LEASE_JOBS_MAX, LEASE_SLICES_MAX};
use gristmill_model::{Lease, LeaseId, LeasedSlice, Timestamp, WorkerId};
use rusqlite::params;

use super::failure::Result;
use super::slice::Slice;
use super::transaction::Transaction;
use crate::Want;
use crate::lanes::Lane;

/// Rows that the first look into a lane reads; each further look reads twice as many.
const LOOK_ROWS_FIRST: u32 = 4;

/// Where a claim stands in one lane.
#[derive(Debug)]
struct LaneCursor<'w> {
    lane: &'w Lane,
    /// The ranks that have been begun.
    rank: Option<i64>,
    /// The last slice that was read of `rank`.
    last: (i64, i64, i64),
    buffer: VecDeque<Slice>,
    look_rows: u32,
    exhausted: bool,
}

impl<'w> LaneCursor<'w> {
    const BEFORE_ALL: (i64, i64, i64) = (i64::MIN, i64::MIN, i64::MIN);

    fn new(lane: &'w Lane) -> Self {
        LaneCursor {
            lane,
            rank: None,
            last: Self::BEFORE_ALL,
            buffer: VecDeque::new(),
            look_rows: LOOK_ROWS_FIRST,
            exhausted: false,
        }
    }

    /// Sees to it that the next due slice of the lane is in the buffer, if there is one.
    fn look(&mut self, transaction: &Transaction<'_>, jobs_wanted: u32) -> Result<()> {
        while self.buffer.is_empty() && !self.exhausted {
            if let Some(rank) = self.rank
                && self.read_due(transaction, rank, jobs_wanted)?
            {
                return Ok(());
            }
            self.rank = next_rank(transaction, self.lane, self.rank)?;
            self.last = Self::BEFORE_ALL;
            self.exhausted = self.rank.is_none();
        }
        Ok(())
    }

    /// Reads due slices of one rank. Whether there were any.
    fn read_due(&mut self, transaction: &Transaction<'_>, rank: i64, jobs_wanted: u32) -> Result<bool> {
        let mut statement = transaction.connection.prepare_cached(
            "SELECT lane_id, rank, run_at, batch_id, first_position, attempt, rescues, expires_at, positions FROM slice \
             WHERE lane_id = ?1 AND rank = ?2 AND run_at <= ?3 \
             AND (run_at, batch_id, first_position) > (?4, ?5, ?6) \
             AND (expires_at IS NULL OR expires_at > ?3) \
             ORDER BY run_at, batch_id, first_position LIMIT ?7",
        )?;
        let (run_at, batch, first_position) = self.last;
        let mut rows = statement.query(params![
            self.lane.id,
            rank,
            transaction.now.0,
            run_at,
            batch,
            first_position,
            self.look_rows
        ])?;
        let mut jobs = 0;
        while jobs < jobs_wanted
            && let Some(row) = rows.next()?
        {
            let slice = Slice::read(row)?;
            jobs += slice.positions.len();
            self.last = (slice.run_at.0, slice.batch.0, i64::from(slice.first_position));
            self.buffer.push_back(slice);
        }
        self.look_rows = (self.look_rows * 2).min(LEASE_SLICES_MAX);
        Ok(!self.buffer.is_empty())
    }
}

/// The next rank of a lane after `previous`: found by one seek, however many slices lie between.
fn next_rank(transaction: &Transaction<'_>, lane: &Lane, previous: Option<i64>) -> Result<Option<i64>> {
    transaction.row(
        "SELECT rank FROM slice WHERE lane_id = ?1 AND rank > ?2 ORDER BY rank LIMIT 1",
        params![lane.id, previous.unwrap_or(i64::MIN)],
        |row| row.get(0),
    )
}

/// What a claim found.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    pub lease: Option<Lease>,
    pub next_run_at: Option<Timestamp>,
}

impl Transaction<'_> {
    /// Moves due slices into a lease, in the order of claims, until there are enough.
    pub fn claim(&mut self, worker: WorkerId, want: &Want) -> Result<Claimed> {
        let jobs_max = want.jobs_max.min(LEASE_JOBS_MAX);
        if jobs_max == 0 {
            return Ok(Claimed::default());
        }
        let lanes = self.memory.wanted_lanes(self.connection, want)?;
        let mut cursors: Vec<LaneCursor<'_>> = lanes.iter().map(LaneCursor::new).collect();
        let mut claim = Claim::new(worker, jobs_max);
        while claim.has_room() {
            for cursor in &mut cursors {
                cursor.look(self, claim.jobs_left())?;
            }
            let heads = cursors.iter().enumerate().filter_map(|(index, cursor)| {
                let head = cursor.buffer.front()?;
                Some((head.rank, head.run_at, head.batch, head.first_position, index))
            });
            let Some((.., index)) = heads.min() else { break };
            let lane = cursors[index].lane;
            if let Some(slice) = cursors[index].buffer.pop_front() {
                claim.take(self, lane, slice)?;
            }
        }
        let next_run_at = if claim.has_room() {
            self.next_run_at(&lanes)?
        } else {
            None
        };
        let lease = match claim.lease {
            None => None,
            Some(id) => {
                self.insert_held(&claim)?;
                Some(Lease {
                    id,
                    slices: claim.taken.into_iter().map(|taken| taken.slice).collect(),
                })
            }
        };
        Ok(Claimed { lease, next_run_at })
    }

    fn insert_held(&self, claim: &Claim) -> Result<()> {
        for taken in &claim.taken {
            self.execute(
                "INSERT INTO held (lease_id, batch_id, attempt, first_position, worker_id, rescues, run_at, count, \
                 expires_at, positions) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                params![
                    taken.slice.lease.0,
                    taken.slice.batch.0,
                    taken.slice.attempt,
                    taken.slice.positions.first(),
                    claim.worker.0,
                    taken.slice.rescues,
                    taken.run_at.0,
                    taken.slice.len(),
                    taken.expires_at.map(|moment| moment.0),
                    taken.slice.positions.to_string(),
                ],
            )?;
        }
        Ok(())
    }

    /// When the next slice of these lanes is due: one seek for each of their ranks.
    fn next_run_at(&self, lanes: &[Lane]) -> Result<Option<Timestamp>> {
        let mut next: Option<i64> = None;
        for lane in lanes {
            let mut rank = next_rank(self, lane, None)?;
            while let Some(current) = rank {
                let run_at: Option<i64> = self.row(
                    "SELECT run_at FROM slice WHERE lane_id = ?1 AND rank = ?2 AND run_at > ?3 ORDER BY run_at LIMIT 1",
                    params![lane.id, current, self.now.0],
                    |row| row.get(0),
                )?;
                next = next.into_iter().chain(run_at).min();
                rank = next_rank(self, lane, rank)?;
            }
        }
        Ok(next.map(Timestamp))
    }
}

/// A lease in the making.
#[derive(Debug)]
struct Claim {
    worker: WorkerId,
    lease: Option<LeaseId>,
    jobs: u32,
    jobs_max: u32,
    bytes: usize,
    taken: Vec<Taken>,
}

#[derive(Debug)]
struct Taken {
    slice: LeasedSlice,
    run_at: Timestamp,
    expires_at: Option<Timestamp>,
}

impl Claim {
    fn new(worker: WorkerId, jobs_max: u32) -> Self {
        Claim {
            worker,
            lease: None,
            jobs: 0,
            jobs_max,
            bytes: 0,
            taken: Vec::new(),
        }
    }

    fn jobs_left(&self) -> u32 {
        self.jobs_max - self.jobs
    }

    fn has_room(&self) -> bool {
        self.jobs < self.jobs_max
            && self.bytes < LEASE_BYTES_TARGET
            && self.taken.len() < LEASE_SLICES_MAX as usize
    }

    /// Takes a slice, or as much of it as there is room for.
    fn take(&mut self, transaction: &mut Transaction<'_>, lane: &Lane, slice: Slice) -> Result<()> {
        let (head, payloads) = transaction.payloads(slice.batch)?;
        let bytes_per_job = (payloads.as_str().len() / payloads.count().max(1) as usize).max(1);
        let bytes_left = LEASE_BYTES_TARGET - self.bytes;
        let jobs_by_bytes = u32::try_from(bytes_left.div_ceil(bytes_per_job)).unwrap_or(u32::MAX);
        let mut rest = slice.positions.clone();
        let positions = rest.take_first(self.jobs_left().min(jobs_by_bytes));
        transaction.shorten(&slice, &rest)?;

        let lease = match self.lease {
            Some(lease) => lease,
            None => *self.lease.insert(transaction.next_lease_id()?),
        };
        self.jobs += positions.len();
        let payloads = payloads.select(&positions);
        self.bytes += payloads.as_str().len();
        self.taken.push(Taken {
            slice: LeasedSlice {
                lease,
                batch: slice.batch,
                kind: lane.kind.clone(),
                positions,
                payloads,
                attempt: slice.attempt,
                rescues: slice.rescues,
                timeout_ms: head.options.timeout_ms,
                submitted_at: head.submitted_at,
            },
            run_at: slice.run_at,
            expires_at: slice.expires_at,
        });
        Ok(())
    }
}
