//! The operations on workers: their list, and the calls of an agent's worker.

pub mod children;
pub mod claims;
pub mod drain;
pub mod exchange;
pub mod heartbeat;
pub mod leave;
pub mod list;
pub mod output;
pub mod questions;
pub mod register;
pub mod reports;

use gristmill_model::WorkerId;

use crate::error::ApiError;

/// Reads a worker's id from a path.
fn worker_id(text: &str) -> Result<WorkerId, ApiError> {
    text.parse().map(WorkerId).map_err(|_| {
        ApiError::invalid(
            format!(
                "`{}` is not a worker's id",
                text.chars().take(40).collect::<String>()
            ),
            "use the number that registering answered",
        )
    })
}
