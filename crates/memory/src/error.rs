//! The errors of this crate.

use std::path::PathBuf;

use gristmill_store::layout::{Layout, LayoutError};

/// A refused or failed operation. It has stored nothing.
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
    /// A newer program has changed the layout.
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
    /// A development version created the database.
    #[error(
        "{} has the layout of an earlier development version of Gristmill, which this program cannot read; \
         use that version, or ingest the sources into a new knowledge base", path.display()
    )]
    Development {
        /// The file or database.
        path: PathBuf,
    },
    /// The database refused the operation or failed.
    #[error("{}: {reason}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// The database's message.
        reason: String,
    },
    /// Another process held the write lock for too long.
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
    /// An input is malformed.
    #[error("{place}: {reason}")]
    Invalid {
        /// The file, line or field.
        place: String,
        /// The problem, and the remedy.
        reason: String,
    },
    /// One message of a source cannot be read. The messages behind it can.
    #[error("{source_name}, {place}: {reason}")]
    Unread {
        /// The name of the source.
        source_name: String,
        /// The message's place in the source: `line 12`, `mail 7`.
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
    /// The vectors were made by another embedder.
    #[error(
        "the knowledge base has vectors of {known} ({dimensions} dimensions), which cannot be compared with vectors of {asked}; \
        name the embedder that made them, or make new ones with `gristmill ingest --replace-vectors --embedder …`"
    )]
    OtherEmbedder {
        /// The embedder that made the stored vectors.
        known: String,
        /// Their number of dimensions.
        dimensions: u32,
        /// The requested embedder.
        asked: String,
    },
    /// The source does not exist.
    #[error("source `{0}` does not exist; `gristmill memory sources` lists all")]
    SourceUnknown(String),
}

impl MemoryError {
    /// The error for a source that gets the name of another one.
    pub(crate) fn name_taken(name: &str) -> MemoryError {
        MemoryError::invalid(name, "a source with this name exists; delete that one first")
    }

    /// Explains why a knowledge base does not have this layout. `failed` explains an error of its database.
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

    /// Makes the error for one message that cannot be read, at `place` of a source.
    pub fn unread(
        source_name: impl Into<String>,
        place: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        MemoryError::Unread {
            source_name: source_name.into(),
            place: place.into(),
            reason: reason.into(),
        }
    }

    /// Makes the error for a malformed input at `place`.
    pub fn invalid(place: impl Into<String>, reason: impl Into<String>) -> Self {
        MemoryError::Invalid {
            place: place.into(),
            reason: reason.into(),
        }
    }
}

/// Writes an error and its causes on one line.
pub(crate) fn in_words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
