//! Claims slices.
//!
//! The slices of a lane lie in the order of claims: by rank (the negated priority), by the moment from which they can
//! be claimed, and by batch. Within a rank, due slices come first. So a claim reads the heads of the wanted lanes, rank
//! by rank, and skips everything that is not due. A claim passes over slices that others are claiming, and locks only
//! the slices that it takes, so no claim waits for another or finds too little. The other transactions may roll back,
//! or only change a slice. So a claim that passed over slices and wants more jobs says that there may be more soon, and
//! no worker ends its drain because of it.

pub(crate) mod admitted_claim;
pub(crate) mod claim_all;
pub(crate) mod control;
pub(crate) mod held;
pub(crate) mod next;
pub(crate) mod quarantine;
pub(crate) mod slice;

use std::collections::{BTreeMap, HashMap, HashSet};

use gristmill_model::limits::{LEASE_BYTES_TARGET, LEASE_JOBS_MAX, LEASE_SLICES_MAX};
use gristmill_model::{Timestamp, WorkerId};
use gristmill_store::Want;
use gristmill_store::rules::admission::{Aging, Place};
use gristmill_store::rules::lanes::{LOOK_LANES_MAX, Lane};
use tokio_postgres::Row;

use crate::database::answers::Pending;
use crate::database::connection::Param;
use crate::database::handle_cache::HandleCache;
use crate::database::rows::{Slice, Taken};
use crate::database::snapshot::Snapshot;
use crate::database::transaction::Transaction;
use crate::failure::Result;
use crate::limits::PASSED_OVER_AGAIN_MS;
use crate::submit::lanes::NEWS;

/// The minimum number of slices that a claim looks at.
const LOOK_SLICES_MIN: u32 = 4;

/// With more wanted lanes than this, a claim first finds the lanes that have slices, by one seek each.
pub(crate) const LANES_SOUGHT_MAX: usize = 256;

/// Lanes that have slices, after the lane `$1`, up to `$2` of them.
const BUSY: &str = "WITH RECURSIVE busy (id) AS ( \
     (SELECT s.lane_id FROM gristmill.slice s WHERE s.lane_id > $1 ORDER BY s.lane_id LIMIT 1) \
     UNION ALL SELECT (SELECT s.lane_id FROM gristmill.slice s WHERE s.lane_id > b.id ORDER BY s.lane_id LIMIT 1) \
     FROM busy b WHERE b.id IS NOT NULL) \
     SELECT id FROM busy WHERE id IS NOT NULL LIMIT $2";

/// Puts `head` before a statement: the ranks of the lanes `$1` up to `$3` (or of other parameters). One seek finds each
/// of them, however many slices lie between.
macro_rules! heads {
    ($lanes:literal, $rank_max:literal, $($rest:tt)+) => {
        concat!(
            "WITH RECURSIVE head (lane_id, rank) AS ( \
             SELECT l.id, (SELECT s.rank FROM gristmill.slice s WHERE s.lane_id = l.id \
             AND s.rank <= ", $rank_max, "::integer ORDER BY s.rank LIMIT 1) \
             FROM unnest(", $lanes, "::integer[]) l (id) \
             UNION ALL \
             SELECT h.lane_id, (SELECT s.rank FROM gristmill.slice s WHERE s.lane_id = h.lane_id AND s.rank > h.rank \
             AND s.rank <= ", $rank_max, "::integer ORDER BY s.rank LIMIT 1) FROM head h WHERE h.rank IS NOT NULL) ",
            $($rest)+
        )
    };
    ($($rest:tt)+) => {
        heads!("$1", "$3", $($rest)+)
    };
}

pub(crate) use heads;

/// Due slices of some lanes, in the order of claims.
const LOOK: &str = heads!(
    include_str!("statements/look.sql"),
    include_str!("statements/take_line.sql")
);

/// The same for lanes whose jobs age.
const LOOK_AGING: &str = heads!(
    include_str!("statements/look_aging.sql"),
    include_str!("statements/take_line.sql")
);

/// The time after `$2` when the next slice of the lanes `$1`, with a rank up to `$3`, is due.
const NEXT: &str = heads!(
    "SELECT min(s.run_at) FROM head h CROSS JOIN LATERAL (SELECT s.run_at FROM gristmill.slice s \
     WHERE s.lane_id = h.lane_id AND s.rank = h.rank AND s.run_at > $2 ORDER BY s.run_at LIMIT 1) s \
     WHERE h.rank IS NOT NULL"
);

