//! Claims slices.
//!
//! The slices of a lane lie in the order of claims: by rank (the negated priority), by the moment from which they can
//! be claimed, and by batch. Within a rank, due slices come first. So a claim reads the heads of the wanted lanes, rank
//! by rank ([`LaneCursor`]), and skips everything that is not due: a million delayed jobs of a high priority cost it
//! one seek.

pub(crate) mod control;
pub(crate) mod held;
pub(crate) mod lane_cursor;
pub(crate) mod next;
pub(crate) mod slice;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use gristmill_model::limits::{LEASE_BYTES_TARGET, LEASE_JOBS_MAX, LEASE_SLICES_MAX};
use gristmill_model::{
    BatchId, JobLabels, Lease, LeaseId, LeasedSlice, PackedArray, Positions, Timestamp, WorkerId,
};
use gristmill_store::rules::admission::{Admission, Line, Outlook, Place, Usage};
use gristmill_store::rules::contents::Content;
use gristmill_store::rules::lanes::{LOOK_LANES_MAX, Lane, group};
use gristmill_store::{StoreError, Want};
use rusqlite::params;

use crate::claim::lane_cursor::{LaneCursor, next_rank};
use crate::claim::slice::Slice;
use crate::failure::{Failure, Result};
use crate::submit::debounce::debounced_payloads;
use crate::sums::{damaged, in_batch};
use crate::transaction::{BatchHead, Transaction};

/// With more wanted lanes than this, a claim first finds the lanes that have slices, by one seek each.
const LANES_SOUGHT_MAX: usize = 16;

/// The first moments of the lanes `?1`: of all their slices, and of those that are not due at `?2`. Takes a few seeks
/// for each of their ranks.
const FIRST: &str = "WITH RECURSIVE head (lane_id, rank) AS ( \
     SELECT value, (SELECT rank FROM slice WHERE lane_id = value ORDER BY rank LIMIT 1) FROM json_each(?1) \
     UNION ALL SELECT h.lane_id, (SELECT rank FROM slice WHERE lane_id = h.lane_id AND rank > h.rank ORDER BY rank LIMIT 1) \
     FROM head h WHERE h.rank IS NOT NULL) \
     SELECT h.lane_id, \
     min((SELECT run_at FROM slice WHERE lane_id = h.lane_id AND rank = h.rank ORDER BY run_at LIMIT 1)), \
     min((SELECT run_at FROM slice WHERE lane_id = h.lane_id AND rank = h.rank AND run_at > ?2 ORDER BY run_at LIMIT 1)) \
     FROM head h WHERE h.rank IS NOT NULL GROUP BY h.lane_id";

/// The result of a claim.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    pub lease: Option<Lease>,
    pub next_run_at: Option<Timestamp>,
    /// Whether limits hold jobs back until others end.
    pub limited: bool,
}

/// Lanes that have slices, as many as a claim looks at together.
struct BusyLanes {
    /// The lanes that the claim wants.
    lanes: Vec<Lane>,
    /// The first rank of each lane, and the first moment of that rank.
    firsts: HashMap<i64, (i64, Timestamp)>,
    /// The last lane, if there are more after it.
    last: Option<i64>,
}

