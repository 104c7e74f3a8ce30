//! Failures inside the store, before the file's name is known.

use std::path::Path;

use gristmill_model::positions::ParsePositionsError;
use gristmill_store::StoreError;
use rusqlite::ErrorCode;

use crate::open::place::log_path;

/// Why an operation or a query failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database reported an error.
    Sqlite(rusqlite::Error),
    /// A row has contents that this program does not write.
    Damaged(String),
    /// The store refuses.
    Refused(StoreError),
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Failure::Sqlite(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Refused(error)
    }
}

impl From<ParsePositionsError> for Failure {
    fn from(error: ParsePositionsError) -> Self {
        Failure::Damaged(error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Failure::Damaged(format!("a JSON column cannot be read: {error}"))
    }
}

/// Reports whether the fault is a column whose contents this program does not write.
fn is_of_row(error: &rusqlite::Error) -> bool {
    use rusqlite::Error;
    matches!(
        error,
        Error::FromSqlConversionFailure(..)
            | Error::IntegralValueOutOfRange(..)
            | Error::InvalidColumnType(..)
            | Error::Utf8Error(..)
    ) || matches!(error, Error::SqliteFailure(_, Some(message)) if message == "malformed JSON")
}

impl Failure {
    /// Describes a fault in a row that was read; returns any other failure unchanged.
    pub(crate) fn of_row(self) -> std::result::Result<String, Failure> {
        match self {
            Failure::Damaged(reason) => Ok(reason),
            Failure::Sqlite(error)
                if is_of_row(&error) || error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) =>
            {
                Ok(error.to_string())
            }
            other => Err(other),
        }
    }

    /// Reports whether the rows of one batch are damaged.
    pub(crate) fn is_of_batch(&self) -> bool {
        matches!(self, Failure::Refused(StoreError::Damaged { .. }))
    }

    /// The error that callers see.
    pub(crate) fn at(self, path: &Path, busy_timeout_ms: u32) -> StoreError {
        let path = path.to_path_buf();
        let error = match self {
            Failure::Refused(error) => return error,
            Failure::Damaged(reason) => return StoreError::Corrupt { path, reason },
            Failure::Sqlite(error) if is_of_row(&error) => {
                let reason = format!("a row cannot be read: {error}");
                return StoreError::Corrupt { path, reason };
            }
            Failure::Sqlite(error) => error,
        };
        let reason = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Locked {
                path,
                waited_ms: u64::from(busy_timeout_ms),
            },
            Some(ErrorCode::DiskFull) => StoreError::DiskFull { path },
            Some(ErrorCode::ReadOnly) => StoreError::ReadOnly { path, reason },
            Some(ErrorCode::NotADatabase) => StoreError::Open {
                path,
                reason: "it is not a SQLite database; choose another file".to_owned(),
            },
            Some(ErrorCode::CannotOpen) => {
                let reason = cannot_open(&path).map_or(reason, str::to_owned);
                StoreError::Open { path, reason }
            }
            Some(ErrorCode::DatabaseCorrupt) => StoreError::Corrupt { path, reason },
            Some(ErrorCode::TooBig) => StoreError::InvalidInput(
                "a batch's payloads, or a report's values, are over the gigabyte that one row of SQLite holds: \
                 send them in smaller batches"
                    .to_owned(),
            ),
            _ => StoreError::Database(reason),
        }
    }
}

/// Why SQLite cannot open or make a file, if the file system shows it.
fn cannot_open(path: &Path) -> Option<&'static str> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if path.is_dir() {
        return Some("it is a folder; name a file in it");
    }
    if !folder.unwrap_or(Path::new(".")).is_dir() {
        return Some("its folder does not exist; make the folder, or name another file");
    }
    match (path.exists(), log_path(path).exists()) {
        (false, _) => Some("it does not exist, and its folder cannot be written; name a file elsewhere"),
        (true, true) => Some(
            "SQLite reads the log beside it only in a folder that this user may write; copy both files to such a folder, or end \
             the programs that use the store, which then move the log into the file",
        ),
        (true, false) => None,
    }
}
