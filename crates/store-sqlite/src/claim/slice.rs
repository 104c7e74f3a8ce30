//! Slices: claimable positions.

use gristmill_model::limits::RESCUES_MAX;
use gristmill_model::{BatchId, JobState, Positions, Timestamp};
use gristmill_store::rules::deadline::Standing;
use gristmill_store::rules::open::Held;
use rusqlite::params;

use crate::failure::{Failure, Result};
use crate::sums::{damaged, in_batch, read_counted, read_rank};
use crate::transaction::{BatchHead, Transaction};

/// A stored slice. Its key is its lane, rank, moment, batch and first position.
#[derive(Debug)]
pub(crate) struct Slice {
    pub lane_id: i64,
    /// The negated priority.
    pub rank: i64,
    pub run_at: Timestamp,
    pub batch: BatchId,
    pub first_position: u32,
    /// The next attempt.
    pub attempt: u32,
    pub rescues: u32,
    pub expires_at: Option<Timestamp>,
    pub positions: Positions,
    /// The family of the parents that the slice finalizes, if it does.
    pub family: Option<i64>,
}

impl Slice {
    /// Reads a row of lane, rank, moment, batch, first position, attempt, rescues, expiry, positions, family and count.
    pub fn read(row: &rusqlite::Row<'_>) -> Result<Slice> {
        let batch = BatchId(row.get(3)?);
        in_batch(batch, "slice", Slice::read_of(batch, row))
    }

    fn read_of(batch: BatchId, row: &rusqlite::Row<'_>) -> Result<Slice> {
        let slice = Slice {
            lane_id: row.get(0)?,
            rank: read_rank(row, 1)?,
            run_at: Timestamp(row.get(2)?),
            batch,
            first_position: row.get(4)?,
            attempt: row.get(5)?,
            rescues: row.get(6)?,
            expires_at: row.get::<_, Option<i64>>(7)?.map(Timestamp),
            positions: read_counted(row, 8, 10)?,
            family: row.get(9)?,
        };
        let is_sound =
            slice.attempt > 0 && slice.run_at.0 >= 0 && slice.positions.first() == Some(slice.first_position);
        if is_sound {
            Ok(slice)
        } else {
            Err(Failure::Damaged("its columns contradict each other".to_owned()))
        }
    }

    /// Refuses a slice that its batch cannot have.
    pub fn check(&self, head: &BatchHead, count: u32) -> Result<()> {
        if self.lane_id == head.lane_id && self.positions.last().is_some_and(|last| last < count) {
            Ok(())
        } else {
            Err(damaged(
                self.batch,
                "slice",
                format!(
                    "a slice has the jobs `{}` of {count}, or is in a foreign lane",
                    self.positions
                ),
            ))
        }
    }

    /// The standing of its jobs.
    pub fn standing(&self) -> Standing {
        Standing {
            attempt: self.attempt,
            rescues: self.rescues,
            expires_at: self.expires_at,
        }
    }

    /// A new slice of some of its positions.
    pub fn part<'p>(&self, positions: &'p Positions) -> NewSlice<'p> {
        NewSlice {
            positions,
            rank: self.rank,
            run_at: self.run_at,
            attempt: self.attempt,
            rescues: self.rescues,
            expires_at: self.expires_at,
            family: self.family,
        }
    }

    /// The state of its jobs.
    pub fn state(&self, now: Timestamp) -> JobState {
        if self.run_at <= now {
            JobState::Waiting
        } else {
            JobState::Scheduled
        }
    }
}

/// A slice to insert: positions that become claimable.
#[derive(Debug)]
pub(crate) struct NewSlice<'a> {
    pub positions: &'a Positions,
    /// The negated priority.
    pub rank: i64,
    pub run_at: Timestamp,
    pub attempt: u32,
    pub rescues: u32,
    pub expires_at: Option<Timestamp>,
    /// The family of the parents that the slice finalizes, if it does.
    pub family: Option<i64>,
}

impl<'p> NewSlice<'p> {
    /// A slice of positions that come back from a lease unchanged.
    pub fn back(held: &Held, head: &BatchHead, positions: &'p Positions) -> Self {
        NewSlice {
            positions,
            rank: held.rank.map_or(head.rank(), i64::from),
            run_at: held.run_at,
            attempt: held.attempt,
            rescues: held.rescues,
            expires_at: held.expires_at,
            family: held.family,
        }
    }
}

