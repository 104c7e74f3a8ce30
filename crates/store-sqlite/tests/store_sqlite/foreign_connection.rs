//! Submits over a connection of another library: here of `rusqlite`, which the store does not know.

use std::sync::Arc;

use gristmill_model::{After, BatchId, JobState, ManualClock, NewBatch, OnFailure, Tag, Timestamp};
use gristmill_store::{JobFilter, Store, StoreError};
use gristmill_store_conformance::fixture::*;
use gristmill_store_sqlite::{ForeignConnection, ForeignSubmitter, Row, SqliteOptions, SqliteStore};
use rusqlite::{Connection, TransactionBehavior, params_from_iter};

const NOW: Timestamp = Timestamp(1_000_000);

/// Another library's connection.
struct Foreign<'c>(&'c Connection);

#[derive(Debug)]
enum Refusal {
    Submit(StoreError),
    Connection(rusqlite::Error),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Refusal::Submit(error)
    }
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Refusal::Connection(error)
    }
}

impl ForeignConnection for Foreign<'_> {
    type Error = Refusal;

    fn query(&mut self, sql: &str, parameters: Row) -> Result<Vec<Row>, Refusal> {
        let mut statement = self.0.prepare(sql)?;
        let columns = statement.column_count();
        let rows = statement.query_map(params_from_iter(parameters), |row| {
            (0..columns).map(|column| row.get(column)).collect()
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn insert(&mut self, sql: &str, rows: Vec<Row>) -> Result<(), Refusal> {
        let mut statement = self.0.prepare(sql)?;
        for row in rows {
            statement.execute(params_from_iter(row))?;
        }
        Ok(())
    }
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(NOW))
}

fn open(folder: &tempfile::TempDir, name: &str) -> SqliteStore {
    SqliteStore::open(folder.path().join(name), SqliteOptions::new(clock(), 1)).unwrap()
}

/// Submits over a connection to the store's file.
fn submit_over(
    store: &SqliteStore,
    connection: &Connection,
    batches: &[NewBatch],
) -> Result<Vec<BatchId>, Refusal> {
    let submitter = ForeignSubmitter::new().unwrap();
    submitter.submit(&mut Foreign(connection), store.path(), NOW, batches)
}

/// Submits in one transaction.
fn submit_foreign(store: &SqliteStore, batches: &[NewBatch]) -> Vec<BatchId> {
    let mut connection = Connection::open(store.path()).unwrap();
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    let ids = submit_over(store, &transaction, batches).unwrap();
    transaction.commit().unwrap();
    ids
}

/// All rows of all tables, as text.
fn rows(store: &SqliteStore) -> Vec<String> {
    let connection = Connection::open(store.path()).unwrap();
    let mut tables = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        .unwrap();
    let tables = tables
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<Vec<String>, _>>()
        .unwrap();
    let mut all = Vec::new();
    for table in tables {
        let found = Foreign(&connection).query(&format!("SELECT * FROM \"{table}\""), Row::new());
        all.extend(found.unwrap().iter().map(|row| format!("{table}: {row:?}")));
    }
    all
}

/// Batches with everything that a batch can have, for a store in which batch 1 has completed, batch 2 is dead and batch
/// 3 waits.
fn varied() -> Vec<NewBatch> {
    let mut later = NewBatch {
        queue: "elsewhere".to_owned(),
        tags: vec![Tag::all("customer", "7"), Tag::all("city", "Åbo")],
        ..batch_of("thumbnail", 3)
    };
    later.options.run_at = Some(NOW.plus_ms(1_000));
    later.options.priority = 7;
    later.options.group = Some("group".into());
    let after = |after| NewBatch { after, ..batch(2) };
    vec![
        batch(1_000),
        later,
        after(vec![After::earlier(0), After::batch(BatchId(3))]),
        after(vec![After::batch(BatchId(1))]),
        after(vec![After::batch(BatchId(2))]),
        after(vec![After::batch(BatchId(2)).on_failure(OnFailure::Fail)]),
        after(vec![After::batch(BatchId(2)).on_failure(OnFailure::Ignore)]),
        after(vec![After::job(job(BatchId(1), 1))]),
    ]
}

/// Stores a completed batch, a dead one and a waiting one.
async fn prepare(store: &SqliteStore) {
    let worker = worker(store).await;
    for (batch, dies) in [(batch(2), false), (once(2), true)] {
        submit(store, batch).await;
        let slice = only(claim(store, worker, 10).await);
        let report = if dies {
            failed_at(&slice, &positions("0-1"), &error())
        } else {
            completed(&slice)
        };
        exchange(store, worker, vec![report], None).await;
    }
    submit(store, batch(1)).await;
}

/// A submit over another connection writes the same rows as the store itself, to the last column.
#[tokio::test]
async fn the_rows_are_those_of_any_submit() {
    let folder = tempfile::tempdir().unwrap();
    let (own, foreign) = (open(&folder, "own.db"), open(&folder, "foreign.db"));
    for store in [&own, &foreign] {
        prepare(store).await;
    }
    for _ in 0..2 {
        let ids = own.submit(varied(), None).await.unwrap();
        assert_eq!(submit_foreign(&foreign, &varied()), ids);
    }
    let written_rows = |store| -> Vec<String> {
        // Heartbeats of workers have the machine's clock.
        let all = rows(store).into_iter();
        all.filter(|row| !row.starts_with("worker: ")).collect()
    };
    let rows = written_rows(&own);
    assert!(rows.len() > 40, "{rows:#?}");
    assert_eq!(written_rows(&foreign), rows);
    assert_eq!(states(&foreign, BatchId(8)).await, [JobState::Cancelled; 2]);
    no_damage(&foreign).await;
}

/// Jobs and the caller's rows are stored together or not at all; the store's own submits and claims continue after them.
#[tokio::test]
async fn jobs_come_with_the_callers_rows() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder, "jobs.db");
    let mut connection = Connection::open(store.path()).unwrap();
    connection
        .execute("CREATE TABLE picture (id INTEGER PRIMARY KEY)", [])
        .unwrap();
    let worker = worker(&store).await;
    for commit in [false, true] {
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .unwrap();
        let picture = "INSERT INTO picture DEFAULT VALUES";
        transaction.execute(picture, []).unwrap();
        let batches = [batch_of("new", 3)];
        let ids = submit_over(&store, &transaction, &batches).unwrap();
        let more = submit_over(&store, &transaction, &batches).unwrap();
        assert_eq!((&ids[..], &more[..]), (&[BatchId(1)][..], &[BatchId(2)][..]));
        if commit {
            transaction.commit().unwrap()
        } else {
            transaction.rollback().unwrap()
        }
        let sql = "SELECT count(*) FROM picture";
        let pictures: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
        let counts = store.counts(&JobFilter::default()).await.unwrap();
        assert_eq!((pictures, counts.waiting), if commit { (1, 6) } else { (0, 0) });
    }
    assert_eq!(submit(&store, batch_of("other", 1)).await, BatchId(3));
    assert_eq!(
        held(&claim(&store, worker, 10).await).join(" "),
        "1:0-2 2:0-2 3:0"
    );
}