/// Reports whether slices of the lanes `$1` have ranks above `$2`.
const BEYOND: &str = "SELECT EXISTS (SELECT FROM unnest($1::integer[]) l (id) CROSS JOIN LATERAL ( \
     SELECT FROM gristmill.slice s WHERE s.lane_id = l.id AND s.rank > $2 LIMIT 1) s)";

/// How the jobs of each lane age; `None` if one of the lanes has other controls.
type Agings = Option<Vec<Option<Aging>>>;

/// Where a claim reads: in its transaction, or on a snapshot, for a look that takes nothing.
pub(crate) trait Reads {
    /// Sends a query without waiting for its answer.
    async fn send(&self, sql: &str, params: Vec<Param>) -> Result<Pending<Vec<Row>>>;
}

impl Reads for Transaction {
    async fn send(&self, sql: &str, params: Vec<Param>) -> Result<Pending<Vec<Row>>> {
        self.connection.send(sql, params).await
    }
}

impl Reads for Snapshot {
    async fn send(&self, sql: &str, params: Vec<Param>) -> Result<Pending<Vec<Row>>> {
        Snapshot::send(self, sql, params).await
    }
}

/// A look at the heads of lanes.
pub(crate) struct Look<Rows> {
    /// The wanted lanes; `None` if they are many and `busy` finds those with slices.
    lanes: Option<Vec<Lane>>,
    /// How the jobs of each lane age, as far as the controls were known.
    agings: Agings,
    news: Rows,
    /// The found slices; `None` if one of the lanes has controls, or the lanes are many.
    rows: Option<Rows>,
    busy: Option<Rows>,
    round: Round,
    slices_max: u32,
}

impl Look<Pending<Vec<Row>>> {
    /// Waits for the found slices.
    pub async fn arrive(self) -> Result<Look<Vec<Row>>> {
        let arrived = async |rows: Option<Pending<Vec<Row>>>| match rows {
            Some(rows) => rows.await.map(Some),
            None => Ok(None),
        };
        Ok(Look {
            lanes: self.lanes,
            agings: self.agings,
            news: self.news.await?,
            rows: arrived(self.rows).await?,
            busy: arrived(self.busy).await?,
            round: self.round,
            slices_max: self.slices_max,
        })
    }
}

/// The result of a claim.
#[derive(Default)]
pub(crate) struct Claimed {
    pub taken: Vec<Taken>,
    /// When the next job can be claimed, if the claim found fewer than wanted.
    pub next_run_at: Option<Pending<Vec<Row>>>,
    /// The same time, as far as it is known by now.
    pub next_at: Option<Timestamp>,
    /// Whether limits hold jobs back until others end.
    pub limited: bool,
    /// The number of its jobs that this transaction has made claimable.
    pub jobs_new: u64,
}

/// A claim in progress.
struct Claim {
    jobs_max: u32,
    jobs: u32,
    bytes: u64,
    /// The found slices, by place in line.
    found: BTreeMap<(Place, i64), Slice>,
    seen: Vec<i64>,
    /// The found slices that this transaction has made.
    new: HashSet<i64>,
    /// Whether other transactions have locked some of the found slices.
    passed_over: bool,
    /// The aging of the lanes whose jobs age.
    agings: HashMap<i64, Aging>,
    now: Timestamp,
}

impl Transaction {
    /// Sends the first look of a claim. It reads as many slices as held enough jobs last time.
    pub async fn send_look(&self, want: &Want) -> Result<Option<Look<Pending<Vec<Row>>>>> {
        let jobs_max = want.jobs_max.min(LEASE_JOBS_MAX);
        if jobs_max == 0 {
            return Ok(None);
        }
        let lanes = self.cache.lanes().wanted_up_to(want, LANES_SOUGHT_MAX);
        let version = self.cache.controls().version();
        let params: Vec<Param> = vec![Box::new(self.cache.lane_id_max()), Box::new(version)];
        let news = self.send(NEWS, params).await?;
        let slices_max = self.cache.slices_for(jobs_max).max(LOOK_SLICES_MIN);
        let round = Round::begin(&self.cache);
        let (mut agings, mut rows, mut busy) = (None, None, None);
        match &lanes {
            Some(lanes) => {
                agings = self.cache.controls().agings(lanes);
                if let Some(agings) = &agings {
                    let wanted = (jobs_max, LEASE_BYTES_TARGET as u64);
                    rows = Some(self.look(want, lanes, agings, wanted, slices_max, &[]).await?);
                }
            }
            None => busy = Some(self.send(BUSY, round.params()).await?),
        }
        Ok(Some(Look {
            lanes,
            agings,
            news,
            rows,
            busy,
            round,
            slices_max,
        }))
    }

