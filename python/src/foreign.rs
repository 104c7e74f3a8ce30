//! Submits over connections of Python's module `sqlite3`.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gristmill_model::{Clock, NewBatch, SystemClock, Timestamp};
use gristmill_store::StoreError;
use gristmill_store_sqlite::{ForeignConnection, ForeignSubmitter, Row, Value};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::engine::Common;
use crate::feeder::pack;
use crate::store_error;

/// Python's functions over a cursor of the connection.
struct Statements<'py> {
    /// Returns the rows of a statement with parameters.
    query: Bound<'py, PyAny>,
    /// Runs a statement for each of a list of rows.
    insert: Bound<'py, PyAny>,
}

/// An error of the submit, or of Python.
enum Refusal {
    /// The submit.
    Submit(StoreError),
    /// Python.
    Raised(PyErr),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Refusal::Submit(error)
    }
}

impl From<PyErr> for Refusal {
    fn from(raised: PyErr) -> Self {
        Refusal::Raised(raised)
    }
}

impl From<Refusal> for PyErr {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Submit(error) => store_error(error),
            Refusal::Raised(raised) => raised,
        }
    }
}

impl ForeignConnection for Statements<'_> {
    type Error = Refusal;

    fn query(&mut self, sql: &str, parameters: Row) -> Result<Vec<Row>, Refusal> {
        let py = self.query.py();
        let rows = self.query.call1((sql, to_python(py, parameters)?))?;
        let mut read = Vec::new();
        for row in rows.try_iter().map_err(Refusal::from)? {
            let mut values = Row::new();
            for value in row?.try_iter()? {
                values.push(from_python(&value?)?);
            }
            read.push(values);
        }
        Ok(read)
    }

    fn insert(&mut self, sql: &str, rows: Vec<Row>) -> Result<(), Refusal> {
        let py = self.insert.py();
        let list = PyList::empty(py);
        for row in rows {
            list.append(to_python(py, row)?)?;
        }
        self.insert.call1((sql, list))?;
        Ok(())
    }
}

fn to_python(py: Python<'_>, row: Row) -> PyResult<Bound<'_, PyTuple>> {
    let mut values: Vec<Bound<'_, PyAny>> = Vec::with_capacity(row.len());
    for value in row {
        values.push(match value {
            Value::Null => py.None().into_bound(py),
            Value::Integer(number) => number.into_pyobject(py)?.into_any(),
            Value::Real(number) => number.into_pyobject(py)?.into_any(),
            Value::Text(text) => text.into_pyobject(py)?.into_any(),
            Value::Blob(bytes) => PyBytes::new(py, &bytes).into_any(),
        });
    }
    PyTuple::new(py, values)
}

/// A value of a store's row: a number or text. Text is bytes if the connection's `text_factory` says so.
fn from_python(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(number) = value.extract::<i64>() {
        return Ok(Value::Integer(number));
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        let text = String::from_utf8_lossy(bytes.as_bytes());
        return Ok(Value::Text(text.into_owned()));
    }
    value.extract().map(Value::Text).map_err(|_| {
        PyTypeError::new_err("the connection's text_factory makes neither str nor bytes of text: give a connection with another one")
    })
}

/// The unused submitters: a call takes one, and no call waits for another. At most as many are kept as were in use at
/// once, by threads with a transaction each; SQLite lets one of them write to a file.
static IDLE: Mutex<Vec<ForeignSubmitter>> = Mutex::new(Vec::new());

fn idle() -> MutexGuard<'static, Vec<ForeignSubmitter>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Submits payloads within the transaction of a connection of `sqlite3` to the store's file, at `place`, and returns
/// the batches with their numbers of jobs. The functions run statements on the connection: `query(sql, parameters)`
/// returns the rows of a query, `insert(sql, rows)` inserts rows. `now_ms` is the time of a test.
#[pyfunction]
#[pyo3(signature = (common, payloads, to_plain, place, query, insert, now_ms=None))]
pub fn submit_over(
    common: Common,
    payloads: Vec<Bound<'_, PyAny>>,
    to_plain: Bound<'_, PyAny>,
    place: PathBuf,
    query: Bound<'_, PyAny>,
    insert: Bound<'_, PyAny>,
    now_ms: Option<i64>,
) -> PyResult<Vec<(i64, u32)>> {
    let now = now_ms.map_or_else(|| SystemClock.now(), Timestamp);
    let template = common.read(now)?;
    let payloads = pack(&payloads, &to_plain, None)?.into_iter();
    let batches: Vec<NewBatch> = payloads
        .map(|payloads| NewBatch {
            payloads,
            ..template.clone()
        })
        .collect();
    let taken = idle().pop();
    let submitter = match taken {
        Some(submitter) => submitter,
        None => ForeignSubmitter::new().map_err(store_error)?,
    };
    let mut statements = Statements { query, insert };
    let ids = submitter.submit(&mut statements, &place, now, &batches);
    idle().push(submitter);
    let counts = batches.iter().map(|batch| batch.payloads.count());
    Ok(ids?.into_iter().map(|batch| batch.0).zip(counts).collect())
}
