//! Locks of other transactions stop the operations that need them, for a bounded time, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use gristmill_batching::BatchStats;
use gristmill_model::{Clock, Control, Effect, KeyedBatch, PackedArray, Scope, Unique};
use gristmill_store::{LockWaits, Store, StoreError, SubmittedJobs, Want, WorkSeen};
use gristmill_store_conformance::fixture::*;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::Client;

use super::case::{Case, row};

/// More than a store has connections.
const SUBMITS: usize = 14;
/// How long operations may take that wait for nobody.
const PROMPT: Duration = Duration::from_secs(20);
/// Patience with locks that is longer than any check here takes.
pub const PATIENT_MS: u32 = 120_000;

pub async fn open(case: &Case, busy_timeout_ms: u32) -> Arc<PostgresStore> {
    let options = PostgresOptions {
        busy_timeout_ms,
        ..PostgresOptions::new(case.clock.clone(), 9)
    };
    Arc::new(PostgresStore::open(&case.url, options).await.unwrap())
}

async fn submit_with_key(store: &PostgresStore, key: usize) -> Result<Vec<SubmittedJobs>, StoreError> {
    let keys = PackedArray::parse(&format!("[\"key {key}\"]")).unwrap();
    store
        .submit_keyed(vec![KeyedBatch::new(batch(1), keys, Unique::default())])
        .await
}

