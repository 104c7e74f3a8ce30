//! Layouts of SQLite files.

use gristmill_store::layout::{Found, Layout, LayoutError, PROGRAM};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

/// Why a file does not have the layout.
pub type Error = LayoutError<rusqlite::Error>;

const LAYOUT_TABLE: &str = "
-- One row: the layout of this file.
CREATE TABLE layout (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL, -- of the tables
    tables  TEXT NOT NULL,    -- a digest of the files that made them
    code    TEXT NOT NULL,    -- a digest of the views and triggers
    program TEXT NOT NULL,    -- the version of Gristmill that wrote this row
    objects TEXT NOT NULL     -- a JSON array: those views and triggers, each as DROP names it
) STRICT;";

/// The layout of a file; `None` for a new one.
///
/// # Errors
///
/// [`LayoutError::Development`] for a file of a development version, [`LayoutError::Database`].
pub fn read(connection: &Connection) -> Result<Option<Found>, Error> {
    let table: Option<String> = connection
        .query_row(
            "SELECT name FROM sqlite_schema WHERE name IN ('layout', 'refinery_schema_history') ORDER BY name LIMIT 1",
            [],
            |row| row.get(0),
        )
        .optional()?;
    match table.as_deref() {
        None => return Ok(None),
        Some("layout") => {}
        Some(_) => return Err(LayoutError::Development),
    }
    let found = connection.query_row(
        "SELECT version, tables, code, program, objects FROM layout",
        [],
        |row| {
            let objects: String = row.get(4)?;
            Ok(Found {
                version: row.get(0)?,
                tables: row.get(1)?,
                code: row.get(2)?,
                program: row.get(3)?,
                objects: serde_json::from_str(&objects).unwrap_or_default(),
            })
        },
    )?;
    Ok(Some(found))
}

/// The [`id`](Layout::id) of the layout of a file that has one.
///
/// # Errors
///
/// Those of SQLite.
pub fn id(connection: &Connection) -> rusqlite::Result<String> {
    connection
        .prepare_cached("SELECT version || '-' || tables || '-' || code FROM layout")?
        .query_row([], |row| row.get(0))
}

/// Whether the file has this layout.
///
/// # Errors
///
/// [`LayoutError::Newer`] where it has that of a newer program, and those of [`read`].
pub fn is_current(connection: &Connection, layout: &Layout) -> Result<bool, Error> {
    match read(connection)? {
        Some(found) => layout.is_that_of(&found),
        None => Ok(false),
    }
}

/// Brings the file to this layout, in one transaction that `finish` completes. Writes nothing if it has the layout.
/// Others that open the file wait meanwhile.
///
/// # Errors
///
/// Those of [`is_current`], and [`LayoutError::Failed`].
pub fn apply(
    connection: &mut Connection,
    layout: &Layout,
    finish: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<(), Error> {
    if is_current(connection, layout)? {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    let found = read(&transaction)?;
    if let Some(found) = &found
        && layout.is_that_of(found)?
    {
        return Ok(());
    }
    let version = found.as_ref().map_or(0, |found| found.version);
    change(&transaction, layout, found)
        .and_then(|()| finish(&transaction))
        .map_err(|cause| failed(version, cause))?;
    Ok(transaction.commit()?)
}

fn change(transaction: &Transaction<'_>, layout: &Layout, found: Option<Found>) -> rusqlite::Result<()> {
    let (version, objects) = match found {
        Some(found) => (found.version, found.objects),
        None => {
            transaction.execute_batch(LAYOUT_TABLE)?;
            (0, Vec::new())
        }
    };
    for object in objects {
        transaction.execute_batch(&format!("DROP {object}"))?;
    }
    for migration in layout.split_at(version).1 {
        transaction.execute_batch(migration)?;
    }
    // Views of other people stay.
    let others = views_and_triggers(transaction)?;
    for file in layout.code {
        transaction.execute_batch(file)?;
    }
    let mut objects = views_and_triggers(transaction)?;
    objects.retain(|object| !others.contains(object));
    transaction.execute(
        "INSERT OR REPLACE INTO layout (one, version, tables, code, program, objects) VALUES (1, ?1, ?2, ?3, ?4, ?5)",
        params![
            layout.version(),
            layout.tables_digest(),
            layout.code_digest(),
            PROGRAM,
            serde_json::json!(objects).to_string()
        ],
    )?;
    Ok(())
}

fn views_and_triggers(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(
        "SELECT type || ' IF EXISTS \"' || replace(name, '\"', '\"\"') || '\"' FROM sqlite_schema \
         WHERE type IN ('view', 'trigger')",
    )?;
    statement.query_map([], |row| row.get(0))?.collect()
}

/// Keeps errors of a locked or full disk as they are: only SQL that cannot be carried out is a fault of the layout.
fn failed(found: i64, cause: rusqlite::Error) -> Error {
    match cause.sqlite_error_code() {
        Some(rusqlite::ErrorCode::Unknown) | None => LayoutError::Failed { found, cause },
        Some(_) => LayoutError::Database(cause),
    }
}
