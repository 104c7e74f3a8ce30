//! The position of a claim in one lane: its due slices, in the order of claims.

use std::collections::VecDeque;

use gristmill_model::limits::LEASE_SLICES_MAX;
use gristmill_model::{BatchId, Timestamp};
use gristmill_store::StoreError;
use gristmill_store::rules::admission::{Aging, Place};
use gristmill_store::rules::lanes::Lane;
use rusqlite::params;

use crate::claim::slice::Slice;
use crate::failure::{Failure, Result};
use crate::transaction::Transaction;

/// Rows that the first look into a rank reads; each further look reads twice as many.
const LOOK_ROWS_FIRST: u32 = 4;

/// The ranks of the lane `?1`, each with the first moment of its slices. Takes two seeks per rank, however many slices
/// there are.
const RANKS: &str = "WITH RECURSIVE head (rank) AS ( \
     SELECT (SELECT rank FROM slice WHERE lane_id = ?1 ORDER BY rank LIMIT 1) \
     UNION ALL SELECT (SELECT rank FROM slice WHERE lane_id = ?1 AND rank > h.rank ORDER BY rank LIMIT 1) \
     FROM head h WHERE h.rank IS NOT NULL) \
     SELECT h.rank, (SELECT run_at FROM slice WHERE lane_id = ?1 AND rank = h.rank ORDER BY run_at LIMIT 1) \
     FROM head h WHERE h.rank IS NOT NULL";

/// The due slices of one lane.
#[derive(Debug)]
pub(crate) struct LaneCursor {
    lane: Lane,
    /// The highest wanted rank.
    rank_max: i64,
    order: Order,
}

#[derive(Debug)]
enum Order {
    /// One rank after the other; `None` before the first rank, or after the last.
    Ranks {
        current: Option<RankCursor>,
        exhausted: bool,
    },
    /// The ranks that have due slices, in competition. The one at `first` has the first slice.
    Aging {
        aging: Aging,
        ranks: Vec<RankCursor>,
        first: usize,
    },
}

impl LaneCursor {
    /// Goes through a lane rank by rank up to `rank_max`, beginning with the first rank and its first moment if they
    /// are known.
    pub fn by_rank(lane: Lane, first: Option<(i64, Timestamp)>, rank_max: i64) -> Self {
        let first = first.filter(|(rank, _)| *rank <= rank_max);
        let current = first.map(|(rank, run_at)| RankCursor::new(rank, run_at));
        let order = Order::Ranks {
            current,
            exhausted: false,
        };
        LaneCursor {
            lane,
            rank_max,
            order,
        }
    }

    /// Goes through the ranks up to `rank_max` of a lane whose jobs age.
    pub fn aging(transaction: &mut Transaction<'_>, lane: Lane, aging: Aging, rank_max: i64) -> Result<Self> {
        if !transaction.memory.ranks.contains_key(&lane.id) {
            let ranks = transaction.rows(RANKS, [lane.id], |row| Ok((row.get(0)?, row.get(1)?)))?;
            transaction
                .memory
                .ranks
                .insert(lane.id, ranks.into_iter().collect());
        }
        let known = transaction.memory.ranks.get(&lane.id);
        let ranks = known
            .into_iter()
            .flatten()
            .map(|(rank, run_at)| RankCursor::new(*rank, Timestamp(*run_at)))
            .filter(|rank| rank.from <= transaction.now && rank.rank <= rank_max)
            .collect();
        let order = Order::Aging {
            aging,
            ranks,
            first: 0,
        };
        Ok(LaneCursor {
            lane,
            rank_max,
            order,
        })
    }

    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Reads the next due slice of the lane, if there is one.
    pub fn look(&mut self, transaction: &mut Transaction<'_>, jobs_wanted: u32) -> Result<()> {
        let (lane, rank_max) = (&self.lane, self.rank_max);
        match &mut self.order {
            Order::Ranks { current, exhausted } => {
                while !*exhausted {
                    if let Some(rank) = current
                        && rank.look(transaction, lane, jobs_wanted)?
                    {
                        return Ok(());
                    }
                    let next = next_rank(transaction, lane, current.as_ref().map(|rank| rank.rank))?;
                    let next = next.filter(|rank| *rank <= rank_max);
                    *current = next.map(|rank| RankCursor::new(rank, Timestamp(i64::MIN)));
                    *exhausted = current.is_none();
                }
            }
            // The bound of an unread rank says that none of its slices comes earlier. Only ranks that may come first
            // are read.
            Order::Aging { aging, ranks, first } => {
                let now = transaction.now;
                while let Some((index, rank)) = ranks
                    .iter_mut()
                    .enumerate()
                    .min_by_key(|(_, rank)| rank.place(Some(*aging), now))
                {
                    *first = index;
                    if !rank.buffer.is_empty() {
                        break;
                    }
                    let is_new = !rank.is_begun();
                    let found = rank.look(transaction, lane, jobs_wanted)?;
                    if is_new {
                        let run_at = match rank.buffer.front() {
                            Some(slice) => Some(slice.run_at.0),
                            None => first_run_at(transaction, lane, rank.rank)?,
                        };
                        transaction.memory.know_rank(lane.id, rank.rank, run_at);
                    }
                    if !found {
                        ranks.swap_remove(index);
                    }
                }
            }
        }
        Ok(())
    }

