//! The errors of an engine.

use gristmill_model::{JobError, JobId, JobState, PackedError};
use gristmill_store::StoreError;

/// The error of an engine.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A payload or value does not fit its kind's type.
    #[error("a {what} of kind `{kind}` does not fit its type: {reason}")]
    Type {
        /// `payload` or `value`.
        what: &'static str,
        /// The kind's name.
        kind: &'static str,
        /// The serialiser's message.
        reason: String,
    },
    /// The job did not complete.
    #[error("job {job} ended as {state}{}", error.as_ref().map(|error| format!(": {}", error.message)).unwrap_or_default())]
    NotCompleted {
        /// The job.
        job: JobId,
        /// Its end.
        state: JobState,
        /// Its last failure.
        error: Option<JobError>,
    },
}

impl From<PackedError> for EngineError {
    fn from(error: PackedError) -> Self {
        EngineError::Store(error.into())
    }
}
