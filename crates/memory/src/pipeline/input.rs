//! The sources of an ingestion.

use std::fmt;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use crate::error::MemoryError;
use crate::source::{Content, Format};

/// A source to ingest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInput {
    /// Its name in the knowledge base: the path as the user wrote it.
    pub name: String,
    /// Its format.
    pub format: Format,
    /// Its content.
    pub content: Content,
}

impl NewInput {
    /// Makes a source of bytes in memory. The name and the bytes decide its format.
    pub fn from_bytes(name: impl Into<String>, bytes: Vec<u8>) -> NewInput {
        let name = name.into();
        NewInput {
            format: Format::of(Path::new(&name), &bytes),
            name,
            content: bytes.into(),
        }
    }

    /// Makes a source of a file. Its name is the path as given. The name and the first bytes decide its format. The
    /// file is read when its turn comes.
    ///
    /// # Errors
    ///
    /// [`MemoryError::File`] if the file cannot be read.
    pub fn from_file(path: impl Into<PathBuf>) -> Result<NewInput, MemoryError> {
        let path = path.into();
        let content = Content::File(path.clone());
        Ok(NewInput {
            name: path.display().to_string(),
            // `old.mbox.gz` is a mailbox.
            format: match path
                .extension()
                .is_some_and(|ending| ending.eq_ignore_ascii_case("gz"))
            {
                true => Format::of(&path.with_extension(""), &content.beginning()?),
                false => Format::of(&path, &content.beginning()?),
            },
            content,
        })
    }
}

/// JSON lines that arrive one by one, from a pipe that stays open. Each is committed when it arrives. A followed source
/// only grows: leading lines that it already has are skipped, and all others are appended.
pub struct Followed {
    /// The source's name in the knowledge base.
    pub name: String,
    /// Reads the lines, and waits for further ones.
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

/// A source whose turn has come.
#[derive(Debug)]
pub enum Input {
    /// A source whose end is known.
    Whole(NewInput),
    /// A source that is still being written.
    Followed(Followed),
}

impl Input {
    /// The same source under this name, if there is one.
    pub(super) fn named(self, name: Option<String>) -> Input {
        match (self, name) {
            (Input::Whole(input), Some(name)) => Input::Whole(NewInput { name, ..input }),
            (Input::Followed(followed), Some(name)) => Input::Followed(Followed { name, ..followed }),
            (input, None) => input,
        }
    }
}

impl From<NewInput> for Input {
    fn from(input: NewInput) -> Self {
        Input::Whole(input)
    }
}

/// An input of an ingestion. It becomes a source when its turn comes, which may fail.
pub trait IntoInput {
    /// The name of the source. An ingestion continues after an unreadable source only if its name is known.
    fn name(&self) -> Option<String> {
        None
    }

    /// The file that it is, if it is one. A file with the [stamp](Content::stamp) of its source is not opened.
    fn file(&self) -> Option<Content> {
        None
    }

    /// Turns the input into a source.
    ///
    /// # Errors
    ///
    /// The source cannot be read.
    fn into_input(self) -> Result<Input, MemoryError>;
}

impl IntoInput for NewInput {
    fn name(&self) -> Option<String> {
        Some(self.name.clone())
    }

    fn file(&self) -> Option<Content> {
        matches!(self.content, Content::File(_)).then(|| self.content.clone())
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
