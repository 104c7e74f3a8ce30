//! What is ingested.

use std::fmt;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use crate::error::MemoryError;
use crate::source::{Content, Format};

/// A source to be ingested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInput {
    /// Its name, by which it is known in the knowledge base: its path, as it was given.
    pub name: String,
    /// How it is written.
    pub format: Format,
    /// Its parts.
    pub content: Content,
}

impl NewInput {
    /// A source of bytes that are there already, in the format that its name and they tell.
    pub fn from_bytes(name: impl Into<String>, bytes: Vec<u8>) -> NewInput {
        let name = name.into();
        NewInput {
            format: Format::of(Path::new(&name), &bytes),
            name,
            content: bytes.into(),
        }
    }

    /// A file, which is known by its path as it is given, in the format that its name and its beginning tell. It is
    /// read when its turn comes.
    ///
    /// # Errors
    ///
    /// [`MemoryError::File`] where it cannot be read.
    pub fn from_file(path: impl Into<PathBuf>) -> Result<NewInput, MemoryError> {
        let path = path.into();
        let content = Content::File(path.clone());
        Ok(NewInput {
            name: path.display().to_string(),
            format: Format::of(&path, &content.beginning()?),
            content,
        })
    }
}

/// JSON lines that come one after the other, from a pipe that stays open. Each is committed as it comes. A source that is
/// followed only grows: lines that it begins with already are passed over, and all others are added to it.
pub struct Followed {
    /// The source's name in the knowledge base.
    pub name: String,
    /// Gives the lines, and waits for those that have not come.
    pub reader: Box<dyn BufRead + Send>,
}

impl fmt::Debug for Followed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Followed")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A source, when its turn has come.
#[derive(Debug)]
pub enum Input {
    /// One that is there.
    Whole(NewInput),
    /// One that is still written.
    Followed(Followed),
}

impl From<NewInput> for Input {
    fn from(input: NewInput) -> Self {
        Input::Whole(input)
    }
}

/// What an ingestion takes one after the other: sources that are there, or that are looked for when their turn comes,
/// which may fail.
pub trait IntoInput {
    /// The source's name. An ingestion goes on after a source that cannot be read, where this tells its name.
    fn name(&self) -> Option<String> {
        None
    }

    /// The source.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    fn into_input(self) -> Result<Input, MemoryError>;
}

impl IntoInput for NewInput {
    fn name(&self) -> Option<String> {
        Some(self.name.clone())
    }

    fn into_input(self) -> Result<Input, MemoryError> {
        Ok(self.into())
    }
}

impl IntoInput for Result<NewInput, MemoryError> {
    fn into_input(self) -> Result<Input, MemoryError> {
        self.map(Input::from)
    }
}
