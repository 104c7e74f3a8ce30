//! Submits over a connection of another library, such as Python's module `sqlite3`, to the store's file.
//!
//! The code of every submit writes the rows into an empty store in memory, which first gets the rows of the file that
//! this code reads. The written rows are then inserted over the other connection. So there is one way in which batches
//! become rows, and the other library needs only statements and their parameters.
//!
//! Two libraries of SQLite in one process must not have the same file open: the operating system gives the locks of a
//! file to the process, so each would take the locks of the other for its own. A process that submits in this way must
//! not have a [`SqliteStore`](crate::SqliteStore) of the file.

use std::path::Path;

use gristmill_model::{BatchId, NewBatch, SplitMix64, Timestamp};
use gristmill_store::StoreError;
use gristmill_store::hook::lanes_of_hooks;
use gristmill_store::integrity::lane_sum;
use gristmill_store::rules::check::check_batches;
use gristmill_store::rules::dependency::stored_prerequisites;
use gristmill_store::rules::lanes::LaneName;
pub use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

use crate::columns::{POSITION_BITS, report_id};
use crate::failure::{Failure, Result};
use crate::open;
use crate::transaction::{Memory, Transaction};

/// A row, with its columns in the order of the statement.
pub type Row = Vec<Value>;

/// A connection of another library, within a transaction.
pub trait ForeignConnection {
    /// An error of the connection, or of the submit.
    type Error: From<StoreError>;

    /// Returns the rows of a query. Its parameters are the question marks of the statement.
    ///
    /// # Errors
    ///
    /// Those of the other library.
    fn query(&mut self, sql: &str, parameters: Row) -> std::result::Result<Vec<Row>, Self::Error>;

    /// Runs an INSERT once for each row.
    ///
    /// # Errors
    ///
    /// Those of the other library.
    fn insert(&mut self, sql: &str, rows: Vec<Row>) -> std::result::Result<(), Self::Error>;
}

/// Submits over connections of other libraries.
#[derive(Debug)]
pub struct ForeignSubmitter {
    /// An empty store; writes to it are always rolled back.
    scratch: Connection,
    tables: Vec<Table>,
    /// The layout of this program.
    layout: String,
}

/// A table that a submit may write to.
#[derive(Debug)]
struct Table {
    select: String,
    insert: String,
}

/// The rows of the file that a submit reads.
#[derive(Debug, Default)]
struct Found {
    next_batch_id: i64,
    /// Id, queue, kind and group.
    lanes: Vec<Row>,
    /// Id and count of awaited batches.
    prerequisites: Vec<Row>,
    /// Id, state and positions of their reports.
    endings: Vec<Row>,
}

impl ForeignSubmitter {
    /// Makes a submitter, which can be used for any file.
    ///
    /// # Errors
    ///
    /// [`StoreError::Open`] if there is no memory.
    pub fn new() -> std::result::Result<Self, StoreError> {
        let path = Path::new(":memory:");
        let made = open::open_in_memory(path).and_then(|scratch| {
            let tables = tables(&scratch)?;
            Ok((scratch, tables))
        });
        let (scratch, tables) = made.map_err(|failure| failure.at(path, 0))?;
        Ok(ForeignSubmitter {
            scratch,
            tables,
            layout: open::LAYOUT.id(),
        })
    }

