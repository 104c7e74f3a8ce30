//! The content of a source: bytes in memory, or a file that is read in pieces.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use gristmill_model::Timestamp;

use crate::digest::Hasher;
use crate::error::MemoryError;
use crate::limits::{FORMAT_BYTES_MAX, SOURCE_BYTES_MAX, SOURCE_PIECE_BYTES_MAX, STAMP_SETTLED_MS};

/// The beginning of content that gzip has packed.
const GZIP_MARK: &[u8] = &[0x1f, 0x8b];

/// Bytes that are read from a file at a time.
const READ_BYTES: usize = 1 << 16;

/// The content of a source. Clones share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Bytes in memory.
    Bytes(Arc<[u8]>),
    /// A file, which is read when it is needed. If it changes during an ingestion, the next call ingests it again.
    File(PathBuf),
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Content::Bytes(bytes.into())
    }
}

impl Content {
    /// The beginning of the stamp of a file that may still change unnoticed.
    pub(crate) const UNSETTLED: &str = "unsettled";

    /// Opens the content at its beginning. Content that gzip has packed is unpacked.
    ///
    /// # Errors
    ///
    /// [`MemoryError::File`] if the file cannot be opened.
    pub fn open(&self) -> Result<Box<dyn BufRead + Send>, MemoryError> {
        let mut reader: Box<dyn BufRead + Send> = match self {
            Content::Bytes(bytes) => Box::new(Cursor::new(bytes.clone())),
            Content::File(path) => {
                let file = File::open(path).map_err(|error| self.failed(error))?;
                Box::new(BufReader::with_capacity(READ_BYTES, file))
            }
        };
        let beginning = reader.fill_buf().map_err(|error| self.failed(error))?;
        if beginning.starts_with(GZIP_MARK) {
            let unpacked = MultiGzDecoder::new(reader);
            reader = Box::new(BufReader::with_capacity(READ_BYTES, unpacked));
        }
        Ok(reader)
    }

    /// Computes the SHA-256 of the content, in hexadecimal.
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

    /// The stamp of a file, by which a later run tells without reading whether it is unchanged: its size, the time of its last change,
    /// its number, and its path from the root; `None` if it is no file. A file that changed in the last seconds before `now` has a
    /// stamp that fits none: it may change again within one tick of the file system's clock.
    pub fn stamp(&self, now: Timestamp) -> Option<String> {
        self.stamp_in(now, &mut Folders::default())
    }

    /// The [stamp](Content::stamp) of one of many files.
    pub(crate) fn stamp_in(&self, now: Timestamp, folders: &mut Folders) -> Option<String> {
        let Content::File(path) = self else { return None };
        let metadata = std::fs::metadata(path).ok()?;
        let place = folders.place(self)?;
        let settled = i128::from(now.0) - i128::from(metadata.mtime()) * 1_000 > i128::from(STAMP_SETTLED_MS);
        Some(match settled {
            true => format!(
                "{} {}.{:09} {} {place}",
                metadata.size(),
                metadata.mtime(),
                metadata.mtime_nsec(),
                metadata.ino()
            ),
            false => format!("{} {place}", Content::UNSETTLED),
        })
    }

    /// The stamp of a file that a source is from now on and that is not compared yet; `None` if there is no such file.
    pub fn stamp_of_unread(&self) -> Option<String> {
        let Content::File(path) = self else { return None };
        let place = Folders::default().place(self).filter(|_| path.is_file())?;
        Some(format!("{} {place}", Content::UNSETTLED))
    }

    /// The path from the root in a [stamp](Content::stamp).
    pub(crate) fn place_of(stamp: &str) -> Option<&str> {
        stamp.find('/').map(|at| &stamp[at..])
    }

    /// Reads the beginning, from which the format is recognised.
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

    /// Reads the whole content.
    ///
    /// # Errors
    ///
    /// [`MemoryError::File`] if the content cannot be read or exceeds [`SOURCE_BYTES_MAX`].
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