    async fn look(
        &self,
        want: &Want,
        lanes: &[Lane],
        agings: &[Option<Aging>],
        (jobs, bytes): (u32, u64),
        slices_max: u32,
        seen: &[i64],
    ) -> Result<Pending<Vec<Row>>> {
        let mut params: Vec<Param> = vec![
            Box::new(lane_ids(lanes)),
            Box::new(self.now.0),
            Box::new(want.rank_max()),
            Box::new(i64::try_from(bytes).unwrap_or(i64::MAX)),
            Box::new(i64::from(slices_max)),
            Box::new(seen.to_vec()),
            Box::new(i64::from(jobs)),
        ];
        if agings.iter().all(Option::is_none) {
            return self.send(LOOK, params).await;
        }
        let parts = |part: fn(Aging) -> i64| agings.iter().map(|aging| aging.map(part)).collect::<Vec<_>>();
        params.push(Box::new(parts(|aging| aging.grace_ms)));
        params.push(Box::new(parts(|aging| aging.step_ms)));
        self.send(LOOK_AGING, params).await
    }

    /// Takes due slices, in the order of claims, until there are enough. COMMIT puts them under the lease.
    pub async fn claim(
        &mut self,
        worker: WorkerId,
        lease: i64,
        want: &Want,
        mut look: Look<Vec<Row>>,
    ) -> Result<Claimed> {
        let news = self.add_news(&look.news).await?;
        if let Some(version) = news.control_version {
            self.read_controls(version).await?;
        }
        let mut round = look.round;
        let known = look.lanes.as_ref().map(Vec::len);
        let sought = if news.has_lanes() {
            self.cache.lanes().wanted_up_to(want, LANES_SOUGHT_MAX)
        } else {
            look.lanes
        };
        let mut lanes = match (sought, &look.busy) {
            (_, Some(busy)) => round.wanted(&self.cache, want, busy)?,
            (Some(lanes), None) => lanes,
            (None, None) => self.next_busy(&mut round, want).await?,
        };
        let mut claim = Claim::new(want, self.now);
        let mut claimed = Claimed::default();
        loop {
            let Some(agings) = self.cache.controls().agings(&lanes) else {
                if claim.found.is_empty() && claimed.next_run_at.is_none() {
                    return self.claim_admitted(worker, lease, want, lanes, &round).await;
                }
                // The next claim begins with these lanes.
                claimed.next_at = Some(self.now);
                break;
            };
            claim.learn(&lanes, &agings);
            // The controls have changed since the look, so the claim looks at all lanes as if they were new. Jobs of
            // new lanes may come before the found ones.
            let is_stale = look.agings.take().as_ref() != Some(&agings) || known != Some(lanes.len());
            let mut exhausted = match look.rows.take() {
                Some(rows) if !is_stale => claim.add(&rows, look.slices_max)?,
                _ => false,
            };
            while claim.has_room() && !exhausted {
                look.slices_max = (look.slices_max * 2).min(LEASE_SLICES_MAX);
                let wanted = (
                    claim.jobs_max - claim.jobs,
                    LEASE_BYTES_TARGET as u64 - claim.bytes,
                );
                let rows = self.look(want, &lanes, &agings, wanted, look.slices_max, &claim.seen);
                exhausted = claim.add(&rows.await?.await?, look.slices_max)?;
            }
            if claim.has_room() {
                claimed.limited |= self.is_beyond(want, &lanes).await?;
                self.send_next(want, &lanes, &mut claimed).await?;
            }
            if !claim.has_room() || round.is_over {
                break;
            }
            round.remember(&self.cache);
            lanes = self.next_busy(&mut round, want).await?;
        }
        if claim.has_room() && claim.passed_over {
            let again_at = again_at(self.now);
            claimed.next_at = Some(claimed.next_at.map_or(again_at, |at| at.min(again_at)));
        }
        round.remember(&self.cache);
        self.cache.remember_keeping_up(claim.has_room());
        (claimed.taken, claimed.jobs_new) = claim.take();
        self.hold(worker, lease, &claimed.taken);
        Ok(claimed)
    }