impl Transaction<'_> {
    /// Moves due slices into a lease, in the order of claims, until there are enough.
    pub fn claim(&mut self, worker: WorkerId, want: &Want) -> Result<Claimed> {
        if want.jobs_max == 0 {
            return Ok(Claimed::default());
        }
        let lanes = self
            .memory
            .wanted_lanes(self.connection, want, LANES_SOUGHT_MAX)?;
        if let Some(lanes) = lanes {
            return self.claim_from(worker, want, lanes, &HashMap::new());
        }
        // A part of the lanes at a time, once around, until one of them has jobs.
        let began_after = self.memory.look_after;
        let (mut after, mut is_wrapped) = (began_after, false);
        let (mut next_run_at, mut limited) = (None::<Timestamp>, false);
        loop {
            let BusyLanes { lanes, firsts, last } = self.with_slices(want, after)?;
            let is_over = match last {
                Some(last) => is_wrapped && last >= began_after,
                None => is_wrapped || began_after == 0,
            };
            assert!(last.is_none_or(|last| last > after), "a round goes on");
            is_wrapped |= last.is_none();
            after = last.unwrap_or(0);
            self.memory.look_after = if is_over { 0 } else { after };
            let mut claimed = self.claim_from(worker, want, lanes, &firsts)?;
            limited |= claimed.limited;
            next_run_at = next_run_at.into_iter().chain(claimed.next_run_at).min();
            if claimed.lease.is_some() || is_over {
                // The other lanes may have more.
                let again_at = (!is_over).then_some(self.now);
                claimed.next_run_at = next_run_at.into_iter().chain(again_at).min();
                claimed.limited = limited;
                return Ok(claimed);
            }
        }
    }

    fn claim_from(
        &mut self,
        worker: WorkerId,
        want: &Want,
        lanes: Vec<Lane>,
        firsts: &HashMap<i64, (i64, Timestamp)>,
    ) -> Result<Claimed> {
        let jobs_max = want.jobs_max.min(LEASE_JOBS_MAX);
        let rank_max = i64::from(want.rank_max());
        let claim = Claim::new(worker, jobs_max);
        let (admission, claim) = self.take_from(lanes, firsts, rank_max, claim)?;
        claim.assert_limits(jobs_max);
        admission.remember(&mut self.memory.controls);
        self.put_buckets(&admission)?;
        if self.freed {
            // Wakes those that wait for a slot, if this claim has left one.
            self.woke |= admission.has_free_slot();
            self.freed = false;
        }
        let mut claimed = Claimed::default();
        if claim.has_room() {
            self.look_ahead(&admission, &mut claimed)?;
            if want.priority_min.is_some() {
                // A later claim may want its jobs.
                for lane in admission.lanes() {
                    claimed.limited = claimed.limited || next_rank(self, lane, Some(rank_max))?.is_some();
                }
            } else if !self.supplied.is_empty() {
                self.forget_supplied(&admission);
            }
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

    /// Lets these lanes give jobs in the order of claims, as their controls admit it.
    fn take_from<T: Taker>(
        &mut self,
        lanes: Vec<Lane>,
        firsts: &HashMap<i64, (i64, Timestamp)>,
        rank_max: i64,
        taker: T,
    ) -> Result<(Admission, T)> {
        let mut admission = self.admit(lanes)?;
        let (cursors, lane_of) = self.cursors(&admission, firsts, rank_max)?;
        let mut line = Heads {
            cursors,
            taker,
            transaction: self,
        };
        admission.take_from(&mut line, &lane_of)?;
        let taker = line.taker;
        Ok((admission, taker))
    }

    /// Keeps the lanes that have slices, because few of 10,000 groups are busy.
    fn with_slices(&self, want: &Want, after: i64) -> Result<BusyLanes> {
        let lanes_max = i64::try_from(LOOK_LANES_MAX).unwrap_or(i64::MAX);
        let busy: Vec<(i64, (i64, Timestamp))> = self.rows(
            "WITH RECURSIVE busy (id) AS ( \
             SELECT min(lane_id) FROM slice WHERE lane_id > ?1 \
             UNION ALL SELECT (SELECT min(lane_id) FROM slice WHERE lane_id > busy.id) FROM busy WHERE id IS NOT NULL \
             LIMIT ?2) \
             SELECT id, (SELECT rank FROM slice WHERE lane_id = busy.id ORDER BY rank LIMIT 1), \
             (SELECT run_at FROM slice WHERE lane_id = busy.id ORDER BY rank, run_at LIMIT 1) FROM busy \
             WHERE id IS NOT NULL",
            [after, lanes_max],
            |row| Ok((row.get(0)?, (row.get(1)?, Timestamp(row.get(2)?)))),
        )?;
        let known = busy.iter().filter_map(|(id, _)| self.memory.lanes.get(*id));
        let lanes = known.filter(|lane| want.admits(lane)).cloned().collect();
        let last = busy.last().map(|(id, _)| *id);
        let last = last.filter(|_| busy.len() >= LOOK_LANES_MAX);
        Ok(BusyLanes {
            lanes,
            firsts: busy.into_iter().collect(),
            last,
        })
    }

    /// The admission of a claim from these lanes, by the controls.
    fn admit(&mut self, lanes: Vec<Lane>) -> Result<Admission> {
        let needs = self.memory.controls.needs(&lanes);
        let usage = if needs.held || !needs.buckets.is_empty() {
            self.usage(&needs)?
        } else {
            Usage::default()
        };
        Ok(Admission::new(&mut self.memory.controls, lanes, self.now, &usage))
    }

    /// A cursor for each lane that can take jobs, and the lane of each cursor.
    fn cursors(
        &mut self,
        admission: &Admission,
        firsts: &HashMap<i64, (i64, Timestamp)>,
        rank_max: i64,
    ) -> Result<(Vec<LaneCursor>, Vec<usize>)> {
        let (mut cursors, mut lane_of) = (Vec::new(), Vec::new());
        for (index, lane) in admission.lanes().enumerate() {
            if admission.room(index) > 0 {
                let first = firsts.get(&lane.id).copied();
                cursors.push(match admission.aging(index) {
                    Some(aging) => LaneCursor::aging(self, lane.clone(), aging, rank_max)?,
                    None => LaneCursor::by_rank(lane.clone(), first, rank_max),
                });
                lane_of.push(index);
            }
        }
        assert_eq!(cursors.len(), lane_of.len(), "each cursor has a lane");
        Ok((cursors, lane_of))
    }

    /// Forgets the supplied lanes that the claim of this operation has emptied: a waiting worker would find nothing there.
    fn forget_supplied(&mut self, admission: &Admission) {
        for (index, lane) in admission.lanes().enumerate() {
            if matches!(admission.outlook(index), Outlook::Open) {
                self.supplied.remove(&lane.id);
            }
        }
    }

    /// Finds out when there will be more jobs, and whether limits hold jobs back, by one statement each, however many
    /// lanes there are.
    fn look_ahead(&self, admission: &Admission, claimed: &mut Claimed) -> Result<()> {
        let (mut waiting, mut limited) = (Vec::new(), Vec::new());
        for (index, lane) in admission.lanes().enumerate() {
            match admission.outlook(index) {
                Outlook::Paused => {}
                Outlook::AfterOthers => limited.push(lane.id),
                outlook => waiting.push((outlook, lane.id)),
            }
        }
        if !limited.is_empty() {
            let found = self.row(
                "SELECT EXISTS (SELECT 1 FROM json_each(?1) l \
                 WHERE EXISTS (SELECT 1 FROM slice WHERE lane_id = l.value))",
                [serde_json::to_string(&limited)?],
                |row| row.get(0),
            )?;
            claimed.limited = found.unwrap_or(false);
        }
        if waiting.is_empty() {
            return Ok(());
        }
        let lanes: Vec<i64> = waiting.iter().map(|(_, lane)| *lane).collect();
        let firsts: HashMap<i64, (i64, Option<i64>)> = self
            .rows(
                FIRST,
                params![serde_json::to_string(&lanes)?, self.now.0],
                |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))),
            )?
            .into_iter()
            .collect();
        for (outlook, lane) in waiting {
            let Some((first, next)) = firsts.get(&lane) else {
                continue;
            };
            let next = match outlook {
                Outlook::Open => next.map(Timestamp),
                Outlook::At(at) => Some(at.max(Timestamp(*first))),
                Outlook::AfterOthers | Outlook::Paused => None,
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
                 expires_at, positions, lane_id, rank, claimed_at, family) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
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
                    taken.rank,
                    self.now.0,
                    taken.family,
                ],
            )?;
        }
        Ok(())
    }
}

