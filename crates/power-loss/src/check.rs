//! The check of an image: opens its files like a program does, and compares them with the promises.

pub mod jobs;
pub mod knowledge;

use rusqlite::Connection;

use crate::volume::Volume;

/// A fault in an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An acknowledged item is missing.
    #[error("lost: {0}")]
    Lost(String),
    /// An item is stored twice.
    #[error("doubled: {0}")]
    Doubled(String),
    /// A file does not open, or contradicts itself.
    #[error("broken: {0}")]
    Broken(String),
}

/// The fault of a failed operation on an image.
pub(crate) fn broken(error: impl std::fmt::Display) -> Fault {
    Fault::Broken(error.to_string())
}

/// Checks a file with SQLite's integrity check.
pub(crate) fn integrity(volume: &Volume, file: &str) -> Result<(), Fault> {
    let connection = Connection::open(volume.path(file)).map_err(broken)?;
    let verdict: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .map_err(broken)?;
    if verdict == "ok" {
        Ok(())
    } else {
        Err(Fault::Broken(format!("{file}: {verdict}")))
    }
}
