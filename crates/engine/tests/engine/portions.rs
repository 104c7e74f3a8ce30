//! Changes of all matching jobs in portions.

use std::sync::Arc;

use gristmill_engine::{Engine, EngineSettings, Portions};
use gristmill_model::limits::{BATCH_JOBS_MAX, PORTION_JOBS_MAX};
use gristmill_model::{NewBatch, PackedBuilder};
use gristmill_store::{Change, JobCounts, JobFilter, Selection, Store};
use gristmill_store_postgres::{PostgresOptions, PostgresStore};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};

fn batch(kind: &str, jobs: u32) -> NewBatch {
    let mut payloads = PackedBuilder::new();
    for number in 0..jobs {
        payloads.push_value(&number).unwrap();
    }
    NewBatch::new(kind, payloads.finish())
}

fn of_kind(kind: &str) -> JobFilter {
    JobFilter {
        kind: Some(kind.to_owned()),
        ..JobFilter::default()
    }
}

async fn counts(store: &dyn Store, kind: &str) -> JobCounts {
    store.counts(&of_kind(kind)).await.unwrap()
}

async fn on_sqlite() -> (Arc<dyn Store>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("jobs.db"), SqliteOptions::default()).unwrap();
    (Arc::new(store), folder)
}

async fn on_postgres() -> Arc<dyn Store> {
    let url = gristmill_private_postgres::shared().create_database().unwrap();
    Arc::new(
        PostgresStore::open(&url, PostgresOptions::default())
            .await
            .unwrap(),
    )
}

/// The numbers of jobs that the portions change.
async fn sizes(portions: &mut Portions) -> Vec<u64> {
    let mut sizes = Vec::new();
    while let Some(changed) = portions.change_next().await.unwrap() {
        sizes.push(changed);
    }
    sizes
}

/// Submits batches of one job and whole batches, with others between them.
async fn fill(store: &dyn Store) -> u64 {
    let small = |kind: &str, count: usize| vec![batch(kind, 1); count];
    store.submit(small("mail", 300), None).await.unwrap();
    store.submit(small("other", 3), None).await.unwrap();
    store
        .submit(
            vec![batch("mail", BATCH_JOBS_MAX), batch("mail", BATCH_JOBS_MAX)],
            None,
        )
        .await
        .unwrap();
    store.submit(small("mail", 20), None).await.unwrap();
    320 + 2 * u64::from(BATCH_JOBS_MAX)
}

async fn many_jobs_change_in_bounded_portions(store: Arc<dyn Store>) {
    let all = fill(&*store).await;
    let pause = Change::Pause {
        reason: "deploy".to_owned(),
        until: None,
    };
    let mut portions = Portions::of(store.clone(), of_kind("mail"), pause).await.unwrap();
    assert_eq!(portions.matching().await.unwrap(), all);
    // Others submit between two portions. Their jobs do not change.
    let first = portions.change_next().await.unwrap().unwrap();
    store.submit(vec![batch("mail", 7)], None).await.unwrap();
    let rest = sizes(&mut portions).await;
    assert_eq!(first + rest.iter().sum::<u64>(), all);
    assert!(first < 300, "the batches of a portion are bounded: {first}");
    assert!(
        rest.iter().all(|size| *size <= u64::from(PORTION_JOBS_MAX)),
        "{rest:?}"
    );
    assert_eq!(portions.change_next().await.unwrap(), None);
    let mail = counts(&*store, "mail").await;
    assert_eq!((mail.paused, mail.waiting), (all, 7));
    assert_eq!(counts(&*store, "other").await.waiting, 3);

    // An early end keeps the changes so far, and the same change changes the rest.
    let resume = || Change::Resume { reason: None };
    let mut early = Portions::of(store.clone(), of_kind("mail"), resume())
        .await
        .unwrap();
    let resumed = early.change_next().await.unwrap().unwrap();
    drop(early);
    assert_eq!(counts(&*store, "mail").await.paused, all - resumed);
    let mut again = Portions::of(store.clone(), of_kind("mail"), resume())
        .await
        .unwrap();
    assert_eq!(again.change_all().await.unwrap(), all - resumed);
    assert_eq!(counts(&*store, "mail").await.waiting, all + 7);
}

#[tokio::test]
async fn many_jobs_change_in_bounded_portions_on_sqlite() {
    let (store, _folder) = on_sqlite().await;
    many_jobs_change_in_bounded_portions(store).await;
}

#[tokio::test]
async fn many_jobs_change_in_bounded_portions_on_postgres() {
    many_jobs_change_in_bounded_portions(on_postgres().await).await;
}

#[tokio::test]
async fn the_states_of_the_filter_and_the_change_both_hold() {
    let (store, _folder) = on_sqlite().await;
    store.submit(vec![batch("mail", 2)], None).await.unwrap();
    let dead = JobFilter {
        states: vec![gristmill_model::JobState::Dead],
        ..of_kind("mail")
    };
    let mut none = Portions::of(store.clone(), dead, Change::Cancel).await.unwrap();
    assert_eq!(none.matching().await.unwrap(), 0);
    assert_eq!(none.change_next().await.unwrap(), None);
    let wrong = Change::Pause {
        reason: String::new(),
        until: None,
    };
    assert!(Portions::of(store.clone(), of_kind("mail"), wrong).await.is_err());
    assert_eq!(counts(&*store, "mail").await.waiting, 2);
}

#[tokio::test]
async fn the_engine_changes_the_jobs_of_a_filter_in_portions() {
    let (store, _folder) = on_sqlite().await;
    let settings = EngineSettings {
        housekeeping: false,
        ..EngineSettings::default()
    };
    let engine = Engine::new(store.clone(), settings).await.unwrap();
    let all = fill(&*store).await;
    let cancelled = engine
        .change(Selection::Filter(of_kind("mail")), Change::Cancel)
        .await
        .unwrap();
    assert_eq!((cancelled.changed, cancelled.unchanged), (all, 0));
    let retried = engine
        .change(Selection::Filter(of_kind("mail")), Change::Retry)
        .await
        .unwrap();
    assert_eq!(retried.changed, all);
    assert_eq!(counts(&*store, "mail").await.waiting, all);
}
