//! Errors of the memory.

use std::path::PathBuf;

/// A refused or failed operation. Nothing of it is stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MemoryError {
    /// The file is a database of another program.
    #[error("{} is not a knowledge base (application id {application_id:#010x}); choose another file", path.display())]
    NotAKnowledgeBase {
        /// The file.
        path: PathBuf,
        /// The id in its header.
        application_id: i64,
    },
    /// The file does not exist.
    #[error("the knowledge base {} does not exist; create one with `gristmill ingest … --into {}`", path.display(), path.display())]
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
        /// The database's message.
        reason: String,
    },
    /// Another process holds the write lock for too long.
    #[error("{} is locked by another process; retry when it has finished", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's message.
        reason: String,
    },
    /// An input has an invalid form.
    #[error("{place}: {reason}")]
    Invalid {
        /// The file, line or field.
        place: String,
        /// The problem, and the remedy.
        reason: String,
    },
    /// The model service did not answer.
    #[error(transparent)]
    Service(#[from] crate::service::ServiceError),
    /// Vectors cannot be made.
    #[error(transparent)]
    Embed(#[from] crate::embed::EmbedError),
    /// The source does not exist.
    #[error("source `{0}` does not exist; `gristmill memory sources` lists all")]
    SourceUnknown(String),
}

impl MemoryError {
    /// An input at `place` with an invalid form.
    pub fn invalid(place: impl Into<String>, reason: impl Into<String>) -> Self {
        MemoryError::Invalid {
            place: place.into(),
            reason: reason.into(),
        }
    }
}
