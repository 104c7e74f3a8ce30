//! Reads jobs and states from their text in requests.

use gristmill_model::id::ParseJobIdError;
use gristmill_model::state::ParseJobStateError;
use gristmill_model::{JobId, JobState};

use crate::refused::Refused;

/// Reads a job's id.
pub fn read_job(text: &str) -> Result<JobId, Refused> {
    let cut: String = text.chars().take(60).collect();
    cut.parse().map_err(|error: ParseJobIdError| {
        Refused::invalid(error.to_string(), "write the batch and the position, as in 42:7")
    })
}

/// Reads states, separated by commas.
pub fn read_states(text: &str) -> Result<Vec<JobState>, Refused> {
    let states = text.split(',').map(str::trim).filter(|state| !state.is_empty());
    let cut = |state: &str| state.chars().take(40).collect::<String>();
    let read = states.map(|state| {
        cut(state).parse().map_err(|error: ParseJobStateError| {
            Refused::invalid(error.to_string(), "name states, separated by commas")
        })
    });
    read.collect()
}
