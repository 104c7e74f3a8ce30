//! Claims from lanes with controls.
//!
//! The claim waits for its turn and reads the usage of the limits. Then it looks at the heads of the lanes with free
//! slots, without a lock, and decides which slices to take. Then it locks those slices. It passes over slices that
//! other transactions hold, and looks again a few times.

use std::collections::{HashMap, HashSet, VecDeque};
use std::convert::Infallible;

use gristmill_model::limits::{LEASE_BYTES_TARGET, LEASE_JOBS_MAX, LEASE_SLICES_MAX};
use gristmill_model::{BatchId, Timestamp, WorkerId};
use gristmill_store::Want;
use gristmill_store::rules::admission::{Admission, Line, Outlook, Place};
use gristmill_store::rules::lanes::Lane;
use tokio_postgres::Row;

use crate::claim::{Claimed, LANES_SOUGHT_MAX, Reads, Round, again_at, lane_ids};
use crate::database::connection::Param;
use crate::database::handle_cache::HandleCache;
use crate::database::rows::{Slice, Taken};
use crate::database::transaction::Transaction;
use crate::failure::Result;

/// How often a claim looks again after others took the slices that it had found.
const MISSES_MAX: u32 = 4;

/// The minimum number of slices of a lane that a claim looks at.
const LOOK_SLICES_MIN: u32 = 2;

/// Those of the lanes `$1` that have slices.
const WITH_SLICES: &str = "SELECT l.id FROM unnest($1::integer[]) l (id) \
     WHERE EXISTS (SELECT FROM gristmill.slice s WHERE s.lane_id = l.id)";

/// With more wanted lanes than this, a claim first finds the lanes that have slices.
const LANES_LOOKED_INTO_MAX: usize = 16;

/// Due slices of lanes with controls, by their effective rank.
const LOOK: &str = include_str!("../statements/look_admitted.sql");

macro_rules! named_slices {
    ($end:literal) => {
        concat!(
            "SELECT s.batch_id, s.id, s.lane_id, s.rank, s.run_at, s.expires_at, s.attempt, s.rescues, s.job_bytes, \
             s.positions, s.awaited, s.family FROM unnest($1::bigint[], $2::bigint[]) k (batch_id, id) \
             JOIN gristmill.slice s ON s.batch_id = k.batch_id AND s.id = k.id",
            $end
        )
    };
}

/// Locks these slices, except those that others are claiming.
const LOCK: &str = named_slices!(" FOR UPDATE OF s SKIP LOCKED");

/// These slices.
pub(super) const READ: &str = named_slices!("");

/// Reports whether one of the lanes `$1` has slices; it stops at the first one that has.
const ANY: &str = "SELECT EXISTS (SELECT FROM unnest($1::integer[]) l (id) CROSS JOIN LATERAL ( \
     SELECT FROM gristmill.slice s WHERE s.lane_id = l.id LIMIT 1) s)";

/// The first moments of some lanes: of all slices, and of those that are not due.
const FIRST: &str = include_str!("../statements/first_moments.sql");

/// A slice that was looked at.
#[derive(Debug)]
struct Candidate {
    place: Place,
    id: i64,
    jobs: u32,
    job_bytes: u32,
}

/// The heads of lanes, and the chosen slices.
#[derive(Debug)]
pub(super) struct Candidates {
    lanes: Vec<VecDeque<Candidate>>,
    /// For each lane, whether it has slices after the ones that were read.
    unknown: Vec<bool>,
    /// Whether a lane could take more after its last known slice. Its next slice may come before those of the others.
    is_cut: bool,
    /// The lanes that have more slices than were read or taken.
    with_more: HashSet<usize>,
    jobs_left: u32,
    bytes_left: u64,
    slices_left: u32,
    /// By batch and slice: the lane and the number of jobs.
    pub chosen: HashMap<(BatchId, i64), (usize, u32)>,
    pub order: Vec<(BatchId, i64)>,
}

impl Line for Candidates {
    type Error = Infallible;

    fn head(&mut self, lane: usize, _jobs_max: u32) -> std::result::Result<Option<Place>, Infallible> {
        let head = self.lanes[lane].front().map(|candidate| candidate.place);
        self.is_cut |= head.is_none() && self.unknown[lane];
        Ok(head)
    }

