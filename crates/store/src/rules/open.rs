//! Rows of open jobs, in the form that both stores read.

use gristmill_model::{BatchId, JobState, LeaseId, Positions, Timestamp, WorkerId};

use crate::Revoked;
use crate::rules::deadline::Standing;
use crate::rules::pauses::Pauses;

/// One claimed slice that a lease holds. Its key is its lease, batch, attempt and first position.
#[derive(Debug, Clone)]
pub struct Held {
    /// The lease.
    pub lease: i64,
    /// The batch.
    pub batch: BatchId,
    /// The running attempt.
    pub attempt: u32,
    /// The first position at the time of the claim.
    pub first_position: u32,
    /// The worker.
    pub worker: WorkerId,
    /// The number of times that the attempt was rescued.
    pub rescues: u32,
    /// The moment from which its slice could be claimed.
    pub run_at: Timestamp,
    /// The moment by which the attempt had to begin.
    pub expires_at: Option<Timestamp>,
    /// The jobs.
    pub positions: Positions,
    /// The negated priority; the batch's if `None`.
    pub rank: Option<i32>,
    /// The pauses that apply when the jobs return.
    pub pauses: Option<Pauses>,
    /// Whether other jobs wait for jobs of the batch.
    pub is_awaited: bool,
    /// The family whose parents it finalizes, if any.
    pub family: Option<i64>,
}

impl Held {
    /// The positions that stay when the lease lets go of these.
    pub fn without(&self, positions: &Positions) -> Positions {
        assert!(self.positions.contains_all(positions), "only what it holds");
        self.positions.difference(positions)
    }

    /// The progress of its jobs through their attempts.
    pub fn standing(&self) -> Standing {
        Standing {
            attempt: self.attempt,
            rescues: self.rescues,
            expires_at: self.expires_at,
        }
    }
}

/// Jobs that wait for other jobs, or are paused. The key is the batch, and the part of it.
#[derive(Debug, Clone)]
pub struct Blocked {
    /// The batch.
    pub batch: BatchId,
    /// The part.
    pub part: u32,
    /// The next attempt.
    pub attempt: u32,
    /// The number of times that the attempt was rescued.
    pub rescues: u32,
    /// The moment by which the attempt must begin.
    pub expires_at: Option<Timestamp>,
    /// The negated priority; the batch's if `None`.
    pub rank: Option<i32>,
    /// The time from which they can be claimed; the batch's if `None`.
    pub run_at: Option<Timestamp>,
    /// The pauses of the jobs.
    pub pauses: Option<Pauses>,
    /// The family whose parents they are, if they have spawned children.
    pub family: Option<i64>,
    /// The jobs.
    pub positions: Positions,
}

impl Blocked {
    /// The progress of its jobs through their attempts.
    pub fn standing(&self) -> Standing {
        Standing {
            attempt: self.attempt,
            rescues: self.rescues,
            expires_at: self.expires_at,
        }
    }

    /// The state of its jobs.
    pub fn state(&self) -> JobState {
        match self.pauses {
            None => JobState::Blocked,
            Some(_) => JobState::Paused,
        }
    }
}

/// Adds a row of positions that a worker lost. Rows come in the order of lease and batch.
pub fn add_revoked(all: &mut Vec<Revoked>, lease: LeaseId, batch: BatchId, positions: Positions) {
    match all.last_mut() {
        Some(last) if last.lease == lease && last.batch == batch => {
            last.positions = last.positions.union(&positions);
        }
        _ => all.push(Revoked {
            lease,
            batch,
            positions,
        }),
    }
}