impl Transaction<'_> {
    /// Makes positions of a batch claimable.
    pub fn insert_slice(&mut self, batch: BatchId, head: &BatchHead, slice: &NewSlice<'_>) -> Result<()> {
        let Some(first) = slice.positions.first() else {
            return Ok(());
        };
        assert!(slice.attempt > 0, "the attempt of a waiting job counts from 1");
        assert!(slice.run_at.0 >= 0 && slice.rescues <= RESCUES_MAX);
        self.execute(
            "INSERT INTO slice (lane_id, rank, run_at, batch_id, first_position, attempt, rescues, count, expires_at, \
             positions, strayed, family) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            params![
                head.lane_id,
                slice.rank,
                slice.run_at.0,
                batch.0,
                first,
                slice.attempt,
                slice.rescues,
                slice.positions.len(),
                slice.expires_at.map(|moment| moment.0),
                slice.positions.to_string(),
                (slice.run_at != head.run_at || slice.rank != head.rank()).then_some(1),
                slice.family,
            ],
        )?;
        self.memory.add_rank(head.lane_id, slice.rank, slice.run_at.0);
        if slice.run_at <= self.now {
            self.supplied.insert(head.lane_id);
        } else {
            self.woke = true;
        }
        Ok(())
    }

    /// Inserts positions that were taken out of a slice at another place in line.
    pub fn insert_ranked(&mut self, of: &Slice, rank: i64, positions: &Positions) -> Result<()> {
        let head = self.head(of.batch)?;
        let slice = NewSlice {
            rank,
            ..of.part(positions)
        };
        self.insert_slice(of.batch, &head, &slice)
    }

    /// The slices of one batch.
    pub fn slices_of(&self, batch: BatchId) -> Result<Vec<Slice>> {
        self.slices(
            "SELECT s.lane_id, s.rank, s.run_at, s.batch_id, s.first_position, s.attempt, s.rescues, s.expires_at, \
             s.positions, s.family, s.count FROM batch b CROSS JOIN slice s ON s.lane_id = b.lane_id AND s.rank = -b.priority \
             AND s.run_at = b.run_at AND s.batch_id = b.id WHERE b.id = ?1 \
             UNION ALL SELECT lane_id, rank, run_at, batch_id, first_position, attempt, rescues, expires_at, positions, \
             family, count FROM slice WHERE strayed = 1 AND batch_id = ?1",
            batch.0,
        )
    }

    /// The slices that nobody started in time.
    pub fn expired_slices(&self) -> Result<Vec<Slice>> {
        self.slices(
            "SELECT lane_id, rank, run_at, batch_id, first_position, attempt, rescues, expires_at, positions, family, count \
             FROM slice WHERE expires_at <= ?1",
            self.now.0,
        )
    }

    fn slices(&self, sql: &str, param: i64) -> Result<Vec<Slice>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([param])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            all.push(Slice::read(row)?);
        }
        Ok(all)
    }

    /// Leaves `rest` of a slice. Its key moves on to its first position, so that the taken positions can come back next
    /// to it.
    pub fn shorten(&self, slice: &Slice, rest: &Positions) -> Result<()> {
        assert!(slice.positions.contains_all(rest), "a slice only shrinks");
        match rest.first() {
            None => self.execute(
                "DELETE FROM slice \
                 WHERE lane_id = ?1 AND rank = ?2 AND run_at = ?3 AND batch_id = ?4 AND first_position = ?5",
                params![
                    slice.lane_id,
                    slice.rank,
                    slice.run_at.0,
                    slice.batch.0,
                    slice.first_position
                ],
            )?,
            Some(first) => self.execute(
                "UPDATE slice SET first_position = ?6, positions = ?7, count = ?8 \
                 WHERE lane_id = ?1 AND rank = ?2 AND run_at = ?3 AND batch_id = ?4 AND first_position = ?5",
                params![
                    slice.lane_id,
                    slice.rank,
                    slice.run_at.0,
                    slice.batch.0,
                    slice.first_position,
                    first,
                    rest.to_string(),
                    rest.len()
                ],
            )?,
        };
        Ok(())
    }
}