/// Invalid input is refused before anything is written, and does not affect the next submit.
#[tokio::test]
async fn wrong_batches_and_layouts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder, "jobs.db");
    let connection = Connection::open(store.path()).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refusal = |batch: NewBatch| match submit_over(&store, &connection, &[batch]) {
        Err(Refusal::Submit(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let waiting = NewBatch {
        after: vec![After::batch(BatchId(99))],
        ..batch(1)
    };
    assert!(refusal(waiting).contains("batch 99"));
    let mut cached = batch(1);
    cached.options.cached_ms = Some(1_000);
    assert!(refusal(cached).contains("cached_ms"));
    submit_over(&store, &connection, &[batch(1)]).unwrap();
    let other_layout = "UPDATE layout SET code = 'other'";
    connection.execute(other_layout, []).unwrap();
    assert!(refusal(batch(1)).contains("changed the layout"));
    connection.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().total(), 0);

    let empty = Connection::open_in_memory().unwrap();
    match submit_over(&store, &empty, &[batch(1)]) {
        Err(Refusal::Submit(error)) => assert!(error.to_string().contains("has no store"), "{error}"),
        other => panic!("{other:?}"),
    }
}

/// SQLite refuses a transaction that has read before another one wrote, so that no id is given twice.
#[tokio::test]
async fn a_snapshot_that_is_stale_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder, "jobs.db");
    let connection = Connection::open(store.path()).unwrap();
    connection.execute_batch("BEGIN DEFERRED").unwrap();
    connection
        .query_row("SELECT count(*) FROM batch", [], |row| row.get::<_, i64>(0))
        .unwrap();
    let first = submit(&store, batch(1)).await;
    match submit_over(&store, &connection, &[batch(1)]) {
        Err(Refusal::Connection(error)) => {
            assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy));
        }
        other => panic!("{other:?}"),
    }
    connection.execute_batch("ROLLBACK; BEGIN IMMEDIATE").unwrap();
    let ids = submit_over(&store, &connection, &[batch(1)]).unwrap();
    connection.execute_batch("COMMIT").unwrap();
    assert_eq!(ids, [BatchId(first.0 + 1)]);
}