    fn take(&mut self, lane: usize, jobs_max: u32) -> std::result::Result<u32, Infallible> {
        let room = self.room();
        let Some(candidate) = self.lanes[lane].front_mut() else {
            return Ok(0);
        };
        let job_bytes = u64::from(candidate.job_bytes.max(1));
        let jobs_by_bytes = u32::try_from(self.bytes_left.div_ceil(job_bytes)).unwrap_or(u32::MAX);
        let jobs = jobs_max.min(room).min(jobs_by_bytes).min(candidate.jobs);
        if jobs == 0 {
            return Ok(0);
        }
        let key = (candidate.place.2, candidate.id);
        candidate.jobs -= jobs;
        if candidate.jobs == 0 {
            self.lanes[lane].pop_front();
        }
        let chosen = self.chosen.entry(key).or_insert((lane, 0));
        if chosen.1 == 0 {
            self.order.push(key);
            self.slices_left -= 1;
        }
        assert!(chosen.0 == lane && jobs <= self.jobs_left, "a slice has one lane");
        chosen.1 += jobs;
        self.jobs_left -= jobs;
        self.bytes_left = self.bytes_left.saturating_sub(u64::from(jobs) * job_bytes);
        Ok(jobs)
    }

    fn jobs_left(&self) -> u32 {
        if self.is_cut { 0 } else { self.room() }
    }
}

impl Candidates {
    /// Nothing yet, for at most this number of jobs and bytes.
    pub fn new(jobs_max: u32, bytes_max: u64) -> Self {
        Candidates {
            lanes: Vec::new(),
            unknown: Vec::new(),
            is_cut: false,
            with_more: HashSet::new(),
            jobs_left: jobs_max,
            bytes_left: bytes_max,
            slices_left: LEASE_SLICES_MAX,
            chosen: HashMap::new(),
            order: Vec::new(),
        }
    }

    /// The number of jobs that the claim can still take.
    pub fn room(&self) -> u32 {
        if self.bytes_left > 0 && self.slices_left > 0 {
            self.jobs_left
        } else {
            0
        }
    }

    /// Chooses among the slices that were looked at.
    pub fn choose(&mut self, admission: &mut Admission) {
        let cursors: Vec<usize> = (0..self.lanes.len()).collect();
        let Ok(()) = admission.take_from(self, &cursors);
    }

    /// Records which lanes have jobs that were not taken.
    fn note_what_is_left(&mut self) {
        let lanes = self.lanes.iter().enumerate();
        let left = lanes.filter(|(_, candidates)| !candidates.is_empty());
        self.with_more.extend(left.map(|(lane, _)| lane));
    }
}

impl Transaction {
    /// Takes due slices of lanes with controls.
    pub async fn claim_admitted(
        &mut self,
        worker: WorkerId,
        lease: i64,
        want: &Want,
        lanes: Vec<Lane>,
        round: &Round,
    ) -> Result<Claimed> {
        let lanes = self.with_slices(lanes).await?;
        let needs = self.cache.controls().needs(&lanes);
        let usage = self.usage(&needs).await?;
        let mut admission = Admission::new(&mut self.cache.controls(), lanes, self.now, &usage);
        let mut line = Candidates::new(want.jobs_max.min(LEASE_JOBS_MAX), LEASE_BYTES_TARGET as u64);
        let (mut looks, mut misses) = (0, 0);
        let (mut seen, mut taken) = (Vec::new(), Vec::new());
        // Each look but the last takes a slice, and each reads twice as many as the one before.
        while misses < MISSES_MAX {
            let sight = (Some(&*self.cache), self.now);
            let exhausted = look_at(self, sight, want, &admission, &mut line, looks, &seen).await?;
            looks += 1;
            line.choose(&mut admission);
            line.note_what_is_left();
            let missed = self
                .lock_chosen(&mut admission, &mut line, &mut seen, &mut taken)
                .await?;
            misses += u32::from(missed);
            if line.room() == 0 || (exhausted && !missed) {
                break;
            }
        }
        admission.remember(&mut self.cache.controls());
        if self.writes.news.freed {
            // Wakes those that wait for a slot, if this claim has left one.
            self.writes.news.woke |= admission.has_free_slot();
            self.writes.news.freed = false;
        }
        for (key, empty_at_ns) in admission.buckets() {
            self.writes.put_bucket(key, empty_at_ns);
        }
        let mut claimed = Claimed::default();
        if line.room() > 0 {
            self.look_ahead(&admission, &line, &mut claimed).await?;
            let lanes: Vec<Lane> = admission.lanes().cloned().collect();
            claimed.limited |= self.is_beyond(want, &lanes).await?;
            // Others have locked some slices, or the next claim has to look into further lanes.
            let again_at = (misses > 0 || !round.is_over).then(|| again_at(self.now));
            claimed.next_at = claimed.next_at.into_iter().chain(again_at).min();
        }
        assert_eq!(
            taken.iter().map(|part| part.positions.len()).sum::<u32>() + line.jobs_left,
            want.jobs_max.min(LEASE_JOBS_MAX),
            "each wanted job is taken or left"
        );
        round.remember(&self.cache);
        self.hold(worker, lease, &taken);
        claimed.taken = taken;
        Ok(claimed)
    }

