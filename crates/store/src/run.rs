//! Runs: resumable streams of submitted batches.

use gristmill_model::{RunId, Timestamp};
use serde::{Deserialize, Serialize};

/// The progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Its input is not submitted completely.
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

    /// The state with this name.
    pub fn named(name: &str) -> Option<RunState> {
        [RunState::Submitting, RunState::Submitted, RunState::Finished]
            .into_iter()
            .find(|state| state.name() == name)
    }
}

/// The data of a run from which the same command can resume it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewRun {
    /// Its name.
    pub name: String,
    /// Script, input and options, as a JSON text that the store does not read.
    pub description: String,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// Its name.
    pub name: String,
    /// The description of [`NewRun`].
    pub description: String,
    /// Its state.
    pub state: RunState,
    /// The submitted part of its input.
    pub progress: RunProgress,
    /// The time of its beginning.
    pub created_at: Timestamp,
}

/// The submitted part of a run's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunProgress {
    /// Number of submitted jobs.
    pub jobs: u64,
    /// Number of (decompressed) input bytes from which they came.
    pub bytes: u64,
    /// Number of input lines from which they came.
    pub lines: u64,
    /// CRC-32 (IEEE) of those bytes.
    pub crc32: u32,
}

/// A step of a run, in the transaction of a submit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAdvance {
    /// The run, which gets the submitted batches.
    pub run: RunId,
    /// The submitted part after the step.
    pub progress: RunProgress,
    /// The state after the step.
    pub state: RunState,
}
