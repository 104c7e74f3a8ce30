//! Rows of open jobs, as both stores read them.

use gristmill_model::{BatchId, JobState, LeaseId, Positions, Timestamp, WorkerId};

use crate::Revoked;
use crate::rules::deadline::Standing;
use crate::rules::pauses::Pauses;

/// What a lease holds of one batch: one claimed slice. Its key is its lease, batch, attempt and first position.
#[derive(Debug, Clone)]
pub struct Held {
    /// The lease.
    pub lease: i64,
    /// The batch.
    pub batch: BatchId,
    /// The attempt that runs.
    pub attempt: u32,
    /// The first position at the time of the claim.
    pub first_position: u32,
    /// The worker.
    pub worker: WorkerId,
    /// How often the attempt was rescued.
    pub rescues: u32,
    /// The moment from which its slice could be claimed.
    pub run_at: Timestamp,
    /// The moment by which the attempt had to begin.
    pub expires_at: Option<Timestamp>,
    /// The jobs.
    pub positions: Positions,
    /// The priority, negated; that of the batch, where `None`.
    pub rank: Option<i32>,
    /// What keeps them back once they come back.
    pub pauses: Option<Pauses>,
    /// Whether others wait for jobs of the batch.
    pub is_awaited: bool,
    /// The family whose parents it finalizes, if it does.
    pub family: Option<i64>,
}

impl Held {
    /// Where its jobs stand.
    pub fn standing(&self) -> Standing {
        Standing {
            attempt: self.attempt,
            rescues: self.rescues,
            expires_at: self.expires_at,
        }
    }
}

/// Jobs that wait for others, or are paused. Its key is its batch, and the part of it.
#[derive(Debug, Clone)]
pub struct Blocked {
    /// The batch.
    pub batch: BatchId,
    /// The part.
    pub part: u32,
    /// The attempt that comes next.
    pub attempt: u32,
    /// How often the attempt was rescued.
    pub rescues: u32,
    /// The moment by which the attempt must begin.
    pub expires_at: Option<Timestamp>,
    /// The priority, negated; that of the batch, where `None`.
    pub rank: Option<i32>,
    /// The moment from which it can be claimed; that of the batch, where `None`.
    pub run_at: Option<Timestamp>,
    /// What keeps it back, beside what it waits for.
    pub pauses: Option<Pauses>,
    /// The family that they are the parents of, if they have spawned children.
    pub family: Option<i64>,
    /// The jobs.
    pub positions: Positions,
}

impl Blocked {
    /// Where its jobs stand.
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

/// Adds a row of positions that a worker lost. Rows come by lease and batch.
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