    /// Keeps the lanes that have slices, where asking for them is cheaper than a look into each lane. Beyond
    /// [`LANES_SOUGHT_MAX`] lanes, all of them are known to have slices.
    async fn with_slices(&self, lanes: Vec<Lane>) -> Result<Vec<Lane>> {
        if !(LANES_LOOKED_INTO_MAX..=LANES_SOUGHT_MAX).contains(&lanes.len()) {
            return Ok(lanes);
        }
        let rows = self.query(WITH_SLICES, &[&lane_ids(&lanes)]).await?;
        let busy = rows
            .iter()
            .map(|row| Ok(i64::from(row.try_get::<_, i32>(0)?)))
            .collect::<Result<HashSet<i64>>>()?;
        Ok(lanes.into_iter().filter(|lane| busy.contains(&lane.id)).collect())
    }

    /// Locks the chosen slices. Reports whether others had some of them.
    async fn lock_chosen(
        &self,
        admission: &mut Admission,
        line: &mut Candidates,
        seen: &mut Vec<i64>,
        taken: &mut Vec<Taken>,
    ) -> Result<bool> {
        let order = std::mem::take(&mut line.order);
        let mut chosen = std::mem::take(&mut line.chosen);
        if order.is_empty() {
            return Ok(false);
        }
        let params: Vec<Param> = vec![
            Box::new(order.iter().map(|key| key.0.0).collect::<Vec<_>>()),
            Box::new(order.iter().map(|key| key.1).collect::<Vec<_>>()),
        ];
        let mut locked: HashMap<i64, Slice> = HashMap::new();
        for row in &self.send(LOCK, params).await?.await? {
            let slice = Slice::read(row, 0)?;
            locked.insert(slice.id, slice);
        }
        let mut missed = false;
        for key in order {
            seen.push(key.1);
            let Some((lane, jobs)) = chosen.remove(&key) else {
                continue;
            };
            let got = locked.remove(&key.1).map(|slice| Taken {
                positions: slice.positions.clone().take_first(jobs),
                slice,
            });
            let lost = jobs - got.as_ref().map_or(0, |part| part.positions.len());
            if lost > 0 {
                missed = true;
                admission.give_back(lane, lost);
                line.jobs_left += lost;
            }
            taken.extend(got);
        }
        assert!(chosen.is_empty() && locked.is_empty(), "all are looked at");
        Ok(missed)
    }

