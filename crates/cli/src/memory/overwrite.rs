//! Overwrites deleted data in the file of a knowledge base.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

/// The time to wait for a file that others use.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Writes a SQLite file again without its deleted rows, whose bytes would stay in free pages and in the write-ahead
/// log. Returns whether no such bytes are left. Other programs that read the file at this moment keep the log.
pub fn overwrite_deleted(path: &Path) -> rusqlite::Result<bool> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    match connection.execute_batch("VACUUM") {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => return Ok(false),
        vacuumed => vacuumed?,
    }
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
        Ok(row.get::<_, i64>(0)? == 0)
    })
}
