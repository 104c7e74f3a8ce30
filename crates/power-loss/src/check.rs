//! The check of an image: opened as a program opens it, and compared with what was promised.

pub mod jobs;
pub mod knowledge;

use rusqlite::Connection;

use crate::volume::Volume;

/// A fault of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Something acknowledged is not there.
    #[error("lost: {0}")]
    Lost(String),
    /// Something is there twice.
    #[error("doubled: {0}")]
    Doubled(String),
    /// The file cannot be opened, or contradicts itself.
    #[error("broken: {0}")]
    Broken(String),
}

/// An operation on an image failed.
pub(crate) fn broken(error: impl std::fmt::Display) -> Fault {
    Fault::Broken(error.to_string())
}

/// Whether SQLite finds a file sound.
pub(crate) fn integrity(volume: &Volume, file: &str) -> Result<(), Fault> {
    let connection = Connection::open(volume.path(file)).map_err(broken)?;
    let verdict: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .map_err(broken)?;
    match verdict == "ok" {
        true => Ok(()),
        false => Err(Fault::Broken(format!("{file}: {verdict}"))),
    }
}
