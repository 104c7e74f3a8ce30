//! The jobs of one batch, unpacked from its rows, as all stores show them.

use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_model::{BatchId, BatchOptions, JobId, JobState, Positions, ShownProgress, Timestamp};
use gristmill_model::{Control, Effect};

use crate::query::JobPause;
use crate::rules::pauses::Pauses;
use crate::{JobCounts, JobRow};

/// Positions of a batch that are in the same state.
#[derive(Debug)]
pub struct Piece {
    /// The jobs.
    pub positions: Positions,
    /// Their state.
    pub state: JobState,
    /// Their attempt.
    pub attempt: u32,
    /// The negated priority, until they have ended.
    pub rank: Option<i64>,
    /// The time from which they can be claimed.
    pub run_at: Option<Timestamp>,
    /// Their own pauses, which apply now or when they return.
    pub pauses: Option<Pauses>,
    /// The moment at which they ended.
    pub finished_at: Option<Timestamp>,
    /// The time of the claim, while they run.
    pub claimed_at: Option<Timestamp>,
    /// The name of their worker.
    pub worker: Option<Arc<str>>,
    /// The store's number of the report that ended them.
    pub report: Option<i64>,
}

impl Piece {
    /// Makes a piece of waiting jobs, with their state at `now`.
    pub fn claimable(
        positions: Positions,
        attempt: u32,
        rank: i64,
        run_at: Timestamp,
        now: Timestamp,
    ) -> Self {
        Piece {
            positions,
            state: if run_at <= now {
                JobState::Waiting
            } else {
                JobState::Scheduled
            },
            attempt,
            rank: Some(rank),
            run_at: Some(run_at),
            pauses: None,
            finished_at: None,
            claimed_at: None,
            worker: None,
            report: None,
        }
    }

    /// Makes a piece of jobs that wait for other jobs or are paused. Without a rank, they have the batch's.
    pub fn blocked(positions: Positions, attempt: u32, rank: Option<i64>, pauses: Option<Pauses>) -> Self {
        Piece {
            positions,
            state: match pauses {
                None => JobState::Blocked,
                Some(_) => JobState::Paused,
            },
            attempt,
            rank,
            run_at: None,
            pauses,
            finished_at: None,
            claimed_at: None,
            worker: None,
            report: None,
        }
    }

    /// Makes a piece of jobs that a worker holds. Without a rank, they have the batch's.
    pub fn running(
        positions: Positions,
        attempt: u32,
        rank: Option<i64>,
        claimed_at: Option<Timestamp>,
        worker: Option<Arc<str>>,
        pauses: Option<Pauses>,
    ) -> Self {
        Piece {
            positions,
            state: JobState::Running,
            attempt,
            rank,
            run_at: None,
            pauses,
            finished_at: None,
            claimed_at,
            worker,
            report: None,
        }
    }
}

/// The data that all jobs of a batch share.
#[derive(Debug)]
pub struct Common {
    /// The id of the batch.
    pub batch: BatchId,
    /// Its kind.
    pub kind: Arc<str>,
    /// Its queue.
    pub queue: Arc<str>,
    /// Its priority.
    pub priority: i16,
    /// The moment of its submit.
    pub submitted_at: Timestamp,
    /// Its group.
    pub group: Option<Arc<str>>,
}

impl Common {
    /// Restores the batch's options as they were submitted.
    pub fn options(&self, stored: BatchOptions) -> BatchOptions {
        BatchOptions {
            group: self.group.as_deref().map(str::to_owned),
            ..stored
        }
    }

    /// Makes the row of one job, with the message of its last failure and its reported progress.
    pub fn job(
        &self,
        position: u32,
        piece: &Piece,
        error: Option<String>,
        progress: Option<ShownProgress>,
    ) -> JobRow {
        JobRow {
            job: JobId {
                batch: self.batch,
                position,
            },
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            group: self.group.clone(),
            state: piece.state,
            attempt: piece.attempt,
            priority: piece
                .rank
                .and_then(|rank| i16::try_from(-rank).ok())
                .unwrap_or(self.priority),
            submitted_at: self.submitted_at,
            // The place of a step in the line may be before its submit.
            run_at: piece.run_at.map(|moment| moment.max(self.submitted_at)),
            finished_at: piece.finished_at,
            claimed_at: piece.claimed_at,
            progress,
            error: error.filter(|_| piece.state != JobState::Completed),
        }
    }
}

/// The jobs of a batch from a position on that are in one of these states (in any state if there are none).
pub fn unpack<'p>(
    pieces: &'p [Piece],
    states: &[JobState],
    only: Option<&Positions>,
    from: u32,
) -> BTreeMap<u32, &'p Piece> {
    let mut jobs = BTreeMap::new();
    for piece in pieces {
        if states.is_empty() || states.contains(&piece.state) {
            let positions = match only {
                Some(only) => &piece.positions.intersection(only),
                None => &piece.positions,
            };
            let positions = positions.iter().filter(|position| *position >= from);
            jobs.extend(positions.map(|position| (position, piece)));
        }
    }
    jobs
}

/// Counts the selected jobs of a batch, by state.
pub fn count(pieces: &[Piece], states: &[JobState], only: &Positions, counts: &mut JobCounts) {
    for piece in pieces {
        if states.is_empty() || states.contains(&piece.state) {
            *counts.get_mut(piece.state) += u64::from(piece.positions.intersection(only).len());
        }
    }
}

/// The jobs of a batch that are in one of these states.
pub fn in_states(pieces: &[Piece], states: &[JobState]) -> Positions {
    let pieces = pieces.iter().filter(|piece| states.contains(&piece.state));
    pieces.fold(Positions::new(), |all, piece| all.union(&piece.positions))
}

/// The pauses that hold a job: its own, and those of its queue, kind and group.
pub fn pauses_of(piece: &Piece, batch: &Common, controls: &[Control], now: Timestamp) -> Vec<JobPause> {
    if piece.state.is_final() {
        return Vec::new();
    }
    let own = piece.pauses.iter().flat_map(Pauses::iter);
    let own = own.map(|(reason, until)| JobPause {
        reason: reason.clone(),
        until: *until,
        scope: None,
    });
    let group = batch.group.as_deref().unwrap_or_default();
    let lanes = controls.iter().filter_map(|control| match &control.effect {
        Effect::Pause { reason, until } if control.scope.covers(&batch.queue, &batch.kind, group) => {
            Some(JobPause {
                reason: reason.clone(),
                until: *until,
                scope: Some(control.scope.clone()),
            })
        }
        _ => None,
    });
    let all = own.chain(lanes);
    all.filter(|pause| pause.until.is_none_or(|until| until > now))
        .collect()
}
