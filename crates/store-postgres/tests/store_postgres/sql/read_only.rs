//! Databases that do not accept writes: hot standbys, and roles that may only read.

use std::sync::Arc;

use gristmill_model::SystemClock;
use gristmill_private_postgres::{PrivatePostgres, shared};
use gristmill_store::{
    Change, CheckPlace, ControlFilter, HistoryFilter, JobFilter, Page, Selection, Store, StoreError,
};
use gristmill_store_conformance::fixture::*;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};

use super::case::Case;

async fn open(url: &str) -> PostgresStore {
    let options = PostgresOptions::new(Arc::new(SystemClock), 2);
    PostgresStore::open(url, options).await.unwrap()
}

/// A store with jobs in several states.
async fn with_jobs(store: &PostgresStore) {
    let tagged = gristmill_model::NewBatch {
        tags: vec![gristmill_model::Tag::all("customer", "7")],
        ..batch(3)
    };
    submit(store, tagged).await;
    let worker = worker(store).await;
    assert!(claim(store, worker, 1).await.is_some());
}

/// Every query works; every change is refused at once, with the reason.
async fn only_reads(store: &PostgresStore, reason: &str) {
    let filter = JobFilter::default();
    assert_eq!(store.counts(&filter).await.unwrap().total(), 3);
    let page = Page {
        after: None,
        limit: 10,
    };
    assert_eq!(store.jobs(&filter, page).await.unwrap().len(), 3);
    assert_eq!(store.newest_jobs(&filter, 10).await.unwrap().len(), 3);
    let id = store.jobs(&filter, page).await.unwrap()[0].job;
    assert!(store.job(id).await.unwrap().is_some());
    assert_eq!(store.tag_values("customer", None, 9).await.unwrap().len(), 1);
    assert_eq!(store.workers().await.unwrap().len(), 1);
    store.stats().await.unwrap();
    store.metrics().await.unwrap();
    store.runs().await.unwrap();
    store.controls().await.unwrap();
    store.schedules(None, 9).await.unwrap();
    store.history(&HistoryFilter::default()).await.unwrap();
    store.lock_waits().await.unwrap();
    store.events(None, 9).await.unwrap();
    store.check(CheckPlace::default()).await.unwrap();

    let began = std::time::Instant::now();
    for refused in [
        store.submit(vec![batch(1)], None).await.map(drop),
        store
            .change(Selection::Jobs(vec![id]), Change::Cancel)
            .await
            .map(drop),
        store.expire().await.map(drop),
        store.delete_controls(ControlFilter::default()).await.map(drop),
        store
            .heartbeat(gristmill_model::WorkerId(1), Default::default())
            .await
            .map(drop),
    ] {
        let error = refused.unwrap_err();
        assert!(
            matches!(&error, StoreError::ReadOnlyDatabase { reason: told, .. } if told.contains(reason)),
            "{error}"
        );
    }
    assert!(
        began.elapsed() < std::time::Duration::from_secs(30),
        "nothing is tried for a minute"
    );
    store.close().await.unwrap();
}

/// A role with only SELECT can read everything.
#[tokio::test]
async fn a_role_that_may_only_select_reads_all() {
    let case = Case::new().await;
    with_jobs(&case.store).await;
    let database = case.url.split(['/', '?']).nth(3).unwrap().to_owned();
    let role = format!("reader_of_{database}");
    let grants = format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA gristmill TO {role};
         GRANT SELECT ON ALL TABLES IN SCHEMA gristmill TO {role}"
    );
    shared().psql(&database, &grants).unwrap();
    let url = format!(
        "postgresql:///{database}?user={role}&host={}",
        shared().directory().display()
    );
    only_reads(&open(&url).await, "the role may only read (permission denied").await;
    // The same role with read-only transactions.
    let setting = format!("ALTER ROLE {role} SET default_transaction_read_only = on");
    shared().psql("postgres", &setting).unwrap();
    only_reads(&open(&url).await, "default_transaction_read_only is on").await;
    case.store.close().await.unwrap();
}

/// A standby that replays the writes of its primary.
#[tokio::test]
async fn a_hot_standby_is_read() {
    // A standby copies all databases of its primary, and the shared server has one for each test.
    let primary = PrivatePostgres::start(&[]).unwrap();
    let case = Case::on(&primary).await;
    with_jobs(&case.store).await;
    let standby = primary.standby().unwrap();
    let database = case.url.split(['/', '?']).nth(3).unwrap().to_owned();
    let url = standby.url(&database);
    only_reads(&open(&url).await, "it is a standby").await;
    let error = PostgresStore::open(
        &standby.url("postgres"),
        PostgresOptions::new(Arc::new(SystemClock), 3),
    )
    .await
    .unwrap_err();
    assert!(error.to_string().contains("it is a standby"), "{error}");
    case.store.close().await.unwrap();
}

/// A full disk of the server has its own error, however jobs are submitted: HTTP answers 507.
#[tokio::test]
async fn a_full_disk_is_told() {
    let case = Case::new().await;
    let owner = case.client().await;
    owner
        .batch_execute(
            "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$; \
             CREATE TRIGGER no_room BEFORE INSERT ON gristmill.batch FOR EACH ROW EXECUTE FUNCTION no_room()",
        )
        .await
        .unwrap();
    for refused in [
        case.store.submit(vec![batch(2)], None).await.map(drop),
        case.store.submit_one(batch(1)).await.map(drop),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    }
    case.store.close().await.unwrap();
}
