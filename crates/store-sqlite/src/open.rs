//! Opens the file, and checks its owner, its layout and how it is synced.

pub(crate) mod place;
pub(crate) mod run_lock;

use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use gristmill_store::StoreError;
use gristmill_store::layout::{Layout, LayoutError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::failure::{Failure, Result};
use crate::layout;
use crate::limits::{LOG_BYTES_KEPT_MAX, STATEMENTS_MAX, WRITER_CACHE_KIB};
use crate::open::place::{log_path, resolve_link};
use crate::options::{Access, SqliteOptions};
use crate::query::event;

/// The layout of a store's file.
pub(crate) const LAYOUT: Layout = Layout {
    tables: &[include_str!("schema/tables.sql")],
    code: &[include_str!("schema/views.sql"), event::LISTEN],
};

/// The application id in the header of a store's file: `GRML`.
pub const APPLICATION_ID: i64 = 0x4752_4d4c;

/// Bytes of a page: SQLite's default.
const PAGE_BYTES: u64 = 4_096;

/// How many times to try when other processes open a new store at the same moment.
const SET_UP_ATTEMPTS_MAX: u32 = 20;

/// A file that was opened.
pub(crate) struct Opened {
    /// The connection that writes, unless the file is read-only.
    pub connection: Option<Connection>,
    /// Why the file is read-only, if it is.
    pub read_only: Option<&'static str>,
    /// The fault of the log of a read-only file.
    pub missing_log: Option<String>,
}

/// Opens the file at `path`, which is no symbolic link, as the options say.
pub(crate) fn open(path: &Path, options: &SqliteOptions) -> std::result::Result<Opened, StoreError> {
    let at = |failure: Failure| failure.at(path, options.busy_timeout_ms);
    let writer = |connection| Opened {
        connection: Some(connection),
        read_only: None,
        missing_log: None,
    };
    let (reason, not_writable) = match options.access {
        Access::Read => ("it was opened for reading alone", None),
        Access::Write => return open_writer(path, options).map(writer).map_err(at),
        Access::WriteWherePermitted => match open_writer(path, options).map_err(at) {
            Ok(connection) => return Ok(writer(connection)),
            Err(error @ (StoreError::ReadOnly { .. } | StoreError::Open { .. })) => {
                ("this user may not write the file, or its folder", Some(error))
            }
            Err(error) => return Err(error),
        },
    };
    let missing_log = place::missing_log(path);
    check_readable(path, options.busy_timeout_ms).map_err(|failure| {
        if let Some(reason) = &missing_log {
            return StoreError::Corrupt {
                path: path.to_path_buf(),
                reason: reason.clone(),
            };
        }
        match (at(failure), not_writable) {
            // SQLite says more about why the file cannot be written.
            (StoreError::Database(_), Some(error)) => error,
            (error, _) => error,
        }
    })?;
    Ok(Opened {
        connection: None,
        read_only: Some(reason),
        missing_log,
    })
}

/// Opens the connection that writes; makes and migrates the store if needed.
fn open_writer(path: &Path, options: &SqliteOptions) -> Result<Connection> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if options.create {
        flags |= OpenFlags::SQLITE_OPEN_CREATE;
        create_private(path);
    } else {
        refuse_empty(path)?;
    }
    let mut connection = Connection::open_with_flags(path, flags)?;
    prepare(&connection, options.busy_timeout_ms)?;
    let alone = lock_folder(path);
    let mut attempt = 1;
    while let Err(failure) = set_up(&mut connection, path, options) {
        // Processes that open a new store at the same moment interfere with each other.
        if !is_busy(&failure) || attempt == SET_UP_ATTEMPTS_MAX {
            return Err(failure);
        }
        attempt += 1;
        // Waits for the current writer.
        connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK")?;
    }
    drop(alone);
    if let Some(bytes) = options.size_bytes_max {
        let pages = i64::try_from(bytes / PAGE_BYTES).unwrap_or(i64::MAX);
        connection.pragma_update(None, "max_page_count", pages)?;
    }
    #[cfg(feature = "count-statements")]
    if let Some(statements) = options.statements.clone() {
        use rusqlite::trace::TraceEventCodes;
        let count = move |_: rusqlite::trace::TraceEvent<'_>| {
            statements.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        };
        connection.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(count))?;
    }
    Ok(connection)
}

/// Makes an empty file that only its owner can read and write, if there is none, also at the end of a symbolic link.
/// SQLite uses it as a new database, and gives the log and its index the same rights. If it cannot be made, SQLite
/// reports the reason later.
pub fn create_private(path: &Path) {
    let made = resolve_link(path).and_then(|path| {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
    });
    drop(made);
}

/// Refuses an empty file, which SQLite would use as a new database: a caller that does not ask for a new store has
/// named the wrong file.
fn refuse_empty(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.len() == 0 => Err(StoreError::Open {
            path: path.to_path_buf(),
            reason: "it is empty, and no store; name another file".to_owned(),
        }
        .into()),
        _ => Ok(()),
    }
}

/// Keeps others from making or migrating a store in the same folder, until the lock is dropped, because the switch to
/// WAL and the migration are not one transaction. A lock of the folder leaves no file behind, and SQLite does not use
/// it. If there are no such locks, retries have to do.
fn lock_folder(path: &Path) -> Option<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new("."))).ok()?;
    folder.lock().ok()?;
    Some(folder)
}

