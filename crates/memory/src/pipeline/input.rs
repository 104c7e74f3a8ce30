//! What is ingested.

use std::path::Path;

use crate::error::MemoryError;
use crate::source::Format;

/// A source to be ingested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInput {
    /// Its name, by which it is known in the knowledge base: its path, as it was given.
    pub name: String,
    /// How it is written.
    pub format: Format,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl NewInput {
    /// A source of bytes that are there already, in the format that its name and they tell.
    pub fn from_bytes(name: impl Into<String>, bytes: Vec<u8>) -> NewInput {
        let name = name.into();
        NewInput {
            format: Format::of(Path::new(&name), &bytes),
            name,
            bytes,
        }
    }
}

/// What an ingestion takes one after the other: sources that are there, or that are read when their turn comes, which
/// may fail. Of an iterator that reads, no more than one source is held in memory before it is planned.
pub trait IntoInput {
    /// The source.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    fn into_input(self) -> Result<NewInput, MemoryError>;
}

impl IntoInput for NewInput {
    fn into_input(self) -> Result<NewInput, MemoryError> {
        Ok(self)
    }
}

impl IntoInput for Result<NewInput, MemoryError> {
    fn into_input(self) -> Result<NewInput, MemoryError> {
        self
    }
}
