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

use super::failure::{Failure, Result};
use super::slice::Slice;
use super::transaction::Transaction;
use crate::Want;
use crate::admission::{Admission, Aging, Line, Outlook, Place, Usage};
use crate::lanes::Lane;

/// Rows that the first look into a lane reads; each further look reads twice as many.
const LOOK_ROWS_FIRST: u32 = 4;

/// Wanted lanes above which a claim first finds out which lanes have slices at all, by one seek each of those.
const LANES_SOUGHT_MAX: usize = 16;

/// Where a claim stands in one lane, or in one rank of it.
#[derive(Debug)]
struct LaneCursor {
    lane: Lane,
    /// Where jobs age, each rank has a cursor of its own.
    aging: Option<Aging>,
    /// The ranks that have been begun.
    rank: Option<i64>,
    /// The last slice that was read of `rank`.
    last: (i64, i64, i64),
    buffer: VecDeque<Slice>,
    look_rows: u32,
    exhausted: bool,
}

impl LaneCursor {
    const BEFORE_ALL: (i64, i64, i64) = (i64::MIN, i64::MIN, i64::MIN);

    fn new(lane: Lane) -> Self {
        LaneCursor {
            lane,
            aging: None,
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
            self.rank = match self.aging {
                Some(_) => None,
                None => next_rank(transaction, &self.lane, self.rank)?,
            };
            self.last = Self::BEFORE_ALL;
            self.exhausted = self.rank.is_none();
        }
        Ok(())
    }

    /// The place of the first slice in the buffer.
    fn place(&self, now: Timestamp) -> Option<Place> {
        let head = self.buffer.front()?;
        let rank = match self.aging {
            Some(aging) => aging.rank(head.rank, head.run_at, now),
            None => head.rank,
        };
        Some((rank, head.run_at, head.batch, head.first_position))
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
pub(super) fn next_rank(
    transaction: &Transaction<'_>,
    lane: &Lane,
    previous: Option<i64>,
) -> Result<Option<i64>> {
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
    /// Whether jobs wait for others to be over.
    pub limited: bool,
}

impl Transaction<'_> {
    /// Moves due slices into a lease, in the order of claims, until there are enough.
    pub fn claim(&mut self, worker: WorkerId, want: &Want) -> Result<Claimed> {
        let jobs_max = want.jobs_max.min(LEASE_JOBS_MAX);
        if jobs_max == 0 {
            return Ok(Claimed::default());
        }
        let lanes = self.memory.wanted_lanes(self.connection, want)?;
        let lanes = self.with_slices(lanes)?;
        let mut admission = self.admit(lanes)?;
        let (cursors, lane_of) = self.cursors(&admission)?;
        let mut line = ClaimLine {
            cursors,
            claim: Claim::new(worker, jobs_max),
            transaction: self,
        };
        admission.take_from(&mut line, &lane_of)?;
        let claim = line.claim;
        admission.remember(&mut self.memory.controls);
        self.put_buckets(&admission)?;
        if self.freed {
            // Those that wait for a slot are woken where this claim has left one.
            self.woke |= admission.has_free_slot();
            self.freed = false;
        }
        let mut claimed = Claimed::default();
        if claim.has_room() {
            self.look_ahead(&admission, &mut claimed)?;
        }
        if let Some(id) = claim.lease {
            self.insert_held(&claim)?;
            claimed.lease = Some(Lease {
                id,
                slices: claim.taken.into_iter().map(|taken| taken.slice).collect(),
            });
        }
        Ok(claimed)
    }

    /// Of many lanes, those that have slices: of 10,000 groups, few are busy.
    fn with_slices(&self, lanes: Vec<Lane>) -> Result<Vec<Lane>> {
        if lanes.len() <= LANES_SOUGHT_MAX {
            return Ok(lanes);
        }
        let busy = self.rows(
            "WITH RECURSIVE busy (id) AS ( \
             SELECT min(lane_id) FROM slice \
             UNION ALL SELECT (SELECT min(lane_id) FROM slice WHERE lane_id > busy.id) FROM busy WHERE id IS NOT NULL) \
             SELECT id FROM busy WHERE id IS NOT NULL",
            [],
            |row| row.get::<_, i64>(0),
        )?;
        let is_busy = |lane: &Lane| busy.binary_search(&lane.id).is_ok();
        Ok(lanes.into_iter().filter(is_busy).collect())
    }

    /// What the controls let a claim take of these lanes.
    fn admit(&mut self, lanes: Vec<Lane>) -> Result<Admission> {
        let needs = self.memory.controls.needs(&lanes);
        let usage = match needs.held || !needs.buckets.is_empty() {
            true => self.usage(&needs)?,
            false => Usage::default(),
        };
        Ok(Admission::new(&mut self.memory.controls, lanes, self.now, &usage))
    }

    /// A cursor for each lane that has room, or for each rank of it, where its jobs age. Beside it, which lane each is
    /// in.
    fn cursors(&self, admission: &Admission) -> Result<(Vec<LaneCursor>, Vec<usize>)> {
        let (mut cursors, mut lane_of) = (Vec::new(), Vec::new());
        for (index, lane) in admission.lanes().enumerate() {
            if admission.room(index) == 0 {
                continue;
            }
            if admission.aging(index).is_none() {
                cursors.push(LaneCursor::new(lane.clone()));
                lane_of.push(index);
                continue;
            }
            let mut rank = next_rank(self, lane, None)?;
            while rank.is_some() {
                cursors.push(LaneCursor {
                    rank,
                    aging: admission.aging(index),
                    ..LaneCursor::new(lane.clone())
                });
                lane_of.push(index);
                rank = next_rank(self, lane, rank)?;
            }
        }
        Ok((cursors, lane_of))
    }

    /// Finds out when there is more, and whether others are waited for.
    fn look_ahead(&self, admission: &Admission, claimed: &mut Claimed) -> Result<()> {
        for (index, lane) in admission.lanes().enumerate() {
            let next = match admission.outlook(index) {
                Outlook::Open => self.next_run_at(lane)?,
                Outlook::At(at) => self.first_run_at(lane)?.map(|run_at| run_at.max(at)),
                Outlook::AfterOthers => {
                    claimed.limited = claimed.limited || self.first_run_at(lane)?.is_some();
                    None
                }
                Outlook::Paused => None,
            };
            claimed.next_run_at = claimed.next_run_at.into_iter().chain(next).min();
        }
        Ok(())
    }

    fn put_buckets(&self, admission: &Admission) -> Result<()> {
        let buckets: Vec<(i64, &str, i64)> = admission
            .buckets()
            .map(|(key, empty_at_ns)| (key.0, &*key.1, empty_at_ns))
            .collect();
        if !buckets.is_empty() {
            self.execute(
                "INSERT INTO bucket (control_id, job_group, empty_at_ns) \
                 SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1) WHERE true \
                 ON CONFLICT (control_id, job_group) DO UPDATE SET empty_at_ns = excluded.empty_at_ns",
                [serde_json::to_string(&buckets)?],
            )?;
        }
        Ok(())
    }

    fn insert_held(&self, claim: &Claim) -> Result<()> {
        for taken in &claim.taken {
            self.execute(
                "INSERT INTO held (lease_id, batch_id, attempt, first_position, worker_id, rescues, run_at, count, \
                 expires_at, positions, lane_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
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
                    taken.lane_id,
                ],
            )?;
        }
        Ok(())
    }

