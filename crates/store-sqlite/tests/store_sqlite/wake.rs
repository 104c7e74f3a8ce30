//! Whom an exchange with a SQLite store wakes: workers that wait for jobs that it did not take itself.

use std::sync::Arc;

use futures::FutureExt;
use gristmill_model::{After, ManualClock, NewBatch, Timestamp};
use gristmill_store::{Store, Want, WorkSeen};
use gristmill_store_conformance::fixture::*;
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};

/// Completes the first job of a kind, for which a job of kind `dependent` waits, by an exchange that asks for
/// `jobs_max` more of the first kind. Reports whether that wakes waiting workers.
async fn wakes(dependent: &str, jobs_max: u32) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(Timestamp(1_000_000)));
    let store = SqliteStore::open(folder.path().join("jobs.db"), SqliteOptions::new(clock, 1)).unwrap();
    let after = NewBatch {
        after: vec![After::earlier(0)],
        ..batch_of(dependent, 2)
    };
    store.submit(vec![batch(1), after], None).await.unwrap();
    let (seen, worker) = (WorkSeen::default(), worker(&store).await);
    store.wait_for_work(&seen).await;
    let slice = only(claim(&store, worker, 1).await);
    let want = Want {
        kinds: vec![KIND.into()],
        ..want(jobs_max)
    };
    exchange(&store, worker, vec![completed(&slice)], Some(want)).await;
    store.wait_for_work(&seen).now_or_never().is_some()
}

#[tokio::test]
async fn what_an_exchange_takes_itself_wakes_nobody() {
    assert!(!wakes(KIND, 100).await);
}

#[tokio::test]
async fn what_an_exchange_leaves_wakes_others() {
    assert!(wakes(KIND, 1).await);
    assert!(wakes("another", 100).await);
}

/// A watch gets outcomes with their COMMIT, without waiting for the next look at the file.
#[tokio::test]
async fn an_exchange_wakes_the_watches_of_its_batches() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(Timestamp(1_000_000)));
    let store = SqliteStore::open(folder.path().join("jobs.db"), SqliteOptions::new(clock, 1)).unwrap();
    let worker = worker(&store).await;
    for _ in 0..20 {
        let id = submit(&store, batch(1)).await;
        let slice = only(claim(&store, worker, 1).await);
        let mut watch = store.watch_outcomes(id);
        exchange(&store, worker, vec![completed(&slice)], None).await;
        assert!(watch.changed().now_or_never().is_some());
    }
}
