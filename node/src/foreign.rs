//! Submits over connections of other libraries of SQLite, within a transaction of the caller's.

use std::path::Path;

use gristmill_model::Timestamp;
use gristmill_operations::SubmitRequest;
use gristmill_operations::read::read_request;
use gristmill_operations::submit::Batches;
use gristmill_store::StoreError;
use gristmill_store_sqlite::{ForeignConnection, ForeignSubmitter, Row, Value};
use napi::bindgen_prelude::{FnArgs, Function};
use napi::{Error, Result};
use napi_derive::napi;

use crate::run::RunBatch;
use crate::{refusal, store_error};

/// Runs a statement with rows of parameters; returns the rows of a query.
type Statement<'a> = Function<'a, FnArgs<(String, String)>, String>;

/// JavaScript's functions over the connection.
struct Statements<'a> {
    query: Statement<'a>,
    insert: Statement<'a>,
}

/// An error of the submit, or of JavaScript.
struct Refusal(Error);

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Refusal(store_error(error))
    }
}

impl ForeignConnection for Statements<'_> {
    type Error = Refusal;

    fn query(&mut self, sql: &str, parameters: Row) -> std::result::Result<Vec<Row>, Refusal> {
        let rows = self
            .query
            .call(FnArgs::from((sql.to_owned(), to_json(vec![parameters])?)));
        from_json(&rows.map_err(Refusal)?)
    }

    fn insert(&mut self, sql: &str, rows: Vec<Row>) -> std::result::Result<(), Refusal> {
        let inserted = self.insert.call(FnArgs::from((sql.to_owned(), to_json(rows)?)));
        inserted.map(drop).map_err(Refusal)
    }
}

/// Rows as JSON. A letter before each value tells its type: JavaScript's numbers hold not all integers.
fn to_json(rows: Vec<Row>) -> std::result::Result<String, Refusal> {
    let value = |value: Value| match value {
        Value::Null => None,
        Value::Integer(number) => Some(format!("i{number}")),
        Value::Real(number) => Some(format!("r{number}")),
        Value::Text(text) => Some(format!("t{text}")),
        Value::Blob(bytes) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            Some(format!("b{digits}"))
        }
    };
    let rows: Vec<Vec<Option<String>>> = rows
        .into_iter()
        .map(|row| row.into_iter().map(value).collect())
        .collect();
    serde_json::to_string(&rows).map_err(|error| Refusal(store_error(error)))
}

/// Rows of a query: the store's own are numbers and text.
fn from_json(rows: &str) -> std::result::Result<Vec<Row>, Refusal> {
    let rows: Vec<Vec<Option<String>>> =
        serde_json::from_str(rows).map_err(|error| Refusal(store_error(error)))?;
    let value = |value: Option<String>| match value.as_deref().map(|text| text.split_at(1)) {
        None => Ok(Value::Null),
        Some(("i", number)) => number.parse().map(Value::Integer).map_err(store_error),
        Some((_, text)) => Ok(Value::Text(text.to_owned())),
    };
    rows.into_iter()
        .map(|row| {
            row.into_iter()
                .map(value)
                .collect::<Result<Row>>()
                .map_err(Refusal)
        })
        .collect()
}

/// Submits the jobs of a request within the transaction of a connection to the store's file, at `place`.
#[napi]
pub fn submit_over(
    request: String,
    place: String,
    now_ms: i64,
    query: Statement<'_>,
    insert: Statement<'_>,
) -> Result<Vec<RunBatch>> {
    let now = Timestamp(now_ms);
    let request: SubmitRequest<'_> = read_request(request.as_bytes()).map_err(store_error)?;
    let (mut cutter, after) = request.cut(now).map_err(refusal)?;
    cutter.wait(after);
    let Batches::Plain(batches) = cutter.finish().map_err(refusal)? else {
        return Err(store_error(
            "`key` is not for submits within a transaction of SQLite: omit it",
        ));
    };
    let submitter = ForeignSubmitter::new().map_err(store_error)?;
    let ids = submitter.submit(
        &mut Statements { query, insert },
        Path::new(&place),
        now,
        &batches,
    );
    let ids = ids.map_err(|refusal| refusal.0)?;
    let counts = batches.iter().map(|batch| batch.payloads.count());
    Ok(ids
        .into_iter()
        .zip(counts)
        .map(|(batch, count)| RunBatch {
            batch: batch.0,
            count,
        })
        .collect())
}
