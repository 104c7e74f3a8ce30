//! One process at a time works on a run.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};

/// Holds a run until it is dropped, or the process ends however it may.
#[derive(Debug)]
pub struct RunLock {
    path: PathBuf,
    /// The system's lock is on this open file.
    _file: File,
}

impl RunLock {
    /// Takes the run of that name in that store, or says that another process has it.
    pub fn take(store: &Path, name: &str) -> anyhow::Result<RunLock> {
        let path = lock_path(store, name);
        loop {
            let file = File::create(&path).with_context(|| format!("{} cannot be made", path.display()))?;
            match file.try_lock() {
                Ok(()) if is_still_at(&file, &path) => return Ok(RunLock { path, _file: file }),
                // Its holder has just ended and removed it: the next one is made anew.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => bail!(
                    "run `{name}` is running in another process; wait for it, or give this run another --name"
                ),
                Err(TryLockError::Error(reason)) => {
                    return Err(reason).with_context(|| format!("{} cannot be locked", path.display()));
                }
            }
        }
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // A file that stays behind is taken over by the next run of that name.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Beside the store, with a name that any file system takes.
fn lock_path(store: &Path, name: &str) -> PathBuf {
    let digest = Sha256::digest(name);
    let mut path = store.as_os_str().to_owned();
    path.push(format!(
        "-run-{:02x}{:02x}{:02x}{:02x}.lock",
        digest[0], digest[1], digest[2], digest[3]
    ));
    PathBuf::from(path)
}

fn is_still_at(file: &File, path: &Path) -> bool {
    let same = || -> io::Result<bool> {
        let (ours, theirs) = (file.metadata()?, std::fs::metadata(path)?);
        Ok((ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()))
    };
    same().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_held_by_one_until_it_is_let_go() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("a.db");
        let lock = RunLock::take(&store, "x").unwrap();
        let refused = RunLock::take(&store, "x").unwrap_err().to_string();
        assert!(
            refused.contains("run `x` is running in another process"),
            "{refused}"
        );
        RunLock::take(&store, "y").unwrap();
        drop(lock);
        RunLock::take(&store, "x").unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
