//! Runs: resumable streams of submitted batches.

use gristmill_model::{PackedArray, RunId, Timestamp};
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

impl RunProgress {
    /// The progress after these payloads too, each of which is a line of the input.
    pub fn after_lines(self, payloads: &PackedArray) -> RunProgress {
        let mut digest = crc32fast::Hasher::new_with_initial_len(self.crc32, self.bytes);
        let mut after = self;
        for item in payloads.items() {
            digest.update(item.as_bytes());
            digest.update(b"\n");
            after.bytes += item.len() as u64 + 1;
        }
        after.jobs += u64::from(payloads.count());
        after.lines = after.jobs;
        after.crc32 = digest.finalize();
        after
    }
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