/// Checks the owner of the file, configures how it is written, and migrates it.
fn set_up(connection: &mut Connection, path: &Path, options: &SqliteOptions) -> Result<()> {
    check_owner(connection, path)?;
    check_layout(connection, path)?;
    if connection.is_readonly(rusqlite::MAIN_DB)? {
        return Err(StoreError::ReadOnly {
            path: path.to_path_buf(),
            reason: "the file is read-only".to_owned(),
        }
        .into());
    }
    connection.pragma_update(None, "synchronous", options.synchronous.pragma())?;
    // Only for a file without pages: for others it would be a write at each opening, and change nothing.
    let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    if pages == 0 {
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT_MAX as i64)?;
    connection.pragma_update(None, "wal_autocheckpoint", options.checkpoint_pages)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    migrate(connection, path)
}

fn is_busy(failure: &Failure) -> bool {
    match failure {
        Failure::Sqlite(error) => matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
        ),
        _ => false,
    }
}

/// Opens a connection for queries.
pub(crate) fn open_reader(path: &Path, busy_timeout_ms: u32) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    prepare(&connection, busy_timeout_ms)?;
    Ok(connection)
}

/// Opens a connection for queries in a process without a writer. If there is no log, nobody has the file open, and
/// SQLite reads it as a file that nobody changes, because it would otherwise make a log. The reader checks afterwards
/// whether that was right.
pub(crate) fn open_alone(path: &Path, busy_timeout_ms: u32) -> Result<Connection> {
    if log_path(path).exists() {
        return open_reader(path, busy_timeout_ms);
    }
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection =
        Connection::open_with_flags(format!("file:{}?immutable=1", percent_encoded(path)), flags)?;
    prepare(&connection, busy_timeout_ms)?;
    Ok(connection)
}

/// Encodes a path for SQLite's URIs: https://www.sqlite.org/uri.html
fn percent_encoded(path: &Path) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(byte);
    path.as_os_str()
        .as_bytes()
        .iter()
        .map(|byte| {
            if plain(byte) {
                char::from(*byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

/// Refuses a file that this program cannot read as it is. Writes nothing.
fn check_readable(path: &Path, busy_timeout_ms: u32) -> Result<()> {
    refuse_empty(path)?;
    let connection = open_alone(path, busy_timeout_ms)?;
    check_owner(&connection, path)?;
    check_layout(&connection, path)?;
    let found = layout::read(&connection).map_err(|error| refusal(error, path))?;
    if found.is_some_and(|found| found.version == LAYOUT.version()) {
        return Ok(());
    }
    Err(StoreError::Open {
        path: path.to_path_buf(),
        reason: "it has the layout of an earlier version, and may not be written here; run a command of this version where it \
                 may, such as `gristmill stats`, which migrates it"
            .to_owned(),
    }
    .into())
}

/// Makes an empty store in memory. Errors name the path.
pub(crate) fn open_in_memory(path: &Path) -> Result<Connection> {
    let mut connection = Connection::open_in_memory()?;
    prepare(&connection, 0)?;
    migrate(&mut connection, path)?;
    Ok(connection)
}

fn prepare(connection: &Connection, busy_timeout_ms: u32) -> Result<()> {
    connection.busy_timeout(Duration::from_millis(busy_timeout_ms.into()))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Otherwise a statement with a parameter in its LIMIT is prepared again whenever the parameter is bound, to plan by
    // its value: 17 % of the time of a worker that claims a hundred jobs at a time.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Refuses the database of another program, before anything is written to it.
fn check_owner(connection: &Connection, path: &Path) -> Result<()> {
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    // Read second: the tables and the id appear together, so a file whose tables were seen has its id by now.
    let application_id: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if application_id == APPLICATION_ID || (application_id == 0 && tables == 0) {
        return Ok(());
    }
    let is_ours =
        "SELECT count(*) = 2 FROM sqlite_schema WHERE type = 'table' AND name IN ('layout', 'batch')";
    let path = path.to_path_buf();
    let error = if application_id == 0 && connection.query_row(is_ours, [], |row| row.get(0))? {
        StoreError::CopyWithoutMark {
            path,
            application_id: APPLICATION_ID,
        }
    } else {
        StoreError::NotAStore { path, application_id }
    };
    Err(error.into())
}

/// Brings the file to the layout of this program. Writes nothing if it has that layout.
fn migrate(connection: &mut Connection, path: &Path) -> Result<()> {
    let refused = |error| refusal(error, path);
    layout::apply(connection, &LAYOUT, event::keep_triggers_for_listeners).map_err(refused)
}

/// Refuses a layout that this program cannot read.
fn check_layout(connection: &Connection, path: &Path) -> Result<()> {
    let refused = |error| refusal(error, path);
    layout::is_current(connection, &LAYOUT).map_err(refused)?;
    Ok(())
}

fn refusal(error: layout::Error, path: &Path) -> Failure {
    let path = path.to_path_buf();
    let known = LAYOUT.version();
    match error {
        LayoutError::Newer(found) => StoreError::newer(path, found, known).into(),
        LayoutError::Development => StoreError::Development { path }.into(),
        LayoutError::Failed { found, cause } => StoreError::Open {
            path,
            reason: format!(
                "its layout could not be brought from version {found} to {known}: {}",
                match cause {
                    // Without the SQL, which is long.
                    rusqlite::Error::SqlInputError { msg, .. } => msg,
                    other => other.to_string(),
                }
            ),
        }
        .into(),
        LayoutError::Database(cause) => cause.into(),
    }
}