/// A client that has submitted a job with a key without committing, and its process on the server.
async fn client_with_open_key(case: &Case) -> (Client, i32) {
    let client = case.client().await;
    client
        .batch_execute(r#"BEGIN; SELECT gristmill.submit('work', '1', options => '{"key": "theirs"}')"#)
        .await
        .unwrap();
    let process = row(&client, "SELECT pg_backend_pid()", &[]).await.get(0);
    (client, process)
}

/// Looks until so many operations wait.
pub async fn until_waiting(store: &PostgresStore, writers: u64) -> LockWaits {
    let looking = async {
        loop {
            let waits = store.lock_waits().await.unwrap();
            if waits.writers >= writers {
                return waits;
            }
        }
    };
    tokio::time::timeout(PROMPT, looking)
        .await
        .expect("fewer operations wait for locks")
}

/// Heartbeats, plain submits, claims and reports go on while more submits than there are connections wait for a key.
#[tokio::test]
async fn an_open_key_stops_no_heartbeat_and_no_report() {
    let case = Case::new().await;
    let store = open(&case, PATIENT_MS).await;
    submit_with_key(&store, SUBMITS).await.unwrap();
    let worker = worker(&*store).await;
    assert_eq!(store.lock_waits().await.unwrap(), LockWaits::default());
    let (client, process) = client_with_open_key(&case).await;
    let blocked: Vec<_> = (0..SUBMITS)
        .map(|key| {
            let store = store.clone();
            tokio::spawn(async move { submit_with_key(&store, key).await })
        })
        .collect();
    let waits = until_waiting(&store, 4).await;
    assert_eq!(waits.holders.len(), 1, "{waits:?}");
    assert!(
        waits.holders[0].starts_with(&format!("process {process} ")),
        "{waits:?}"
    );
    let others = async {
        store.heartbeat(worker, BatchStats::default()).await.unwrap();
        submit(&*store, batch(3)).await;
        let lease = claim(&*store, worker, 9).await.unwrap();
        assert_eq!(lease.slices.iter().map(|slice| slice.len()).sum::<u32>(), 4);
        let reports = lease.slices.iter().map(completed).collect();
        exchange(&*store, worker, reports, None).await;
        store.heartbeat(worker, BatchStats::default()).await.unwrap();
    };
    tokio::time::timeout(PROMPT, others)
        .await
        .expect("something waits behind submits with keys");
    assert!(!blocked.iter().any(|submit| submit.is_finished()));
    client.batch_execute("COMMIT").await.unwrap();
    for submit in blocked {
        submit.await.unwrap().unwrap();
    }
}

/// A lock that another transaction keeps becomes an error after a while, for all that wait for it.
#[tokio::test]
async fn a_lock_that_lasts_is_an_error() {
    let case = Case::new().await;
    let store = open(&case, 50).await;
    submit_with_key(&store, SUBMITS).await.unwrap();
    let (client, _) = client_with_open_key(&case).await;
    let refused = (0..SUBMITS).map(|key| submit_with_key(&store, key));
    for refused in futures::future::join_all(refused).await {
        let error = refused.unwrap_err();
        assert!(
            matches!(error, StoreError::Locked { waited_ms: 50.., .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains("is locked"), "{error}");
    }
    client.batch_execute("COMMIT").await.unwrap();
    submit_with_key(&store, 0).await.unwrap();
}

/// A client that has made a lane without committing delays others that make lanes, but no other submit.
#[tokio::test]
async fn new_lanes_keep_no_other_submit_waiting() {
    let case = Case::new().await;
    let store = open(&case, PATIENT_MS).await;
    submit(&*store, batch(1)).await;
    let client = case.client().await;
    client
        .batch_execute("BEGIN; SELECT gristmill.submit('new', '1')")
        .await
        .unwrap();
    let blocked = ["a", "b", "c"].map(|kind| {
        let store = store.clone();
        tokio::spawn(async move { store.submit(vec![batch_of(kind, 1)], None).await })
    });
    until_waiting(&store, 1).await;
    tokio::time::timeout(PROMPT, submit(&*store, batch(1)))
        .await
        .expect("a submit waits behind those of new lanes");
    client.batch_execute("COMMIT").await.unwrap();
    for submit in blocked {
        submit.await.unwrap().unwrap();
    }
}

/// Submits that make lanes wait for a lock concurrently, not one after the other.
#[tokio::test]
async fn new_lanes_wait_no_longer_than_one_does() {
    const WAIT_MS: u32 = 400;
    let case = Case::new().await;
    let store = open(&case, WAIT_MS).await;
    submit(&*store, batch(1)).await;
    let client = case.client().await;
    client
        .batch_execute("BEGIN; SELECT gristmill.submit('new', '1')")
        .await
        .unwrap();
    let began = std::time::Instant::now();
    let kinds: Vec<String> = (0..SUBMITS).map(|number| format!("kind {number}")).collect();
    let submits = kinds
        .iter()
        .map(|kind| store.submit(vec![batch_of(kind, 1)], None));
    for refused in futures::future::join_all(submits).await {
        let error = refused.unwrap_err();
        assert!(matches!(error, StoreError::Locked { .. }), "{error:?}");
    }
    // One after the other, they take that many times as long.
    assert!(began.elapsed() < Duration::from_millis(u64::from(WAIT_MS) * SUBMITS as u64 / 2));
    client.batch_execute("COMMIT").await.unwrap();
    for kind in &kinds {
        submit(&*store, batch_of(kind, 1)).await;
    }
}

/// A store is made while somebody else holds an advisory lock.
#[tokio::test]
async fn strangers_with_advisory_locks_do_not_keep_a_store_from_being_made() {
    let url = gristmill_private_postgres::shared().create_database().unwrap();
    let (stranger, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    stranger
        .batch_execute("SELECT pg_advisory_lock(1196576076, 1)")
        .await
        .unwrap();
    let store = tokio::time::timeout(PROMPT, PostgresStore::open(&url, PostgresOptions::default()))
        .await
        .expect("opening a store waits for an advisory lock")
        .unwrap();
    submit(&store, batch(1)).await;
    drop(stranger);
    connection.await.unwrap().unwrap();
}

/// Any role can hold any advisory lock. Roles that hold the store's numbers stop neither submits nor waiting workers.
#[tokio::test]
async fn strangers_with_advisory_locks_stop_nothing() {
    let case = Case::new().await;
    let store = open(&case, PATIENT_MS).await;
    submit(&*store, batch(1)).await;
    let stranger = case.client().await;
    stranger
        .batch_execute(
            "SELECT pg_advisory_lock(1196576077, scope) FROM generate_series(0, 20) scope; \
             SELECT pg_advisory_lock(1196576076, 2)",
        )
        .await
        .unwrap();
    tokio::time::timeout(PROMPT, submit_with_key(&store, 0))
        .await
        .expect("a submit waits for an advisory lock")
        .unwrap();

    let worker = worker(&*store).await;
    assert!(claim(&*store, worker, 9).await.is_some(), "what was there before");
    let waiting = tokio::spawn({
        let store = store.clone();
        async move {
            let seen = WorkSeen::default();
            loop {
                match claim(&*store, worker, 9).await {
                    Some(lease) => return lease,
                    None => store.wait_for_work(&seen).await,
                }
            }
        }
    });
    let looking = async {
        let sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 2 AND NOT granted \
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        while row(&stranger, sql, &[]).await.get::<_, i64>(0) == 0 {}
    };
    tokio::time::timeout(PROMPT, looking)
        .await
        .expect("nobody listens for work");
    submit(&case.store, batch(2)).await;
    let lease = tokio::time::timeout(PROMPT, waiting)
        .await
        .expect("a waiting worker is not woken")
        .unwrap();
    assert_eq!(lease.slices[0].len(), 2);
}

/// A claim that passes over jobs which another transaction has locked says that there may be more soon: that
/// transaction may roll back, so nobody may conclude that nothing is left.
#[tokio::test]
async fn a_claim_that_passes_over_locked_jobs_expects_them_soon() {
    let case = Case::new().await;
    let store = &case.store;
    submit(store, batch(3)).await;
    let worker = worker(store).await;
    let client = case.client().await;
    let at_any_priority = want(10);
    let with_priority = Want {
        priority_min: Some(-5),
        ..want(10)
    };
    for (has_limit, want) in [
        (false, &at_any_priority),
        (false, &with_priority),
        (true, &at_any_priority),
    ] {
        if has_limit {
            let limit = Control {
                scope: Scope::default(),
                effect: Effect::Concurrency { jobs_max: 100 },
            };
            store.put_controls(vec![limit]).await.unwrap();
        }
        client
            .batch_execute("BEGIN; SELECT FROM gristmill.slice FOR UPDATE")
            .await
            .unwrap();
        let before = exchange(store, worker, Vec::new(), Some(want.clone())).await;
        assert_eq!(before.lease, None);
        let again_ms = before.next_run_at.map(|at| at.since_ms(case.clock.now()));
        assert_eq!(again_ms, Some(100), "{has_limit} {want:?}");
        client.batch_execute("ROLLBACK").await.unwrap();
        let after = exchange(store, worker, Vec::new(), Some(want.clone())).await;
        let slice = only(after.lease);
        assert_eq!(slice.positions, positions("0-2"));
        let back = released_at(&slice, &slice.positions);
        exchange(store, worker, vec![back], None).await;
    }
    let all = exchange(store, worker, Vec::new(), Some(want(10))).await;
    assert_eq!(
        exchange(store, worker, Vec::new(), Some(want(10)))
            .await
            .next_run_at,
        None
    );
    assert!(all.lease.is_some());
}