/// A claim, or a look at the next jobs: it takes jobs in the order of claims.
trait Taker {
    /// The number of further jobs that it takes.
    fn jobs_left(&self) -> u32;
    /// Takes at most `jobs_max` jobs of a slice. Returns their number, and the rest of the slice.
    fn take(
        &mut self,
        transaction: &mut Transaction<'_>,
        lane: &Lane,
        slice: Slice,
        jobs_max: u32,
    ) -> Result<(u32, Option<Slice>)>;
}

/// The heads of lanes, and what takes jobs from them.
struct Heads<'c, 't, T> {
    cursors: Vec<LaneCursor>,
    taker: T,
    transaction: &'c mut Transaction<'t>,
}

impl<T: Taker> Line for Heads<'_, '_, T> {
    type Error = Failure;

    fn bound(&self, cursor: usize) -> Option<Place> {
        self.cursors[cursor].bound()
    }

    fn head(&mut self, cursor: usize, jobs_max: u32) -> Result<Option<Place>> {
        let jobs_left = self.taker.jobs_left();
        if jobs_left == 0 {
            return Ok(None);
        }
        let cursor = &mut self.cursors[cursor];
        cursor.look(self.transaction, jobs_left.min(jobs_max))?;
        Ok(cursor.place(self.transaction.now))
    }

