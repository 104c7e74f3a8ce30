//! What can go wrong in a memory.

use std::path::PathBuf;

/// Why an operation was refused or failed. Nothing of it is stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MemoryError {
    /// The file is a database of something else.
    #[error("{} is not a knowledge base (application id {application_id:#010x}); choose another file", path.display())]
    NotAKnowledgeBase {
        /// The file.
        path: PathBuf,
        /// What its header says.
        application_id: i64,
    },
    /// There is no such file.
    #[error("there is no knowledge base at {}; make one with `gristmill ingest … --into {}`", path.display(), path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a newer program.
    #[error("{} has schema version {found}, and this program knows versions up to {known}; use a newer gristmill", path.display())]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// The database refused or failed.
    #[error("{}: {reason}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What the database said.
        reason: String,
    },
    /// Somebody else holds the write lock for too long.
    #[error("{} is locked by another process that is writing; try again when it is done", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// An input does not have the form that it should have.
    #[error("{place}: {reason}")]
    Invalid {
        /// The file, line or field.
        place: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// The model service gave no answer.
    #[error(transparent)]
    Service(#[from] crate::service::ServiceError),
    /// Vectors cannot be made.
    #[error(transparent)]
    Embed(#[from] crate::embed::EmbedError),
    /// No such source.
    #[error("there is no source named `{0}`; `gristmill memory sources` lists them")]
    SourceUnknown(String),
}

impl MemoryError {
    /// An input at `place` that does not have the form that it should have.
    pub fn invalid(place: impl Into<String>, reason: impl Into<String>) -> Self {
        MemoryError::Invalid {
            place: place.into(),
            reason: reason.into(),
        }
    }
}
