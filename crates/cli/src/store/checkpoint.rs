//! Makes a store's file complete when a command ends: moves the commits of its write-ahead log into it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gristmill_store_sqlite::log_path;
use rusqlite::{Connection, OpenFlags};

/// The files that this process has opened.
static OPENED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Notes that this process opens the store in the file at `path`, which is not a symbolic link.
pub fn note_opened(path: &Path) {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if !opened.iter().any(|other| other == path) {
        opened.push(path.to_owned());
    }
}

/// Checkpoints the files that this process has opened. Does not wait for other processes: a file that others use is
/// checkpointed as far as their snapshots allow.
pub fn checkpoint_opened() {
    let opened = std::mem::take(&mut *OPENED.lock().unwrap_or_else(PoisonError::into_inner));
    for path in opened {
        if let Err(error) = checkpoint(&path) {
            // The commits are safe beside the file. The next command tries again.
            tracing::warn!(path = %path.display(), %error, "the store's file is not checkpointed");
        }
    }
}

fn checkpoint(path: &Path) -> rusqlite::Result<()> {
    if std::fs::metadata(log_path(path)).map_or(0, |log| log.len()) == 0 {
        return Ok(());
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}
