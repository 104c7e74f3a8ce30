//! Submits batches within a transaction of the caller, from Rust.

use std::sync::Arc;

use gristmill_model::{After, BatchId, NewBatch, Rejected, SystemClock};
use gristmill_store::{Change, JobFilter, Store, StoreError};
use gristmill_store_conformance::fixture::*;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::Client;

use super::case::{Case, texts};

/// Jobs and the caller's rows are stored together or not at all.
#[tokio::test]
async fn jobs_come_with_the_callers_rows() {
    let case = Case::new().await;
    let mut client = case.client().await;
    let before = submit(&case.store, batch(1)).await;
    client
        .batch_execute("CREATE TABLE picture (id integer)")
        .await
        .unwrap();
    let mut last = before;
    for commit in [false, true] {
        let transaction = client.transaction().await.unwrap();
        transaction
            .execute("INSERT INTO picture VALUES (7)", &[])
            .await
            .unwrap();
        let rejecting = NewBatch {
            rejected: vec![Rejected {
                position: 1,
                error: error(),
            }],
            ..batch(2)
        };
        let waiting = NewBatch {
            after: vec![After::earlier(0), After::batch(before)],
            ..batch_of("thumbnail", 2)
        };
        let in_vain = NewBatch {
            after: vec!["1:0".parse::<After>().unwrap(), After::earlier(1)],
            ..batch(1)
        };
        let batches = vec![batch(3), rejecting, waiting, in_vain];
        let ids = case.store.submit_within(&transaction, batches).await.unwrap();
        assert_eq!(ids.len(), 4);
        last = ids[2];
        if commit {
            transaction.commit().await.unwrap()
        } else {
            transaction.rollback().await.unwrap()
        }
        let pictures = texts(&client, "SELECT id::text FROM picture", &[]).await;
        let counts = case.store.counts(&JobFilter::default()).await.unwrap();
        let expected = if commit { (1, 5, 3, 1) } else { (0, 1, 0, 0) };
        assert_eq!(
            (pictures.len(), counts.waiting, counts.blocked, counts.dead),
            expected
        );
    }
    case.catch_up();
    let worker = worker(&case.store).await;
    let lease = claim(&case.store, worker, 10).await.unwrap();
    let reports = lease.slices.iter().map(completed).collect();
    let freed = exchange(&case.store, worker, reports, Some(want(10))).await;
    assert_eq!(held(&freed.lease), [format!("{last}:0-1")]);
    let counts = case.store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.cancelled, counts.blocked), (1, 0));
}

/// A batch with missing prerequisites is refused, and nothing of the submit is stored.
#[tokio::test]
async fn what_there_is_not_is_refused() {
    let case = Case::new().await;
    let mut client = case.client().await;
    let transaction = client.transaction().await.unwrap();
    let waiting = NewBatch {
        after: vec![After::batch(BatchId(99))],
        ..batch(1)
    };
    let refused = case
        .store
        .submit_within(&transaction, vec![batch(1), waiting])
        .await;
    assert!(matches!(
        refused,
        Err(StoreError::PrerequisiteUnknown(BatchId(99)))
    ));
    transaction.commit().await.unwrap();
    let counts = case.store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!(counts.total(), 0);
}

/// Tested in a session of its own, and where each transaction may be in another session.
#[tokio::test]
async fn handlers_write_on_any_connection() {
    let case = Case::new().await;
    let client = case.client().await;
    for pooler in ["session", "transaction"] {
        let url = format!("{}&pooler={pooler}", case.url);
        handlers_write_with_their_reports(&url, &client).await;
    }
}

/// The writes of a report are stored with the outcomes, once; a failing write fails its own job alone.
async fn handlers_write_with_their_reports(url: &str, client: &Client) {
    let clock = Arc::new(SystemClock);
    let store = PostgresStore::open(url, PostgresOptions::new(clock, 7))
        .await
        .unwrap();
    client
        .batch_execute(
            "DROP TABLE IF EXISTS public.picture; \
             CREATE TABLE public.picture (id integer PRIMARY KEY, size integer NOT NULL)",
        )
        .await
        .unwrap();
    let pictures = async || -> Vec<i64> {
        let rows = client
            .query("SELECT id::bigint FROM picture ORDER BY id", &[])
            .await;
        rows.unwrap().iter().map(|row| row.get(0)).collect()
    };
    let insert = "INSERT INTO public.picture SELECT id, size FROM jsonb_to_recordset($1) AS p (id integer, size integer)";
    writes_go_with_their_reports(&store, insert, pictures).await;

    let worker = worker(&store).await;
    for (sql, says) in [
        ("DELETE FROM public.picture", "one parameter"),
        (
            "DELETE FROM public.nothing WHERE id = ($1::json ->> 0)::integer",
            "does not exist",
        ),
        ("INSERT INTO public.picture", "syntax error"),
        (
            "DELETE FROM public.picture WHERE $1::json IS NULL; SELECT 1",
            "multiple commands",
        ),
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
