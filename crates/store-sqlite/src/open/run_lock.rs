//! Lets only one process at a time work on a run of a store in a file.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::open::place::resolve_link;

/// A locked file beside the store. Holds a run until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct RunFileLock {
    path: PathBuf,
    /// The open file with the system's lock.
    _file: File,
}

impl RunFileLock {
    /// Takes the run with this name in this store. `None` if another process has it.
    ///
    /// # Errors
    ///
    /// The store's path cannot be resolved, or the file cannot be created or locked; the error names it.
    pub fn try_take(store: &Path, name: &str) -> io::Result<Option<RunFileLock>> {
        let named = |path: &Path, problem: &str, error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("{} cannot be {problem}: {error}", path.display()),
            )
        };
        let store = resolve_link(store).map_err(|error| named(store, "read", error))?;
        let path = lock_path(&store, name);
        loop {
            let file = File::create(&path).map_err(|error| named(&path, "created", error))?;
            match file.try_lock() {
                Ok(()) if is_still_at(&file, &path) => return Ok(Some(RunFileLock { path, _file: file })),
                // The holder has just ended and removed the file, so create a new one.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(named(&path, "locked", error)),
            }
        }
    }
}

impl Drop for RunFileLock {
    fn drop(&mut self) {
        // If the file stays behind, the next run of this name takes it over.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A path beside the store, with a name that any file system accepts.
fn lock_path(store: &Path, name: &str) -> PathBuf {
    let digest = Sha256::digest(name);
    let short = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    let mut path = store.as_os_str().to_owned();
    path.push(format!("-run-{short:08x}.lock"));
    PathBuf::from(path)
}

fn is_still_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(ours), Ok(theirs)) => (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_one_holder_however_its_store_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (store, link) = (folder.path().join("a.db"), folder.path().join("link.db"));
        std::os::unix::fs::symlink(&store, &link).unwrap();
        let held = RunFileLock::try_take(&store, "x").unwrap();
        assert!(held.is_some());
        assert!(RunFileLock::try_take(&link, "x").unwrap().is_none());
        assert!(RunFileLock::try_take(&link, "y").unwrap().is_some());
        drop(held);
        assert!(RunFileLock::try_take(&link, "x").unwrap().is_some());
        let missing = folder.path().join("none/a.db");
        let error = RunFileLock::try_take(&missing, "x").unwrap_err();
        assert!(error.to_string().contains("none/a.db"), "{error}");
    }
}
