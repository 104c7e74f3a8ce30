//! Opens the file: checks its owner, migrates its schema, and sets its durability.

use std::path::Path;
use std::time::Duration;

use gristmill_store::layout::Layout;
use gristmill_store_sqlite::layout;
use rusqlite::{Connection, OpenFlags};

use crate::error::MemoryError;
use crate::limits::{BUSY_TIMEOUT_MS, STATEMENTS_MAX};

use super::database_error;

/// The layout of a knowledge base's file.
const LAYOUT: Layout = Layout {
    tables: &[
        include_str!("schema/tables.sql"),
        include_str!("schema/failure_places.sql"),
    ],
    code: &[include_str!("schema/views.sql")],
};

/// The id in the header of a knowledge base: `GRMK`.
pub const APPLICATION_ID: i64 = 0x4752_4d4b;

/// Opens the connection that writes. Creates a missing file if `create` is set, and migrates its schema.
pub(super) fn open_writer(path: &Path, create: bool, sync: bool) -> Result<Connection, MemoryError> {
    if !create && !path.exists() {
        return Err(MemoryError::Missing {
            path: path.to_path_buf(),
        });
    }
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if create {
        flags |= OpenFlags::SQLITE_OPEN_CREATE;
        gristmill_store_sqlite::create_private(path);
    }
    let failed = |error| database_error(path, &error);
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    prepare(&connection).map_err(failed)?;
    check_owner(&connection, path)?;
    layout::is_current(&connection, &LAYOUT).map_err(|error| layout_error(error, path))?;
    (|| {
        connection.pragma_update(None, "synchronous", if sync { "FULL" } else { "NORMAL" })?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
        connection.pragma_update(None, "cache_size", -65_536)?;
        connection.pragma_update(None, "temp_store", "MEMORY")
    })()
    .map_err(failed)?;
    layout::apply(&mut connection, &LAYOUT, |_| Ok(())).map_err(|error| layout_error(error, path))?;
    Ok(connection)
}

/// Opens a connection for queries.
pub(super) fn open_reader(path: &Path) -> Result<Connection, MemoryError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let failed = |error| database_error(path, &error);
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    prepare(&connection).map_err(failed)?;
    connection
        .pragma_update(None, "cache_size", -65_536)
        .map_err(failed)?;
    connection
        .pragma_update(None, "mmap_size", 1_i64 << 30)
        .map_err(failed)?;
    Ok(connection)
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_millis(BUSY_TIMEOUT_MS))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(())
}

/// Refuses a file of another program, before anything is written to it.
fn check_owner(connection: &Connection, path: &Path) -> Result<(), MemoryError> {
    let failed = |error| database_error(path, &error);
    let application_id: i64 = connection
        .query_row("PRAGMA application_id", [], |row| row.get(0))
        .map_err(failed)?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(failed)?;
    if application_id == APPLICATION_ID || (application_id == 0 && tables == 0) {
        return Ok(());
    }
    Err(MemoryError::NotAKnowledgeBase {
        path: path.to_path_buf(),
        application_id,
    })
}

fn layout_error(error: layout::Error, path: &Path) -> MemoryError {
    MemoryError::of_layout(error, path.to_path_buf(), &LAYOUT, |cause| {
        database_error(path, &cause)
    })
}
