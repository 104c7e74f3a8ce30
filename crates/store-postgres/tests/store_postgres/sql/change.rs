//! `gristmill.cancel` and `gristmill.retry`.

use gristmill_model::{After, JobState, NewBatch, OnFailure, RetryPolicy};
use gristmill_store::{Change, Store};
use gristmill_store_conformance::fixture::*;

use super::case::{Case, refusal, row, texts};

/// Jobs that wait for a job that SQL cancels are cancelled too, and the view shows them until then.
#[tokio::test]
async fn what_waits_is_shown_and_follows() {
    let case = Case::new().await;
    let client = case.client().await;
    let id = submit(&case.store, batch(2)).await;
    let after = |on_failure| NewBatch {
        after: vec![After::batch(id).on_failure(on_failure)],
        ..batch(2)
    };
    submit(&case.store, after(OnFailure::Fail)).await;
    submit(&case.store, after(OnFailure::Ignore)).await;
    let states = "SELECT batch_id || ' ' || state FROM gristmill.job WHERE position = 0 ORDER BY batch_id";
    assert_eq!(
        texts(&client, states, &[]).await,
        ["1 waiting", "2 blocked", "3 blocked"]
    );
    let cancel = "SELECT gristmill.cancel(ARRAY[$1 || ':0', $1 || ':1'])";
    let cancelled = row(&client, cancel, &[&id.to_string()]).await;
    assert_eq!(cancelled.get::<_, i64>(0), 2);
    assert_eq!(
        texts(&client, states, &[]).await,
        ["1 cancelled", "2 dead", "3 waiting"]
    );
}

/// A running job is cancelled at once; its worker is told, and its report refused. In a transaction that rolls back,
/// none of this happens.
#[tokio::test]
async fn running_jobs_are_cancelled() {
    let case = Case::new().await;
    let mut client = case.client().await;
    let id = submit(&case.store, batch(4)).await;
    let worker = worker(&case.store).await;
    let lease = claim(&case.store, worker, 3).await.unwrap();

    let transaction = client.transaction().await.unwrap();
    let cancelled = transaction
        .query_one("SELECT gristmill.cancel($1::text)", &[&format!("{id}:1")])
        .await
        .unwrap();
    assert!(cancelled.get::<_, bool>(0));
    transaction.rollback().await.unwrap();
    let heartbeat = case.store.heartbeat(worker, Default::default()).await.unwrap();
    assert_eq!(heartbeat.revoked, []);

    let ids = [
        format!("{id}:1"),
        format!("{id}:3"),
        format!("{id}:9"),
        "99:0".to_owned(),
    ]
    .to_vec();
    let changed = row(
        &client,
        "SELECT gristmill.cancel($1::text[]), gristmill.cancel($1::text[])",
        &[&ids],
    )
    .await;
    assert_eq!((changed.get::<_, i64>(0), changed.get::<_, i64>(1)), (2, 0));
    let heartbeat = case.store.heartbeat(worker, Default::default()).await.unwrap();
    assert_eq!(heartbeat.revoked.len(), 1);
    assert_eq!(heartbeat.revoked[0].positions, positions("1"));
    let receipts = exchange(&case.store, worker, vec![completed(&lease.slices[0])], None)
        .await
        .receipts;
    assert_eq!(
        (receipts[0].accepted.to_string(), receipts[0].refused.to_string()),
        ("0,2".into(), "1".into())
    );
    let states = texts(
        &client,
        "SELECT state || ' ' || attempt FROM gristmill.job WHERE batch_id = $1 ORDER BY position",
        &[&id.0],
    )
    .await;
    assert_eq!(
        states,
        ["completed 1", "cancelled 1", "completed 1", "cancelled 0"]
    );
}

