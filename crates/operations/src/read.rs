//! Reads requests, and jobs and states from their text in requests.

use gristmill_model::bounded;
use gristmill_model::bounded::near::with_near_name;
use gristmill_model::id::ParseJobIdError;
use gristmill_model::state::ParseJobStateError;
use gristmill_model::{JobId, JobState};
use serde::Deserialize;

use crate::limits::ENTRIES_PER_REQUEST_MAX;
use crate::refused::Refused;

/// Reads JSON as `T`, which can borrow from it. An error names the near name of a mistyped member.
pub fn read_request<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, String> {
    let read = bounded::within(ENTRIES_PER_REQUEST_MAX, || serde_json::from_slice(json));
    read.map_err(|error| with_near_name(&error.to_string()))
}

/// Reads the number of rows on a page.
pub fn check_rows(limit: Option<u32>, default: u32, max: u32) -> Result<u32, Refused> {
    match limit.unwrap_or(default) {
        limit if limit == 0 || limit > max => Err(Refused::invalid(
            format!("`limit` is {limit}"),
            format!("give 1 to {max}"),
        )),
        limit => Ok(limit),
    }
}

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
