//! Submitting to a SQLite store within the caller's own transaction.

use std::sync::Arc;

use gristmill_model::{After, BatchId, JobState, ManualClock, NewBatch, Timestamp};
use gristmill_store::{Change, JobFilter, Store, StoreError, WorkSeen};
use gristmill_store_conformance::fixture::*;
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::{Connection, TransactionBehavior};

fn open(folder: &tempfile::TempDir, name: &str) -> SqliteStore {
    let clock = Arc::new(ManualClock::new(Timestamp(1_000_000)));
    SqliteStore::open(folder.path().join(name), SqliteOptions::new(clock, 1)).unwrap()
}

/// Jobs and the caller's rows are stored together or not at all; ids continue as if the store had given them.
#[tokio::test]
async fn jobs_come_with_the_callers_rows() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder, "jobs.db");
    let before = submit(&store, batch(1)).await;
    let mut connection = Connection::open(store.path()).unwrap();
    connection
        .execute("CREATE TABLE picture (id INTEGER PRIMARY KEY)", [])
        .unwrap();
    let seen = WorkSeen::default();
    store.wait_for_work(&seen).await;
    for commit in [false, true] {
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .unwrap();
        transaction
            .execute("INSERT INTO picture DEFAULT VALUES", [])
            .unwrap();
        let waiting = NewBatch {
            after: vec![After::earlier(0), After::batch(before)],
            ..batch_of("thumbnail", 2)
        };
        let ids = store.submit_within(&transaction, &[batch(3), waiting]).unwrap();
        assert_eq!(ids, [BatchId(before.0 + 1), BatchId(before.0 + 2)]);
        if commit {
            transaction.commit().unwrap()
        } else {
            transaction.rollback().unwrap()
        }
        let pictures: i64 = connection
            .query_row("SELECT count(*) FROM picture", [], |row| row.get(0))
            .unwrap();
        let counts = store.counts(&JobFilter::default()).await.unwrap();
        let expected = if commit { (1, 4, 2) } else { (0, 1, 0) };
        assert_eq!((pictures, counts.waiting, counts.blocked), expected);
    }
    store.work_came();
    store.wait_for_work(&seen).await;
    let next = submit(&store, batch(1)).await;
    assert_eq!(next, BatchId(before.0 + 3));
    let worker = worker(&store).await;
    let lease = claim(&store, worker, 10).await.unwrap();
    let reports = lease.slices.iter().map(completed).collect();
    let freed = exchange(&store, worker, reports, Some(want(10))).await;
    assert_eq!(held(&freed.lease), [format!("{}:0-1", before.0 + 2)]);
    let shown = store.job(job(BatchId(before.0 + 2), 1)).await.unwrap().unwrap();
    assert_eq!(
        (shown.row.state, &*shown.row.kind),
        (JobState::Running, "thumbnail")
    );
}

/// Invalid input is refused before anything is written.
#[tokio::test]
async fn wrong_connections_and_batches_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder, "jobs.db");
    let other = open(&folder, "other.db");
    let connection = Connection::open(store.path()).unwrap();
    let says = |refused: Result<Vec<BatchId>, StoreError>| refused.unwrap_err().to_string();
    assert!(says(store.submit_within(&connection, &[batch(1)])).contains("BEGIN IMMEDIATE"));
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(says(other.submit_within(&connection, &[batch(1)])).contains("other.db"));
    let waiting = NewBatch {
        after: vec![After::batch(BatchId(99))],
        ..batch(1)
    };
    assert!(says(store.submit_within(&connection, &[waiting])).contains("names batch 99"));
    connection.execute_batch("COMMIT").unwrap();
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().total(), 0);
    let memory = Connection::open_in_memory().unwrap();
    memory.execute_batch("BEGIN").unwrap();
    assert!(says(store.submit_within(&memory, &[batch(1)])).contains("jobs.db"));
}

/// The writes of a report are stored with the outcomes, once; a failing write fails its own job alone.
#[tokio::test]
async fn handlers_write_with_their_reports() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder, "jobs.db");
    let connection = Connection::open(store.path()).unwrap();
    connection
        .execute(
            "CREATE TABLE picture (id INTEGER PRIMARY KEY, size INTEGER NOT NULL)",
            [],
        )
        .unwrap();
    let pictures = async || -> Vec<i64> {
        let mut statement = connection.prepare("SELECT id FROM picture ORDER BY id").unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let insert = "INSERT INTO picture (id, size) SELECT value ->> 'id', value ->> 'size' FROM json_each(?1)";
    writes_go_with_their_reports(&store, insert, pictures).await;

    // Only statements that change rows, with one parameter.
    let worker = worker(&store).await;
    for (sql, says) in [
        ("COMMIT", "must be an INSERT"),
        ("SELECT ?1", "must be an INSERT"),
        ("DELETE FROM picture", "one parameter"),
        ("DELETE FROM absent WHERE id = ?1", "no such table"),
    ] {
        let id = submit(&store, batch(1)).await;
        let lease = claim(&store, worker, 1).await.unwrap();
        let report = with_writes(completed(&lease.slices[0]), sql, |_| "1".to_owned());
        let receipt = &exchange(&store, worker, vec![report], None).await.receipts[0];
        assert_eq!(receipt.failed, positions("0"), "{sql}");
        let shown = store.job(job(id, 0)).await.unwrap().unwrap();
        assert!(shown.failures[0].error.message.contains(says), "{shown:?}");
        change(&store, job(id, 0), Change::Cancel).await;
    }
}
