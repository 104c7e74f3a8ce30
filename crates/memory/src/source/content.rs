//! What a source is made of: bytes that are there, or a file that is read piece by piece.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::PathBuf;
use std::sync::Arc;

use crate::digest::Hasher;
use crate::error::MemoryError;
use crate::limits::{FORMAT_BYTES_MAX, SOURCE_BYTES_MAX, SOURCE_PIECE_BYTES_MAX};

/// Bytes that are read from a file at once.
const READ_BYTES: usize = 1 << 16;

/// The contents of a source. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Its bytes.
    Bytes(Arc<[u8]>),
    /// A file, which is read when it is needed. One that is changed while it is ingested is ingested again by the next
    /// call.
    File(PathBuf),
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Content::Bytes(bytes.into())
    }
}

impl Content {
    /// Reads it from its beginning.
    ///
    /// # Errors
    ///
    /// [`MemoryError::File`] where the file cannot be opened.
    pub fn open(&self) -> Result<Box<dyn BufRead + Send>, MemoryError> {
        match self {
            Content::Bytes(bytes) => Ok(Box::new(Cursor::new(bytes.clone()))),
            Content::File(path) => {
                let file = File::open(path).map_err(|error| self.failed(error))?;
                Ok(Box::new(BufReader::with_capacity(READ_BYTES, file)))
            }
        }
    }

    /// The SHA-256 of it all, in hexadecimal.
    ///
    /// # Errors
    ///
    /// [`MemoryError::File`].
    pub fn digest(&self) -> Result<String, MemoryError> {
        let mut reader = self.open()?;
        let mut hasher = Hasher::default();
        loop {
            let piece = reader.fill_buf().map_err(|error| self.failed(error))?;
            if piece.is_empty() {
                return Ok(hasher.finish());
            }
            hasher.update(piece);
            let length = piece.len();
            reader.consume(length);
        }
    }

    /// As much of its beginning as tells its format.
    ///
    /// # Errors
    ///
    /// [`MemoryError::File`].
    pub fn beginning(&self) -> Result<Vec<u8>, MemoryError> {
        let mut bytes = Vec::new();
        let mut reader = self.open()?.take(FORMAT_BYTES_MAX);
        reader
            .read_to_end(&mut bytes)
            .map_err(|error| self.failed(error))?;
        Ok(bytes)
    }

    /// All of it.
    ///
    /// # Errors
    ///
    /// [`MemoryError::File`] where it cannot be read or is over [`SOURCE_BYTES_MAX`].
    pub fn read(&self) -> Result<Vec<u8>, MemoryError> {
        let mut bytes = Vec::new();
        let mut reader = self.open()?.take(SOURCE_BYTES_MAX + 1);
        reader
            .read_to_end(&mut bytes)
            .map_err(|error| self.failed(error))?;
        if bytes.len() as u64 > SOURCE_BYTES_MAX {
            return Err(self.failed(format!(
                "it has more than the {SOURCE_BYTES_MAX} bytes that a source of its format may have; cut it into \
                 several files"
            )));
        }
        Ok(bytes)
    }

    /// That it cannot be read.
    pub(super) fn failed(&self, reason: impl std::fmt::Display) -> MemoryError {
        let path = match self {
            Content::File(path) => path.clone(),
            Content::Bytes(_) => PathBuf::from("the source"),
        };
        MemoryError::File {
            path,
            reason: reason.to_string(),
        }
    }
}

/// Reads one line with its line feed into `line`. `false` at the end.
///
/// # Errors
///
/// What the system says, and that the line is longer than [`SOURCE_PIECE_BYTES_MAX`].
pub(super) fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    let before = line.len();
    let read = reader
        .by_ref()
        .take(SOURCE_PIECE_BYTES_MAX as u64 + 1)
        .read_until(b'\n', line)?;
    if line.len() - before > SOURCE_PIECE_BYTES_MAX {
        return Err(io::Error::other(format!(
            "it exceeds the limit of {SOURCE_PIECE_BYTES_MAX} bytes for a message"
        )));
    }
    Ok(read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_its_bytes_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("bees.txt");
        let text = "Bees hum.\n".repeat(20_000);
        std::fs::write(&path, &text).expect("writes");
        let (file, bytes) = (Content::File(path), Content::from(text.clone().into_bytes()));
        assert_eq!(file.read().expect("reads"), text.as_bytes());
        for content in [&file, &bytes] {
            let digest = content.digest().expect("a digest");
            assert_eq!(digest, crate::digest::of(text.as_bytes()));
        }
        assert_eq!(file.beginning().expect("reads"), text.as_bytes());
        let missing = Content::File(folder.path().join("nope"));
        let error = missing.digest().expect_err("no file").to_string();
        assert!(error.contains("nope"), "{error}");
    }
}