    /// When the next slice of a lane is due: one seek for each of its ranks.
    fn next_run_at(&self, lane: &Lane) -> Result<Option<Timestamp>> {
        let mut next: Option<i64> = None;
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
        Ok(next.map(Timestamp))
    }
}

/// The heads of the lanes that a claim takes from.
struct ClaimLine<'c, 't> {
    cursors: Vec<LaneCursor>,
    claim: Claim,
    transaction: &'c mut Transaction<'t>,
}

impl Line for ClaimLine<'_, '_> {
    type Error = Failure;

    fn head(&mut self, cursor: usize) -> Result<Option<Place>> {
        let cursor = &mut self.cursors[cursor];
        cursor.look(self.transaction, self.claim.jobs_left())?;
        Ok(cursor.place(self.transaction.now))
    }

    fn take(&mut self, cursor: usize, jobs_max: u32) -> Result<u32> {
        let cursor = &mut self.cursors[cursor];
        let Some(slice) = cursor.buffer.pop_front() else {
            return Ok(0);
        };
        let (taken, rest) = self.claim.take(self.transaction, &cursor.lane, slice, jobs_max)?;
        if let Some(rest) = rest {
            cursor.buffer.push_front(rest);
        }
        Ok(taken)
    }

    fn jobs_left(&self) -> u32 {
        match self.claim.has_room() {
            true => self.claim.jobs_left(),
            false => 0,
        }
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
    lane_id: i64,
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

    /// Takes at most so many jobs of a slice, or as many as there is room for. Returns how many, and what is left.
    fn take(
        &mut self,
        transaction: &mut Transaction<'_>,
        lane: &Lane,
        mut slice: Slice,
        jobs_max: u32,
    ) -> Result<(u32, Option<Slice>)> {
        let (head, payloads) = transaction.payloads(slice.batch)?;
        let bytes_per_job = (payloads.as_str().len() / payloads.count().max(1) as usize).max(1);
        let bytes_left = LEASE_BYTES_TARGET - self.bytes;
        let jobs_by_bytes = u32::try_from(bytes_left.div_ceil(bytes_per_job)).unwrap_or(u32::MAX);
        let mut rest = slice.positions.clone();
        let positions = rest.take_first(self.jobs_left().min(jobs_by_bytes).min(jobs_max));
        transaction.shorten(&slice, &rest)?;

        let lease = match self.lease {
            Some(lease) => lease,
            None => *self.lease.insert(transaction.next_lease_id()?),
        };
        let jobs = positions.len();
        self.jobs += jobs;
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
            lane_id: lane.id,
            run_at: slice.run_at,
            expires_at: slice.expires_at,
        });
        let left = rest.first().map(|first| {
            slice.first_position = first;
            slice.positions = rest;
            slice
        });
        Ok((jobs, left))
    }
}