    /// Asks when the next slice of these lanes is due. The answer comes with COMMIT, unless the claim looks into other
    /// lanes next.
    async fn send_next(&self, want: &Want, lanes: &[Lane], claimed: &mut Claimed) -> Result<()> {
        if let Some(before) = claimed.next_run_at.take() {
            let before = next_run_at(&before.await?)?;
            claimed.next_at = claimed.next_at.into_iter().chain(before).min();
        }
        if !lanes.is_empty() {
            let params: Vec<Param> = vec![
                Box::new(lane_ids(lanes)),
                Box::new(self.now.0),
                Box::new(want.rank_max()),
            ];
            claimed.next_run_at = Some(self.send(NEXT, params).await?);
        }
        Ok(())
    }

    /// Finds further wanted lanes that have slices.
    async fn next_busy(&self, round: &mut Round, want: &Want) -> Result<Vec<Lane>> {
        let rows = self.send(BUSY, round.params()).await?.await?;
        round.wanted(&self.cache, want, &rows)
    }

    /// Reports whether these lanes have jobs below the wanted priority.
    pub async fn is_beyond(&self, want: &Want, lanes: &[Lane]) -> Result<bool> {
        if want.priority_min.is_none() {
            return Ok(false);
        }
        let row = self
            .query_opt(BEYOND, &[&lane_ids(lanes), &want.rank_max()])
            .await?;
        Ok(row.map_or(Ok(false), |row| row.try_get(0))?)
    }

    /// Puts the taken slices under the lease.
    pub fn hold(&mut self, worker: WorkerId, lease: i64, taken: &[Taken]) {
        self.cache.remember_claim(taken);
        for part in taken {
            self.writes
                .shorten(&part.slice, &part.slice.positions.difference(&part.positions));
            self.writes
                .hold(self.now, &part.held(worker, lease), part.slice.lane_id);
        }
    }
}

pub(crate) fn lane_ids(lanes: &[Lane]) -> Vec<i32> {
    lanes
        .iter()
        .map(|lane| i32::try_from(lane.id).unwrap_or(i32::MAX))
        .collect()
}

/// The round of a claim through many lanes, a part of them at a time, from where the last claim ended.
#[derive(Debug)]
pub(crate) struct Round {
    /// The lane after which the round began; 0 for the first.
    began_after: i32,
    after: i32,
    is_wrapped: bool,
    /// Whether the claim has looked into all lanes.
    pub is_over: bool,
    /// Whether the round takes a part of the lanes at a time.
    is_parted: bool,
}

impl Round {
    fn begin(cache: &HandleCache) -> Round {
        Round {
            began_after: cache.look_after(),
            after: cache.look_after(),
            is_wrapped: false,
            is_over: true,
            is_parted: false,
        }
    }

    /// The parameters of [`BUSY`] for the next part.
    fn params(&self) -> Vec<Param> {
        vec![
            Box::new(self.after),
            Box::new(i64::try_from(LOOK_LANES_MAX).unwrap_or(i64::MAX)),
        ]
    }

    /// Continues with the lanes of the answer. Returns the wanted ones.
    fn wanted(&mut self, cache: &HandleCache, want: &Want, rows: &[Row]) -> Result<Vec<Lane>> {
        let ids = rows.iter().map(|row| row.try_get(0));
        let mut ids = ids.collect::<std::result::Result<Vec<i32>, _>>()?;
        if self.is_wrapped {
            ids.retain(|id| *id <= self.began_after);
        }
        self.is_parted = true;
        let is_end = rows.len() < LOOK_LANES_MAX || ids.len() < rows.len();
        self.is_over = is_end && (self.is_wrapped || self.began_after == 0);
        self.is_wrapped |= is_end;
        let after = ids.last().copied().filter(|_| !is_end).unwrap_or(0);
        assert!(
            is_end || after > self.after,
            "a round goes on after lane {}, not after {after}",
            self.after
        );
        self.after = after;
        let lanes = cache.lanes();
        let known = ids.iter().filter_map(|id| lanes.get(i64::from(*id)));
        Ok(known.filter(|lane| want.admits(lane)).cloned().collect())
    }