    /// Finds out when there will be more jobs, and whether limits hold jobs back, by one statement each.
    async fn look_ahead(
        &self,
        admission: &Admission,
        line: &Candidates,
        claimed: &mut Claimed,
    ) -> Result<()> {
        let (mut waiting, mut outlooks, mut limited) = (Vec::new(), Vec::new(), Vec::new());
        for (index, lane) in admission.lanes().enumerate() {
            match admission.outlook(index) {
                Outlook::Paused => {}
                Outlook::AfterOthers if line.with_more.contains(&index) => claimed.limited = true,
                Outlook::AfterOthers => limited.push(lane.clone()),
                outlook => {
                    waiting.push(lane.clone());
                    outlooks.push(outlook);
                }
            }
        }
        // Usually the look has found it.
        if !claimed.limited && !limited.is_empty() {
            let row = self.query_opt(ANY, &[&lane_ids(&limited)]).await?;
            claimed.limited = row.map_or(Ok(false), |row| row.try_get(0))?;
        }
        if waiting.is_empty() {
            return Ok(());
        }
        let params: Vec<Param> = vec![Box::new(lane_ids(&waiting)), Box::new(self.now.0)];
        let mut firsts = HashMap::new();
        for row in &self.send(FIRST, params).await?.await? {
            let moment = |column: usize| -> Result<Option<Timestamp>> {
                Ok(row.try_get::<_, Option<i64>>(column)?.map(Timestamp))
            };
            firsts.insert(i64::from(row.try_get::<_, i32>(0)?), (moment(1)?, moment(2)?));
        }
        for (lane, outlook) in waiting.iter().zip(outlooks) {
            let (first, next) = firsts.get(&lane.id).copied().unwrap_or_default();
            let next = match outlook {
                Outlook::Open => next,
                Outlook::At(at) => first.map(|first| first.max(at)),
                Outlook::AfterOthers | Outlook::Paused => None,
            };
            claimed.next_at = claimed.next_at.into_iter().chain(next).min();
        }
        Ok(())
    }
}

/// Reads the heads of the lanes that can take more jobs: as many slices of each as were enough last time, and twice
/// as many after each earlier look; without a cache, a few at first. Reports whether there is no more to find.
pub(super) async fn look_at(
    reads: &impl Reads,
    (cache, now): (Option<&HandleCache>, Timestamp),
    want: &Want,
    admission: &Admission,
    line: &mut Candidates,
    looks_before: u32,
    seen: &[i64],
) -> Result<bool> {
    let (mut ids, mut rooms, mut graces, mut steps) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut slices_max = Vec::new();
    let mut places = HashMap::new();
    for (index, lane) in admission.lanes().enumerate() {
        let room = admission.room(index).min(line.room());
        if room > 0 {
            let id = i32::try_from(lane.id).unwrap_or(i32::MAX);
            places.insert(id, index);
            ids.push(id);
            rooms.push(i64::from(room));
            let usual = cache.map_or(0, |cache| cache.slices_for(room));
            let slices = i64::from(usual.max(LOOK_SLICES_MIN)) << looks_before.min(16);
            slices_max.push(slices.min(LEASE_SLICES_MAX.into()));
            let aging = admission.aging(index);
            graces.push(aging.map(|aging| aging.grace_ms));
            steps.push(aging.map(|aging| aging.step_ms));
        }
    }
    line.lanes.clear();
    line.lanes.resize_with(admission.lanes().count(), VecDeque::new);
    line.unknown = vec![false; line.lanes.len()];
    line.is_cut = false;
    if ids.is_empty() {
        return Ok(true);
    }
    let params: Vec<Param> = vec![
        Box::new(ids),
        Box::new(rooms),
        Box::new(graces),
        Box::new(steps),
        Box::new(now.0),
        Box::new(slices_max),
        Box::new(seen.to_vec()),
        Box::new(i64::from(LEASE_SLICES_MAX)),
        Box::new(admission.is_shared()),
        Box::new(want.rank_max()),
    ];
    let rows = reads.send(LOOK, params).await?.await?;
    let mut exhausted = rows.len() < LEASE_SLICES_MAX as usize;
    for row in &rows {
        let has_more: bool = row.try_get(8)?;
        exhausted &= !has_more;
        if let Some(lane) = places.get(&row.try_get::<_, i32>(2)?) {
            line.lanes[*lane].push_back(Candidate::read(row)?);
            line.unknown[*lane] |= has_more;
            // The look found as many slices of this rank as it asked for, and fewer fill all that the lane can take.
            if has_more && row.try_get(9)? {
                line.with_more.insert(*lane);
            }
        }
    }
    Ok(exhausted)
}

impl Candidate {
    fn read(row: &Row) -> Result<Candidate> {
        let number = |column: usize| -> Result<u32> { Ok(row.try_get::<_, i32>(column)?.unsigned_abs()) };
        let run_at = Timestamp(row.try_get(4)?);
        Ok(Candidate {
            place: (row.try_get(3)?, run_at, BatchId(row.try_get(0)?), number(5)?),
            id: row.try_get(1)?,
            jobs: number(6)?,
            job_bytes: number(7)?,
        })
    }
}