    /// Reads a file beside this one, such as the list of people of an export; `None` if there is none.
    pub(super) fn beside(&self, path: &str) -> Option<String> {
        let Content::File(own) = self else { return None };
        let file = File::open(own.parent()?.join(path)).ok()?;
        let mut bytes = Vec::new();
        file.take(SOURCE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(super::decode(&bytes))
    }

    /// The name of the folder of this file.
    pub(super) fn folder_name(&self) -> Option<String> {
        let Content::File(own) = self else { return None };
        Some(own.parent()?.file_name()?.to_string_lossy().into_owned())
    }

    /// Gives an error of bytes the source's name. Files have their paths.
    pub(super) fn named(&self, name: &str, error: MemoryError) -> MemoryError {
        match (self, error) {
            (Content::Bytes(_), MemoryError::File { reason, .. }) => MemoryError::File {
                path: name.into(),
                reason,
            },
            (_, error) => error,
        }
    }

    /// Makes the error for unreadable content.
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

/// Tells files by their paths from the root. Files of one folder stand together, so it asks the file system once for each folder.
#[derive(Debug, Default)]
pub struct Folders {
    /// The last folder, as it was written and as it is.
    last: Option<(PathBuf, Option<PathBuf>)>,
}

impl Folders {
    /// The path of a file from the root, by which the file is known from whichever folder it is named. Links and `..` in the path of
    /// its folder are followed. `None` if it is no file, if its folder is not there, or if the path is not UTF-8: two such paths may
    /// be shown alike.
    pub fn place(&mut self, content: &Content) -> Option<String> {
        let Content::File(path) = content else { return None };
        let path = std::path::absolute(path).ok()?;
        let (folder, name) = (path.parent()?, path.file_name()?);
        if self.last.as_ref().is_none_or(|(written, _)| written != folder) {
            self.last = Some((folder.to_path_buf(), folder.canonicalize().ok()));
        }
        let (_, folder) = self.last.as_ref()?;
        folder.as_ref()?.join(name).into_os_string().into_string().ok()
    }
}

/// A line that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadLineError {
    /// The line is longer than [`SOURCE_PIECE_BYTES_MAX`]. [`skip_line`] goes to its end.
    #[error("it exceeds the limit of {SOURCE_PIECE_BYTES_MAX} bytes for a message")]
    TooLong,
    /// The system's error.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Reads one line with its line feed into `line`. Returns `false` at the end. Of a line that is too long, `line` has the
/// beginning.
pub(super) fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool, ReadLineError> {
    let before = line.len();
    let read = reader
        .by_ref()
        .take(SOURCE_PIECE_BYTES_MAX as u64 + 1)
        .read_until(b'\n', line)?;
    if line.len() - before > SOURCE_PIECE_BYTES_MAX && !line.ends_with(b"\n") {
        return Err(ReadLineError::TooLong);
    }
    Ok(read > 0)
}

/// Skips the rest of a line.
pub(super) fn skip_line(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let piece = reader.fill_buf()?;
        let end = piece.iter().position(|&byte| byte == b'\n');
        let length = end.map_or(piece.len(), |end| end + 1);
        let is_end = end.is_some() || piece.is_empty();
        reader.consume(length);
        if is_end {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::source::{Format, ReadOptions};

    #[test]
    fn packed_content_is_unpacked() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(b"Bees hum.\n").expect("packs");
        let packed = Content::from(packer.finish().expect("packs"));
        assert_eq!(packed.read().expect("reads"), b"Bees hum.\n");
        let cut = match &packed {
            Content::Bytes(bytes) => Content::from(bytes[..bytes.len() - 9].to_vec()),
            Content::File(_) => unreachable!("it is in memory"),
        };
        assert!(cut.read().is_err(), "a part is no whole");
        let damaged = super::super::read(
            "bees.gz",
            Format::Text,
            b"\x1f\x8b\x08\xff",
            &ReadOptions::default(),
        );
        let told = damaged.expect_err("it is no gzip").to_string();
        assert!(told.starts_with("bees.gz: "), "{told}");
    }

    #[test]
    fn a_stamp_tells_a_changed_file_and_trusts_no_young_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("bees.txt");
        let long_after = Timestamp(i64::MAX / 2);
        let stamp = |text: &str| {
            std::fs::write(&path, text).expect("writes");
            Content::File(path.clone()).stamp(long_after)
        };
        let (first, other) = (stamp("Bees hum."), stamp("Bees hum all day."));
        assert!(first.is_some() && first != other);
        assert_eq!(Content::File(path.clone()).stamp(long_after), other);
        let unsettled = Content::File(path.clone()).stamp(Timestamp(0)).expect("a stamp");
        assert!(unsettled.starts_with(Content::UNSETTLED), "{unsettled}");
        for stamp in [other.as_deref(), Some(unsettled.as_str())] {
            assert_eq!(
                stamp.and_then(Content::place_of),
                path.to_str(),
                "the path of {stamp:?}"
            );
        }
        assert_eq!(Content::from(b"Bees".to_vec()).stamp(long_after), None);
    }

    #[test]
    fn a_file_has_one_place_behind_links_of_folders() {
        let root = tempfile::tempdir().expect("a folder");
        let path = |name: &str| root.path().join(name);
        let place = |name: &str| Folders::default().place(&Content::File(path(name)));
        assert_eq!(place("x/../bees.txt"), None, "there is no folder x");
        std::fs::create_dir(path("x")).expect("a folder");
        std::fs::write(path("x/bees.txt"), "Hum.").expect("writes");
        std::os::unix::fs::symlink(path("x"), path("link")).expect("a link");
        std::os::unix::fs::symlink(path("x/bees.txt"), path("x/linked.txt")).expect("a link");
        let found = root.path().canonicalize().expect("a folder").join("x/bees.txt");
        for name in [
            "x/bees.txt",
            "link/bees.txt",
            "link/../x/bees.txt",
            "x/../link/bees.txt",
        ] {
            assert_eq!(place(name).as_deref(), found.to_str(), "{name}");
        }
        let linked = place("link/linked.txt").expect("a place");
        assert!(
            linked.ends_with("/x/linked.txt"),
            "a linked file has a name of its own: {linked}"
        );
        let mut folders = Folders::default();
        for _ in 0..2 {
            for name in ["x/bees.txt", "link/bees.txt"] {
                let place = folders.place(&Content::File(path(name)));
                assert_eq!(place.as_deref(), found.to_str());
            }
        }
        let wrong = std::ffi::OsStr::from_bytes(b"x\xff.txt");
        assert_eq!(
            Folders::default().place(&Content::File(root.path().join(wrong))),
            None
        );
    }

    #[test]
    fn a_file_is_read_like_its_bytes() {
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