    /// Stores batches within the transaction of the connection, and returns their ids. The jobs exist once it commits;
    /// after a rollback they never existed. After an error, the caller must roll the transaction back, at least to
    /// before this call.
    ///
    /// The connection must be to the store's file at `path`; `now` is the current time. Waiting workers find the jobs
    /// when they next look, within 100 ms.
    ///
    /// # Errors
    ///
    /// Those of the connection, those of [`submit`](gristmill_store::Store::submit), and [`StoreError::InvalidInput`]
    /// for cached batches, which may need values of any earlier job, and for a file without a store.
    pub fn submit<C: ForeignConnection>(
        &self,
        connection: &mut C,
        path: &Path,
        now: Timestamp,
        batches: &[NewBatch],
    ) -> std::result::Result<Vec<BatchId>, C::Error> {
        check_batches(batches)?;
        if batches.iter().any(|batch| batch.options.cached_ms.is_some()) {
            let reason =
                "cached values are not for submits over a connection of another library: omit `cached_ms`";
            return Err(StoreError::InvalidInput(reason.to_owned()).into());
        }
        self.check_layout(connection, path)?;
        let found = find(connection, path, batches)?;
        let written = self.write(batches, now, &found);
        let (ids, rows) = written.map_err(|failure| failure.at(path, 0))?;
        for (table, rows) in self.tables.iter().zip(rows) {
            if !rows.is_empty() {
                connection.insert(&table.insert, rows)?;
            }
        }
        Ok(ids)
    }

    /// Refuses a file without a store, and one whose rows another version of this program writes.
    fn check_layout<C: ForeignConnection>(
        &self,
        connection: &mut C,
        path: &Path,
    ) -> std::result::Result<(), C::Error> {
        let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'layout'";
        if connection.query(sql, Row::new())?.is_empty() {
            return Err(StoreError::InvalidInput(format!(
                "{} has no store: make it before, by the first use of the store",
                path.display()
            ))
            .into());
        }
        let sql = "SELECT version || '-' || tables || '-' || code FROM layout";
        if text(&connection.query(sql, Row::new())?) == Some(&self.layout) {
            Ok(())
        } else {
            Err(StoreError::LayoutChanged { path: path.into() }.into())
        }
    }

    /// The ids of the batches, and the rows that their submit writes, by table.
    fn write(
        &self,
        batches: &[NewBatch],
        now: Timestamp,
        found: &Found,
    ) -> Result<(Vec<BatchId>, Vec<Vec<Row>>)> {
        // Rolled back when it is dropped.
        let rolled_back = self.scratch.unchecked_transaction()?;
        self.put(found)?;
        let mut memory = Memory::new(Box::new(SplitMix64::new(0)));
        let ids = Transaction::new(&self.scratch, &mut memory, now).submit(batches, None)?;
        self.take_back(found)?;
        let rows: Result<_> = self.tables.iter().map(|table| self.rows(table)).collect();
        let rows = rows?;
        drop(rolled_back);
        Ok((ids, rows))
    }

    /// Puts the found rows into the empty store.
    fn put(&self, found: &Found) -> Result<()> {
        self.execute(
            "UPDATE sequence SET next_value = ? WHERE name = 'batch'",
            params![found.next_batch_id],
        )?;
        for lane in &found.lanes {
            let names = [&lane[1], &lane[2], &lane[3]].map(|name| match name {
                Value::Text(name) => name.as_str(),
                _ => "",
            });
            let sql = "INSERT INTO lane (id, queue, kind, job_group, sum) VALUES (?, ?, ?, ?, ?)";
            self.execute(
                sql,
                params![lane[0], names[0], names[1], names[2], lane_sum(names)],
            )?;
        }
        for batch in &found.prerequisites {
            let sql = "INSERT INTO batch (id, count, lane_id, priority, submitted_at, run_at, sum, payloads) \
                       VALUES (?, ?, 0, 0, 0, 0, 0, '')";
            self.execute(sql, params_from_iter(batch))?;
        }
        for report in &found.endings {
            let sql = "INSERT INTO report (id, state, positions, attempt, count, finished_at) VALUES (?, ?, ?, 0, 0, 0)";
            self.execute(sql, params_from_iter(report))?;
        }
        Ok(())
    }

    /// Removes the found rows, so that only written ones remain.
    fn take_back(&self, found: &Found) -> Result<()> {
        for lane in &found.lanes {
            self.execute("DELETE FROM lane WHERE id = ?", params![lane[0]])?;
        }
        self.execute("DELETE FROM batch WHERE id < ?", params![found.next_batch_id])?;
        let first_report = found.next_batch_id << POSITION_BITS;
        self.execute("DELETE FROM report WHERE id < ?", params![first_report])
    }

