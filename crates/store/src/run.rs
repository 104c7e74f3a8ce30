//! Runs: resumable streams of submitted batches.

use gristmill_model::{RunId, Timestamp};
use serde::{Deserialize, Serialize};

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Its input is not submitted to the end.
    Submitting,
    /// All of its input is submitted.
    Submitted,
    /// All of its jobs have ended and its output is written.
    Finished,
}

impl RunState {
    /// The state's name, as it is stored.
    pub const fn name(self) -> &'static str {
        match self {
            RunState::Submitting => "submitting",
            RunState::Submitted => "submitted",
            RunState::Finished => "finished",
        }
    }

    /// The state of that name.
    pub fn named(name: &str) -> Option<RunState> {
        [RunState::Submitting, RunState::Submitted, RunState::Finished]
            .into_iter()
            .find(|state| state.name() == name)
    }
}

/// What a run remembers, so that the same command can go on where it stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewRun {
    /// Its name.
    pub name: String,
    /// What identifies script, input and options: a JSON text that the store does not read.
    pub description: String,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// Its name.
    pub name: String,
    /// As in [`NewRun`].
    pub description: String,
    /// Where it stands.
    pub state: RunState,
    /// How far its input is submitted.
    pub progress: RunProgress,
    /// When it began.
    pub created_at: Timestamp,
}

/// How far a run's input is submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunProgress {
    /// Jobs submitted.
    pub jobs: u64,
    /// Bytes of the input (decompressed) that they came from.
    pub bytes: u64,
    /// Lines of the input that they came from.
    pub lines: u64,
    /// CRC-32 (IEEE) of those bytes.
    pub crc32: u32,
}

/// A step of a run, taken together with the batches of one submit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAdvance {
    /// Whose step it is; the batches become its.
    pub run: RunId,
    /// Where the run stands after the step.
    pub progress: RunProgress,
    /// Whether the input is at its end.
    pub state: RunState,
}