/// A retried dead job is claimed again, with all its attempts; a rejected one is not.
#[tokio::test]
async fn dead_jobs_are_retried() {
    let case = Case::new().await;
    let client = case.client().await;
    let mut new = batch(3);
    new.options.retry = RetryPolicy::NEVER;
    new.rejected = vec![gristmill_model::Rejected {
        position: 2,
        error: error(),
    }];
    let id = submit(&case.store, new).await;
    let worker = worker(&case.store).await;
    let lease = claim(&case.store, worker, 9).await.unwrap();
    let failed = failed_at(&lease.slices[0], &positions("0-1"), &error());
    exchange(&case.store, worker, vec![failed], None).await;
    let retried = row(
        &client,
        "SELECT gristmill.retry($1::text), gristmill.retry($1::text), gristmill.retry($2::text)",
        &[&format!("{id}:1"), &format!("{id}:2")],
    )
    .await;
    let retried: Vec<bool> = (0..3).map(|column| retried.get(column)).collect();
    assert_eq!(retried, [true, false, false]);
    case.catch_up();
    let lease = claim(&case.store, worker, 9).await.unwrap();
    assert_eq!(held(&Some(lease.clone())), [format!("{id}:1")]);
    assert_eq!(lease.slices[0].attempt, 1);
    exchange(&case.store, worker, vec![completed(&lease.slices[0])], None).await;
    let changed = change(
        &case.store,
        vec![job(id, 0), job(id, 1), job(id, 2)],
        Change::Retry,
    )
    .await;
    assert_eq!((changed.changed, changed.unchanged), (1, 2));
    assert_eq!(
        case.store.job(job(id, 0)).await.unwrap().unwrap().row.state,
        JobState::Waiting
    );
}

/// A waiting job gets another priority, and a dead one is discarded.
#[tokio::test]
async fn jobs_are_prioritised_and_discarded() {
    let case = Case::new().await;
    let client = case.client().await;
    let mut new = batch(4);
    new.options.retry = RetryPolicy::NEVER;
    let id = submit(&case.store, new).await;
    let ids: Vec<String> = ["1", "2", "9"]
        .map(|position| format!("{id}:{position}"))
        .to_vec();
    let changed = row(
        &client,
        "SELECT gristmill.prioritise($1::text[], 5), gristmill.prioritise($2::text, -32768)",
        &[&ids, &format!("{id}:3")],
    )
    .await;
    assert_eq!((changed.get::<_, i64>(0), changed.get::<_, bool>(1)), (2, true));
    let worker = worker(&case.store).await;
    let lease = claim(&case.store, worker, 9).await;
    assert_eq!(
        held(&lease),
        [format!("{id}:1-2"), format!("{id}:0"), format!("{id}:3")]
    );
    let failed = failed_at(&lease.unwrap().slices[0], &positions("1-2"), &error());
    exchange(&case.store, worker, vec![failed], None).await;
    let discarded = row(
        &client,
        "SELECT gristmill.discard($1::text[]), gristmill.discard($2::text)",
        &[&ids, &format!("{id}:0")],
    )
    .await;
    assert_eq!(
        (discarded.get::<_, i64>(0), discarded.get::<_, bool>(1)),
        (2, false)
    );
    let error = refusal(&client, "SELECT gristmill.prioritise('1:1', 40000)").await;
    assert_eq!(error.code().code(), "22023", "{error}");
}

/// Invalid ids of jobs are refused.
#[tokio::test]
async fn wrong_ids_are_refused() {
    let case = Case::new().await;
    let client = case.client().await;
    for (call, code, says) in [
        ("cancel('7')", "22023", "'7'"),
        ("cancel('a:1')", "22023", "'a:1'"),
        ("cancel('1:-1')", "22023", "'1:-1'"),
        ("retry(ARRAY['1:1', ' 1:2'])", "22023", "' 1:2'"),
        ("retry(NULL::text)", "22023", "NULL"),
        (
            "cancel('99999999999999999999:1')",
            "22023",
            "99999999999999999999",
        ),
    ] {
        let error = refusal(&client, &format!("SELECT gristmill.{call}")).await;
        assert_eq!(error.code().code(), code, "{call}: {error}");
        assert!(error.message().contains(says), "{error} does not say {says}");
        assert!(error.hint().is_some_and(|hint| hint.contains("42:7")), "{error}");
    }
    let none = row(
        &client,
        "SELECT gristmill.cancel('{}'::text[]), gristmill.retry('{}'::text[])",
        &[],
    )
    .await;
    assert_eq!((none.get::<_, i64>(0), none.get::<_, i64>(1)), (0, 0));
}
