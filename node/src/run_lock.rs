//! The lock that lets only one process at a time run a map with a name, as the command line and the Python package take it.

use std::path::Path;

use gristmill_postgres_link::NameLock;
use gristmill_store_sqlite::RunFileLock;
use napi::Result;

use crate::store_error;

/// Holds a run until it is dropped or the process ends, however it ends.
pub enum RunLock {
    /// For a store in a file.
    File { _held: RunFileLock },
    /// A name in the database.
    Name { _held: NameLock },
}

impl RunLock {
    /// Takes the run with this name in the store: a database, or the file at `place`. `None` if another process has it.
    pub async fn try_take(store: &str, place: Option<&str>, name: &str) -> Result<Option<RunLock>> {
        match place {
            Some(place) => {
                let held = RunFileLock::try_take(Path::new(place), name).map_err(store_error)?;
                Ok(held.map(|held| RunLock::File { _held: held }))
            }
            None => {
                let held = NameLock::try_take(store, &format!("run {name}")).await;
                Ok(held
                    .map_err(store_error)?
                    .map(|held| RunLock::Name { _held: held }))
            }
        }
    }
}
