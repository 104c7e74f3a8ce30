//! The lock that lets only one process at a time run a map with a name, as the command line and the Python package take it.

use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gristmill_postgres_link::NameLock;
use gristmill_store_sqlite::resolve_link;
use napi::Result;
use sha2::{Digest, Sha256};

use crate::store_error;

/// Holds a run until it is dropped or the process ends, however it ends.
pub enum RunLock {
    /// A locked file beside the store.
    File {
        path: PathBuf,
        /// The open file with the system's lock.
        _file: File,
    },
    /// A name in the database.
    Name { _held: NameLock },
}

impl RunLock {
    /// Takes the run with this name in the store: a database, or the file at `place`. `None` if another process has it.
    pub async fn try_take(store: &str, place: Option<&str>, name: &str) -> Result<Option<RunLock>> {
        match place {
            Some(place) => RunLock::try_take_file(Path::new(place), name),
            None => {
                let held = NameLock::try_take(store, &format!("run {name}")).await;
                Ok(held
                    .map_err(store_error)?
                    .map(|held| RunLock::Name { _held: held }))
            }
        }
    }

    fn try_take_file(store: &Path, name: &str) -> Result<Option<RunLock>> {
        let digest = Sha256::digest(name);
        let short = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        let mut path = resolve_link(store).map_err(store_error)?.into_os_string();
        path.push(format!("-run-{short:08x}.lock"));
        let path = PathBuf::from(path);
        loop {
            let file = File::create(&path).map_err(store_error)?;
            match file.try_lock() {
                Ok(()) if is_still_at(&file, &path) => return Ok(Some(RunLock::File { path, _file: file })),
                // The holder has just ended and removed the file, so create a new one.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(reason)) => return Err(store_error(reason)),
            }
        }
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        if let RunLock::File { path, .. } = self {
            // If the file stays behind, the next run of this name takes it over.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn is_still_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(ours), Ok(theirs)) => (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()),
        _ => false,
    }
}