    fn execute(&self, sql: &str, parameters: impl rusqlite::Params) -> Result<()> {
        self.scratch.prepare_cached(sql)?.execute(parameters)?;
        Ok(())
    }

    fn rows(&self, table: &Table) -> Result<Vec<Row>> {
        let mut statement = self.scratch.prepare_cached(&table.select)?;
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| (0..columns).map(|column| row.get(column)).collect())?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

/// Reads the rows that the submit needs. They do not change until the transaction ends: if another process writes
/// meanwhile, SQLite refuses the first write of this transaction.
fn find<C: ForeignConnection>(
    connection: &mut C,
    path: &Path,
    batches: &[NewBatch],
) -> std::result::Result<Found, C::Error> {
    let next = connection.query(
        "SELECT max(next_value, (SELECT coalesce(max(id), 0) + 1 FROM batch)) FROM sequence WHERE name = 'batch'",
        Row::new(),
    )?;
    let Some(Value::Integer(next_batch_id)) = next.first().and_then(|row| row.first()) else {
        let failure = Failure::Damaged("the sequence of batches is missing".to_owned());
        return Err(failure.at(path, 0).into());
    };
    let mut found = Found {
        next_batch_id: *next_batch_id,
        lanes: lanes(connection, batches)?,
        ..Found::default()
    };
    for prerequisite in stored_prerequisites(batches).into_keys() {
        let sql = "SELECT id, count FROM batch WHERE id = ?";
        let of_batch = connection.query(sql, vec![prerequisite.0.into()])?;
        found.prerequisites.extend(of_batch);
        let first = report_id(prerequisite, 0);
        let last = report_id(BatchId(prerequisite.0 + 1), 0) - 1;
        let sql = "SELECT id, state, positions FROM report WHERE id BETWEEN ? AND ?";
        let of_reports = connection.query(sql, vec![first.into(), last.into()])?;
        found.endings.extend(of_reports);
    }
    Ok(found)
}

/// The lanes of the batches; all lanes if one of these is new.
fn lanes<C: ForeignConnection>(
    connection: &mut C,
    batches: &[NewBatch],
) -> std::result::Result<Vec<Row>, C::Error> {
    let mut names: Vec<LaneName<'_>> = Vec::new();
    for batch in batches {
        for name in std::iter::once(LaneName::of(batch)).chain(lanes_of_hooks(batch)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let mut lanes = Vec::new();
    for name in &names {
        let parameters = [name.queue, name.kind, name.group].map(|name| Value::Text(name.to_owned()));
        let sql =
            "SELECT id, queue, kind, job_group FROM lane WHERE queue = ? AND kind = ? AND job_group = ?";
        lanes.extend(connection.query(sql, parameters.into())?);
    }
    if lanes.len() == names.len() {
        Ok(lanes)
    } else {
        connection.query(
            "SELECT id, queue, kind, job_group FROM lane ORDER BY id",
            Row::new(),
        )
    }
}

/// The text in the first column of the first row.
fn text(rows: &[Row]) -> Option<&String> {
    match rows.first()?.first()? {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// The tables that a submit may write to, in the order of their creation: all except those that have rows in an empty store.
fn tables(scratch: &Connection) -> Result<Vec<Table>> {
    let mut statement = scratch.prepare(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
         AND name NOT IN ('layout', 'sequence') ORDER BY rowid",
    )?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?;
    let mut tables = Vec::new();
    for name in names {
        let name = name?;
        let mut statement = scratch.prepare("SELECT name FROM pragma_table_info(?)")?;
        let columns = statement.query_map([&name], |row| Ok(format!("\"{}\"", row.get::<_, String>(0)?)))?;
        let columns: Vec<String> = columns.collect::<rusqlite::Result<_>>()?;
        let (marks, columns) = (vec!["?"; columns.len()].join(", "), columns.join(", "));
        tables.push(Table {
            select: format!("SELECT {columns} FROM \"{name}\""),
            insert: format!("INSERT INTO \"{name}\" ({columns}) VALUES ({marks})"),
        });
    }
    Ok(tables)
}