    /// A place before which no slice of the lane comes, if it is known before the first look.
    pub fn bound(&self) -> Option<Place> {
        match &self.order {
            Order::Ranks {
                current: Some(rank), ..
            } if !rank.is_begun() => Some(rank.place(None, rank.from)),
            _ => None,
        }
    }

    /// The place of the current slice.
    pub fn place(&self, now: Timestamp) -> Option<Place> {
        let (rank, aging) = match &self.order {
            Order::Ranks { current, .. } => (current.as_ref()?, None),
            Order::Aging { aging, ranks, first } => (ranks.get(*first)?, Some(*aging)),
        };
        (!rank.buffer.is_empty()).then(|| rank.place(aging, now))
    }

    /// Takes the current slice.
    pub fn take(&mut self) -> Option<Slice> {
        let rank = self.current()?;
        let slice = rank.buffer.pop_front()?;
        rank.from = slice.run_at;
        Some(slice)
    }

    /// Puts back the unwanted rest of the slice that was taken last.
    pub fn give_back(&mut self, rest: Slice) {
        if let Some(rank) = self.current() {
            rank.buffer.push_front(rest);
        }
    }

    fn current(&mut self) -> Option<&mut RankCursor> {
        match &mut self.order {
            Order::Ranks { current, .. } => current.as_mut(),
            Order::Aging { ranks, first, .. } => ranks.get_mut(*first),
        }
    }
}

/// The due slices of one rank of a lane.
#[derive(Debug)]
struct RankCursor {
    rank: i64,
    /// The rest of the rank runs at this moment or later.
    from: Timestamp,
    /// The last slice that was read.
    last: (i64, i64, i64),
    buffer: VecDeque<Slice>,
    look_rows: u32,
}

impl RankCursor {
    fn new(rank: i64, from: Timestamp) -> Self {
        RankCursor {
            rank,
            from,
            last: (i64::MIN, i64::MIN, i64::MIN),
            buffer: VecDeque::new(),
            look_rows: LOOK_ROWS_FIRST,
        }
    }

    /// Reports whether any of it was read.
    fn is_begun(&self) -> bool {
        self.last.0 > i64::MIN
    }

    /// The place of its first slice; of an unread rank, a place before which it cannot be.
    fn place(&self, aging: Option<Aging>, now: Timestamp) -> Place {
        let (run_at, batch, first_position) = match self.buffer.front() {
            Some(slice) => (slice.run_at, slice.batch, slice.first_position),
            None => (self.from, BatchId(i64::MIN), 0),
        };
        let rank = match aging {
            Some(aging) => aging.rank(self.rank, run_at, now),
            None => self.rank,
        };
        (rank, run_at, batch, first_position)
    }

    /// Reads due slices if none are left in memory. Reports whether there are any.
    fn look(&mut self, transaction: &Transaction<'_>, lane: &Lane, jobs_wanted: u32) -> Result<bool> {
        if !self.buffer.is_empty() {
            return Ok(true);
        }
        let mut statement = transaction.connection.prepare_cached(
            "SELECT lane_id, rank, run_at, batch_id, first_position, attempt, rescues, expires_at, positions, family, count \
             FROM slice WHERE lane_id = ?1 AND rank = ?2 AND run_at <= ?3 \
             AND (run_at, batch_id, first_position) > (?4, ?5, ?6) \
             AND (expires_at IS NULL OR expires_at > ?3) \
             ORDER BY run_at, batch_id, first_position LIMIT ?7",
        )?;
        let mut looked_at = self.look_rows;
        // A look that finds only damaged slices is followed by another.
        while self.buffer.is_empty() && looked_at == self.look_rows {
            let (run_at, batch, first_position) = self.last;
            let mut rows = statement.query(params![
                lane.id,
                self.rank,
                transaction.now.0,
                run_at,
                batch,
                first_position,
                self.look_rows
            ])?;
            let mut jobs = 0;
            looked_at = 0;
            while jobs < jobs_wanted
                && let Some(row) = rows.next()?
            {
                looked_at += 1;
                let last: (i64, i64, i64) = (row.get(2)?, row.get(3)?, row.get(4)?);
                if last <= self.last {
                    let reason = "slices are out of order".to_owned();
                    return Err(Failure::Damaged(reason));
                }
                self.last = last;
                match Slice::read(row) {
                    Ok(slice) => {
                        jobs += slice.positions.len();
                        self.buffer.push_back(slice);
                    }
                    Err(failure) => pass_over(transaction, failure)?,
                }
            }
        }
        self.look_rows = (self.look_rows * 2).min(LEASE_SLICES_MAX);
        Ok(!self.buffer.is_empty())
    }
}

/// Leaves an unreadable slice where it is, because nobody can tell which jobs it has.
fn pass_over(transaction: &Transaction<'_>, failure: Failure) -> Result<()> {
    let Failure::Refused(error @ StoreError::Damaged { .. }) = failure else {
        return Err(failure);
    };
    tracing::warn!(%error, now = transaction.now.0, "a claim passes over a damaged slice");
    Ok(())
}

/// The first moment of a rank's slices.
fn first_run_at(transaction: &Transaction<'_>, lane: &Lane, rank: i64) -> Result<Option<i64>> {
    transaction.row(
        "SELECT run_at FROM slice WHERE lane_id = ?1 AND rank = ?2 ORDER BY run_at LIMIT 1",
        params![lane.id, rank],
        |row| row.get(0),
    )
}

/// The next rank of a lane after `previous`. One seek finds it, however many slices lie between.
pub(crate) fn next_rank(
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
