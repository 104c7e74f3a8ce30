//! Lets only one process at a time work on a run.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use gristmill_store_sqlite::resolve_link;
use sha2::{Digest, Sha256};

use crate::store::location::StoreLocation;
use crate::store::postgres::NameLock;

/// Holds a run until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct RunLock {
    /// A lock between processes on this machine, for a store in a file.
    _file: Option<FileLock>,
    /// A lock between all processes on a database.
    name: Option<NameLock>,
}

impl RunLock {
    /// Takes the run with this name in this store. Fails if another process has it.
    pub async fn take(store: &StoreLocation, name: &str) -> anyhow::Result<RunLock> {
        let Some(lock) = RunLock::try_take(store, name).await? else {
            bail!("run `{name}` is running in another process; wait for it, or give this run another --name");
        };
        Ok(lock)
    }

    /// Takes the run with this name in this store. Returns `None` if another process has it.
    pub async fn try_take(store: &StoreLocation, name: &str) -> anyhow::Result<Option<RunLock>> {
        match store {
            StoreLocation::File(path) => {
                let path =
                    resolve_link(path).with_context(|| format!("{} cannot be read", path.display()))?;
                Ok(FileLock::try_take(&path, name)?.map(|lock| RunLock {
                    _file: Some(lock),
                    name: None,
                }))
            }
            StoreLocation::Postgres(url) => {
                let lock = NameLock::try_take(url.secret(), &format!("run {name}")).await?;
                Ok(lock.map(|lock| RunLock {
                    _file: None,
                    name: Some(lock),
                }))
            }
        }
    }

    /// Resolves when another process has taken the run, which can happen after an outage of the database.
    pub async fn lost(&self) {
        match &self.name {
            None => std::future::pending().await,
            Some(lock) => lock.lost().await,
        }
    }
}

/// A locked file beside the store.
#[derive(Debug)]
pub struct FileLock {
    path: PathBuf,
    /// The open file with the system's lock.
    _file: File,
}

impl FileLock {
    fn try_take(store: &Path, name: &str) -> anyhow::Result<Option<FileLock>> {
        let path = lock_path(store, name);
        loop {
            let file =
                File::create(&path).with_context(|| format!("{} cannot be created", path.display()))?;
            match file.try_lock() {
                Ok(()) if is_still_at(&file, &path) => return Ok(Some(FileLock { path, _file: file })),
                // The holder has just ended and removed the file, so create a new one.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(reason)) => {
                    return Err(reason).with_context(|| format!("{} cannot be locked", path.display()));
                }
            }
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // If the file stays behind, the next run of this name takes it over.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A path beside the store, with a name that any file system accepts.
fn lock_path(store: &Path, name: &str) -> PathBuf {
    let mut path = store.as_os_str().to_owned();
    path.push(format!("-run-{}.lock", short(name)));
    PathBuf::from(path)
}

fn short(text: &str) -> String {
    let digest = Sha256::digest(text);
    format!(
        "{:02x}{:02x}{:02x}{:02x}",
        digest[0], digest[1], digest[2], digest[3]
    )
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

    #[tokio::test]
    async fn one_process_holds_a_run_until_it_lets_go() {
        let folder = tempfile::tempdir().unwrap();
        let store = StoreLocation::File(folder.path().join("a.db"));
        let lock = RunLock::take(&store, "x").await.unwrap();
        let refused = RunLock::take(&store, "x").await.unwrap_err().to_string();
        assert!(
            refused.contains("run `x` is running in another process"),
            "{refused}"
        );
        RunLock::take(&store, "y").await.unwrap();
        drop(lock);
        RunLock::take(&store, "x").await.unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
