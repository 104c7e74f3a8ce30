//! The store works with few connections: if the server gives no more, the existing ones of a handle serve all purposes.

use std::sync::Arc;
use std::time::Duration;

use gristmill_private_postgres::{PrivatePostgres, shared};
use gristmill_store::{JobFilter, Store, StoreError, WorkSeen};
use gristmill_store_conformance::fixture::*;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};

/// A check that never ends fails after this.
const CHECK_MAX: Duration = Duration::from_secs(120);

/// The URL of a new database for a role that may have this many connections.
fn database_with(connections: usize) -> String {
    let server = shared();
    let url = server.create_database().unwrap();
    let name = url
        .trim_start_matches("postgresql:///")
        .split('?')
        .next()
        .unwrap();
    let sql = format!(
        "CREATE ROLE {name} LOGIN CONNECTION LIMIT {connections}; ALTER DATABASE {name} OWNER TO {name}"
    );
    server.psql("postgres", &sql).unwrap();
    let (place, options) = url.split_once('?').unwrap();
    let options: Vec<String> = options
        .split('&')
        .map(|option| {
            if option.starts_with("user=") {
                format!("user={name}")
            } else {
                option.to_owned()
            }
        })
        .collect();
    format!("{place}?{}", options.join("&"))
}

/// Claims and completes jobs until none are left. Returns how many it completed.
async fn drain(store: &dyn Store) -> u32 {
    let worker = worker(store).await;
    let (mut reports, mut jobs) = (Vec::new(), 0);
    loop {
        let exchanged = exchange(store, worker, reports, Some(want(10))).await;
        store.heartbeat(worker, Default::default()).await.unwrap();
        let Some(lease) = exchanged.lease else { return jobs };
        reports = lease.slices.iter().map(completed).collect();
        jobs += lease
            .slices
            .iter()
            .map(|slice| slice.positions.len())
            .sum::<u32>();
    }
}

async fn submit_groups(store: &dyn Store, groups: std::ops::Range<u32>) {
    for group in groups {
        let mut new = batch(4);
        new.options.group = Some(format!("tenant-{group}"));
        submit(store, new).await;
        store.counts(&JobFilter::default()).await.unwrap();
    }
}

#[tokio::test]
async fn few_connections_do_for_all_purposes() {
    for connections in 1..=4 {
        let url = database_with(connections);
        let store = PostgresStore::open(&url, PostgresOptions::default())
            .await
            .unwrap();
        let seen = WorkSeen::default();
        let work = async {
            // The connection that listens is one more.
            let waiting = store.wait_for_work(&seen);
            let both = async {
                tokio::join!(submit_groups(&store, 0..10), submit_groups(&store, 10..20));
                tokio::join!(drain(&store), drain(&store))
            };
            let (_, (one, other)) = tokio::join!(waiting, both);
            one + other
        };
        let drained = tokio::time::timeout(CHECK_MAX, work).await;
        assert_eq!(drained, Ok(80), "with {connections} connections");
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_store_that_gets_no_connection_says_why() {
    let url = database_with(1);
    let _only = PostgresStore::open(&url, PostgresOptions::default())
        .await
        .unwrap();
    _only.counts(&JobFilter::default()).await.unwrap();
    let error = PostgresStore::open(&url, PostgresOptions::default())
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("too many connections"), "{error}");
}

#[tokio::test]
async fn a_database_that_is_away_is_waited_for_as_long_as_a_store_is_told_to() {
    let server = PrivatePostgres::start(&[]).unwrap();
    let url = server.create_database().unwrap();
    let with = |unreachable_ms_max| PostgresOptions {
        unreachable_ms_max,
        ..PostgresOptions::default()
    };
    let hasty = PostgresStore::open(&url, with(Some(300))).await.unwrap();
    let patient = Arc::new(PostgresStore::open(&url, with(None)).await.unwrap());
    submit(&hasty, batch(3)).await;
    server.stop().unwrap();
    let waiting = {
        let patient = patient.clone();
        tokio::spawn(async move {
            let worker = worker(&*patient).await;
            claim(&*patient, worker, 3).await.unwrap().jobs()
        })
    };
    let error = hasty.counts(&JobFilter::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    assert!(!waiting.is_finished(), "it still waits");
    server.start_again().unwrap();
    let claimed = tokio::time::timeout(CHECK_MAX, waiting).await;
    assert_eq!(claimed.expect("it goes on").unwrap(), 3);
}