    fn take(&mut self, cursor: usize, jobs_max: u32) -> Result<u32> {
        let cursor = &mut self.cursors[cursor];
        let Some(slice) = cursor.take() else {
            return Ok(0);
        };
        let (taken, rest) = self
            .taker
            .take(self.transaction, cursor.lane(), slice, jobs_max)?;
        if let Some(rest) = rest {
            cursor.give_back(rest);
        }
        Ok(taken)
    }

    fn jobs_left(&self) -> u32 {
        self.taker.jobs_left()
    }
}

impl Taker for Claim {
    fn jobs_left(&self) -> u32 {
        if self.has_room() { self.jobs_left() } else { 0 }
    }

    fn take(
        &mut self,
        transaction: &mut Transaction<'_>,
        lane: &Lane,
        slice: Slice,
        jobs_max: u32,
    ) -> Result<(u32, Option<Slice>)> {
        if self.damaged.contains(&slice.batch) {
            return Ok((0, None));
        }
        let prepared = match self.prepare(transaction, &slice, jobs_max) {
            Err(Failure::Refused(error @ StoreError::Damaged { .. })) => {
                tracing::error!(%error, "a claim passes over a damaged batch");
                self.damaged.insert(slice.batch);
                transaction.quarantine(slice.batch, Some(&slice))?;
                return Ok((0, None));
            }
            prepared => prepared?,
        };
        assert!(prepared.positions.len() <= jobs_max, "a claim takes no more");
        self.hold(transaction, lane, slice, prepared)
    }
}

/// A lease in progress.
#[derive(Debug)]
struct Claim {
    worker: WorkerId,
    lease: Option<LeaseId>,
    jobs: u32,
    jobs_max: u32,
    bytes: usize,
    taken: Vec<Taken>,
    /// Batches that were found to be damaged; the claim may still hold slices of them.
    damaged: BTreeSet<BatchId>,
}

/// The part of a slice that a claim takes.
struct Prepared {
    content: Content<BatchHead>,
    labels: Option<Arc<JobLabels>>,
    positions: Positions,
    rest: Positions,
    payloads: PackedArray,
    memos: Option<PackedArray>,
}