    /// Makes the next claim begin where this one ends.
    pub fn remember(&self, cache: &HandleCache) {
        if self.is_parted {
            cache.remember_look(if self.is_over { 0 } else { self.after });
        }
    }
}

impl Claim {
    fn new(want: &Want, now: Timestamp) -> Self {
        Claim {
            jobs_max: want.jobs_max.min(LEASE_JOBS_MAX),
            jobs: 0,
            bytes: 0,
            found: BTreeMap::new(),
            seen: Vec::new(),
            new: HashSet::new(),
            passed_over: false,
            agings: HashMap::new(),
            now,
        }
    }

    /// Stores how the jobs of these lanes age.
    fn learn(&mut self, lanes: &[Lane], agings: &[Option<Aging>]) {
        let agings = lanes.iter().zip(agings);
        self.agings
            .extend(agings.filter_map(|(lane, aging)| aging.map(|aging| (lane.id, aging))));
    }

    fn has_room(&self) -> bool {
        self.jobs < self.jobs_max
            && self.bytes < LEASE_BYTES_TARGET as u64
            && self.found.len() < LEASE_SLICES_MAX as usize
    }

    /// Adds the slices that a look found. Reports whether there is nothing more to find.
    fn add(&mut self, rows: &[Row], slices_max: u32) -> Result<bool> {
        let mut looked_at = 0;
        for row in rows {
            self.seen.push(row.try_get(0)?);
            looked_at = row.try_get(13)?;
            if row.try_get::<_, Option<i64>>(1)?.is_none() {
                self.passed_over = true;
                continue;
            }
            let slice = Slice::read(row, 1)?;
            if row.try_get(14)? {
                self.new.insert(slice.id);
            }
            let first = slice.positions.first().unwrap_or(0);
            self.jobs += slice.positions.len();
            self.bytes += u64::from(slice.positions.len()) * u64::from(slice.job_bytes);
            let rank = i64::from(slice.rank);
            let rank = match self.agings.get(&slice.lane_id) {
                Some(aging) => aging.rank(rank, slice.run_at, self.now),
                None => rank,
            };
            let place = (rank, slice.run_at, slice.batch, first);
            let known = self.found.insert((place, slice.id), slice);
            assert!(known.is_none(), "a claim sees a slice once");
        }
        Ok(looked_at == rows.len() as i64 && looked_at < i64::from(slices_max))
    }

    /// Cuts the found slices to the wanted number of jobs. Also returns how many of these jobs this transaction has made
    /// claimable.
    fn take(self) -> (Vec<Taken>, u64) {
        let (mut jobs_left, mut bytes_left) = (self.jobs_max, LEASE_BYTES_TARGET as u64);
        let mut taken = Vec::new();
        for slice in self.found.into_values() {
            if jobs_left == 0 || bytes_left == 0 || taken.len() == LEASE_SLICES_MAX as usize {
                break;
            }
            let job_bytes = u64::from(slice.job_bytes.max(1));
            let jobs_by_bytes = u32::try_from(bytes_left.div_ceil(job_bytes)).unwrap_or(u32::MAX);
            let positions = slice.positions.clone().take_first(jobs_left.min(jobs_by_bytes));
            jobs_left -= positions.len();
            bytes_left = bytes_left.saturating_sub(u64::from(positions.len()) * job_bytes);
            taken.push(Taken { slice, positions });
        }
        assert_eq!(
            taken.iter().map(|part| part.positions.len()).sum::<u32>(),
            self.jobs_max - jobs_left,
            "the slices of a claim have all of its jobs"
        );
        let new = taken.iter().filter(|part| self.new.contains(&part.slice.id));
        let jobs_new = new.map(|part| u64::from(part.positions.len())).sum();
        (taken, jobs_new)
    }
}

/// When a claim that passed over locked slices may find more.
pub(crate) fn again_at(now: Timestamp) -> Timestamp {
    now.plus_ms(PASSED_OVER_AGAIN_MS)
}

/// The moment in the answer to [`NEXT`].
pub(crate) fn next_run_at(rows: &[Row]) -> Result<Option<Timestamp>> {
    match rows.first() {
        Some(row) => Ok(row.try_get::<_, Option<i64>>(0)?.map(Timestamp)),
        None => Ok(None),
    }
}
