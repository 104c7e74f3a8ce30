//! What can go wrong in a memory.

use std::path::PathBuf;

use gristmill_store::layout::{Layout, LayoutError};

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
    /// A newer program has changed its layout.
    #[error(
        "{} has schema version {found} of gristmill {program}, and this program is gristmill {} with version {known}; \
         use gristmill {program} or newer", path.display(), env!("CARGO_PKG_VERSION")
    )]
    NewerSchema {
        /// The file or database.
        path: PathBuf,
        /// The version of its tables.
        found: i64,
        /// The version of the tables of this program.
        known: i64,
        /// The version of the newer program.
        program: String,
    },
    /// A development version has made it.
    #[error(
        "{} has the layout of an earlier development version of Gristmill, which this program cannot read; \
         use that version, or ingest the sources into a new knowledge base", path.display()
    )]
    Development {
        /// The file or database.
        path: PathBuf,
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
    /// Why a knowledge base does not have this layout; `failed` says what is wrong with its database.
    pub(crate) fn of_layout<E: std::error::Error>(
        error: LayoutError<E>,
        path: PathBuf,
        layout: &Layout,
        failed: impl FnOnce(E) -> MemoryError,
    ) -> Self {
        let known = layout.version();
        match error {
            LayoutError::Newer(found) => MemoryError::NewerSchema {
                path,
                found: found.version,
                known,
                program: found.program,
            },
            LayoutError::Development => MemoryError::Development { path },
            LayoutError::Failed { found, cause } => MemoryError::Database {
                path,
                reason: format!(
                    "its layout could not be brought from version {found} to {known}: {}",
                    in_words(&cause)
                ),
            },
            LayoutError::Database(cause) => failed(cause),
        }
    }

    /// An input at `place` that does not have the form that it should have.
    pub fn invalid(place: impl Into<String>, reason: impl Into<String>) -> Self {
        MemoryError::Invalid {
            place: place.into(),
            reason: reason.into(),
        }
    }
}

/// An error and what it came from, in one line.
pub(crate) fn in_words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