#[derive(Debug)]
struct Taken {
    slice: LeasedSlice,
    lane_id: i64,
    rank: i64,
    run_at: Timestamp,
    expires_at: Option<Timestamp>,
    family: Option<i64>,
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
            damaged: BTreeSet::new(),
        }
    }

    fn jobs_left(&self) -> u32 {
        assert!(
            self.jobs <= self.jobs_max,
            "a claim of {} jobs exceeds its limit of {}",
            self.jobs,
            self.jobs_max
        );
        self.jobs_max - self.jobs
    }

    fn assert_limits(&self, jobs_max: u32) {
        let slices = self.taken.iter().map(|taken| &taken.slice);
        assert_eq!(
            slices.map(LeasedSlice::len).sum::<u32>(),
            self.jobs,
            "the slices of a claim have all of its jobs"
        );
        assert!(
            self.jobs <= jobs_max && self.taken.len() <= LEASE_SLICES_MAX as usize,
            "{} jobs in {} slices exceed the limits of a claim",
            self.jobs,
            self.taken.len()
        );
        assert_eq!(
            self.lease.is_some(),
            !self.taken.is_empty(),
            "a claim has a lease exactly if it has jobs"
        );
    }

    fn has_room(&self) -> bool {
        self.jobs < self.jobs_max
            && self.bytes < LEASE_BYTES_TARGET
            && self.taken.len() < LEASE_SLICES_MAX as usize
    }

    /// Reads at most `jobs_max` jobs of a slice, or as many as there is space for. Writes nothing, because the rows may
    /// be damaged.
    fn prepare(&self, transaction: &mut Transaction<'_>, slice: &Slice, jobs_max: u32) -> Result<Prepared> {
        let content = transaction.with_payloads(slice.batch)?;
        let missing = || damaged(slice.batch, "batch", "it has no payloads");
        let payloads = content.payloads.as_ref().ok_or_else(missing)?;
        slice.check(&content.head, payloads.count())?;
        let labels = transaction.labels(slice.batch, &content)?;
        let label_bytes = labels.as_ref().map_or(0, |labels| labels.job_bytes());
        let bytes_per_job = (payloads.as_str().len() / payloads.count().max(1) as usize + label_bytes).max(1);
        let bytes_left = LEASE_BYTES_TARGET - self.bytes;
        let jobs_by_bytes = u32::try_from(bytes_left.div_ceil(bytes_per_job)).unwrap_or(u32::MAX);
        let mut rest = slice.positions.clone();
        let positions = rest.take_first(self.jobs_left().min(jobs_by_bytes).min(jobs_max));
        let mut payloads = content.select(&positions).ok_or_else(missing)?;
        assert_eq!(
            payloads.count(),
            positions.len(),
            "each claimed job of batch {} has a payload",
            slice.batch
        );
        let unique = content.head.options.unique;
        if let Some(debounce) = unique.and_then(|unique| unique.debounce) {
            let connection = transaction.connection;
            let added = debounced_payloads(connection, slice.batch, &positions, payloads, debounce);
            payloads = in_batch(slice.batch, "debounced", added)?;
        }
        let memos = match slice.family {
            Some(family) => {
                let memos = transaction.memos_of(slice.batch, family, &positions);
                Some(in_batch(slice.batch, "suspension", memos)?)
            }
            None => None,
        };
        assert!(
            memos
                .as_ref()
                .is_none_or(|memos| memos.count() == positions.len())
        );
        assert_eq!(payloads.count(), positions.len(), "each job has a payload");
        Ok(Prepared {
            content,
            labels,
            positions,
            rest,
            payloads,
            memos,
        })
    }

    /// Takes the prepared part of a slice. Returns the number of jobs, and the rest of the slice.
    fn hold(
        &mut self,
        transaction: &mut Transaction<'_>,
        lane: &Lane,
        mut slice: Slice,
        prepared: Prepared,
    ) -> Result<(u32, Option<Slice>)> {
        let Prepared {
            content,
            labels,
            positions,
            rest,
            payloads,
            memos,
        } = prepared;
        transaction.shorten(&slice, &rest)?;
        let standing = slice.standing();
        let lease = match self.lease {
            Some(lease) => lease,
            None => *self.lease.insert(transaction.next_lease_id()?),
        };
        let jobs = positions.len();
        assert!(jobs > 0, "a claim takes at least one job of a slice");
        assert!(
            rest.is_empty() || positions.last() < rest.first(),
            "a claim takes the first jobs of a slice"
        );
        self.jobs += jobs;
        let leased = LeasedSlice {
            lease,
            batch: slice.batch,
            kind: lane.kind.clone(),
            queue: lane.queue.clone(),
            group: group(lane.group.clone()),
            positions,
            payloads,
            attempt: slice.attempt,
            rescues: slice.rescues,
            timeout_ms: standing.timeout_ms(&content.head.options, transaction.now),
            priority: i16::try_from(-slice.rank).unwrap_or(i16::MIN),
            retry: content.head.options.retry,
            submitted_at: content.head.submitted_at,
            memos,
            deadline: standing.deadline(&content.head.options, transaction.now),
            labels,
            traceparent: content.head.options.traceparent,
        };
        self.bytes += leased.weight_bytes();
        assert!(self.taken.iter().all(|taken| taken.slice.lease == lease));
        self.taken.push(Taken {
            slice: leased,
            lane_id: lane.id,
            rank: slice.rank,
            run_at: slice.run_at,
            expires_at: slice.expires_at,
            family: slice.family,
        });
        let left = rest.first().map(|first| {
            slice.first_position = first;
            slice.positions = rest;
            slice
        });
        Ok((jobs, left))
    }
}
