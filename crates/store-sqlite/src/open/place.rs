//! The place of a store: the file at its path, and whether the path still leads to the open file.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use gristmill_store::StoreError;

use crate::limits::LINKS_MAX;

/// The path of the file that a symbolic link leads to, even if that file does not exist yet. Other paths are returned
/// unchanged.
///
/// SQLite keeps its log beside the file, not beside the link.
///
/// # Errors
///
/// Those of the file system, and a chain of more than 40 links.
pub fn resolve_link(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        match path.symlink_metadata() {
            Ok(metadata) if metadata.is_symlink() => {
                let target = path.read_link()?;
                // An absolute target replaces the folder.
                path = path.parent().unwrap_or(Path::new("")).join(target);
            }
            _ => return Ok(path),
        }
    }
    Err(io::Error::other("its symbolic links lead in a circle"))
}

/// The open file and log of a store.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    path: PathBuf,
    log: PathBuf,
    /// `None` if the operating system shows no such file, as for a simulated disk.
    file: Option<Inode>,
    /// `None` if there is no log, as for a read-only store.
    log_file: Option<Inode>,
}

/// The identity of a file for the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    fn of(path: &Path) -> Option<Inode> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Inode {
            device: metadata.dev(),
            number: metadata.ino(),
        })
    }
}

impl OpenFiles {
    /// The files at this path, which a connection has just opened and keeps open. An open file keeps its inode number,
    /// so no later file can have it.
    pub fn at(path: &Path) -> OpenFiles {
        let log = log_path(path);
        OpenFiles {
            path: path.to_path_buf(),
            file: Inode::of(path),
            log_file: Inode::of(&log),
            log,
        }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fails with [`StoreError::Moved`] once the path leads elsewhere: others then use another file than this process.
    pub fn check(&self) -> Result<(), StoreError> {
        let is_same = |known: Option<Inode>, path: &Path| known.is_none() || Inode::of(path) == known;
        let what = if !is_same(self.file, &self.path) {
            &self.path
        } else if !is_same(self.log_file, &self.log) {
            &self.log
        } else {
            return Ok(());
        };
        Err(StoreError::Moved { path: what.clone() })
    }
}

/// Data that shows whether another process has changed a file, or has begun to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub has_log: bool,
    changed_at: Option<SystemTime>,
    bytes: u64,
}

impl Content {
    pub fn of(path: &Path) -> Content {
        let metadata = std::fs::metadata(path).ok();
        Content {
            has_log: log_path(path).exists(),
            changed_at: metadata.as_ref().and_then(|metadata| metadata.modified().ok()),
            bytes: metadata.map_or(0, |metadata| metadata.len()),
        }
    }
}

/// Describes a missing log if its index says that it has commits which are not in the file yet: somebody removed it, or
/// copied the file without it. Called before SQLite opens the file and makes both again.
///
/// The index: https://www.sqlite.org/walformat.html#the_wal_index_file_format, "WAL-Index Header" and "WAL-Index Checkpoint
/// Information".
pub(crate) fn missing_log(path: &Path) -> Option<String> {
    const FRAMES_AT: usize = 16;
    const FRAMES_MOVED_AT: usize = 96;
    let mut index = [0; FRAMES_MOVED_AT + 4];
    let log = log_path(path);
    if log.exists() {
        return None;
    }
    File::open(beside(path, "-shm"))
        .and_then(|mut file| file.read_exact(&mut index))
        .ok()?;
    let number_at = |at: usize| u32::from_ne_bytes([index[at], index[at + 1], index[at + 2], index[at + 3]]);
    let pages = number_at(FRAMES_AT).saturating_sub(number_at(FRAMES_MOVED_AT));
    (pages > 0).then(|| {
        format!(
            "its log {} is missing, with {pages} pages of commits that are not in the file; restore both from one backup",
            log.display()
        )
    })
}

/// The write-ahead log of the file at `path`, which is no link.
pub fn log_path(path: &Path) -> PathBuf {
    beside(path, "-wal")
}

/// The path of a file that SQLite keeps beside the file at `path`.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
