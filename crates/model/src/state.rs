//! The state of a job.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The state of one job, derived from the rows of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Waits until other jobs have ended.
    Blocked,
    /// Can be claimed.
    Waiting,
    /// Waits for its time: it is delayed, or waits for its next attempt.
    Scheduled,
    /// Is paused by its id, batch or tag. (A job that is paused with its queue, kind or group is `waiting`.)
    Paused,
    /// Is held by a worker's lease.
    Running,
    /// Has ended with a value.
    Completed,
    /// Has no attempts left, until someone retries or discards it.
    Dead,
    /// Was cancelled or discarded.
    Cancelled,
    /// Has expired, because no worker started it in time.
    Expired,
}

impl JobState {
    /// All states, in the order in which they are shown.
    pub const ALL: [JobState; 9] = [
        JobState::Blocked,
        JobState::Waiting,
        JobState::Scheduled,
        JobState::Paused,
        JobState::Running,
        JobState::Completed,
        JobState::Dead,
        JobState::Cancelled,
        JobState::Expired,
    ];

    /// The name of the state, as in `--state dead`.
    pub const fn name(self) -> &'static str {
        match self {
            JobState::Blocked => "blocked",
            JobState::Waiting => "waiting",
            JobState::Scheduled => "scheduled",
            JobState::Paused => "paused",
            JobState::Running => "running",
            JobState::Completed => "completed",
            JobState::Dead => "dead",
            JobState::Cancelled => "cancelled",
            JobState::Expired => "expired",
        }
    }

    /// Whether the job has ended.
    pub const fn is_final(self) -> bool {
        !matches!(
            self,
            JobState::Blocked
                | JobState::Waiting
                | JobState::Scheduled
                | JobState::Paused
                | JobState::Running
        )
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The text is not a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a state: give blocked, waiting, scheduled, paused, running, completed, dead, cancelled or expired"
)]
pub struct ParseJobStateError(String);

impl FromStr for JobState {
    type Err = ParseJobStateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        JobState::ALL
            .into_iter()
            .find(|state| state.name() == text)
            .ok_or_else(|| ParseJobStateError(text.to_owned()))
    }
}
