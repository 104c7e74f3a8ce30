//! Whom an exchange with a SQLite store wakes: workers that wait for jobs that it did not take itself.

use std::sync::Arc;

use futures::FutureExt;
use gristmill_model::{ManualClock, Timestamp};
use gristmill_store::Store;
use gristmill_store_conformance::claim::waiting;
use gristmill_store_conformance::fixture::*;
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};

async fn wakes(dependent: &'static str, jobs_max: u32) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(Timestamp(1_000_000)));
    let store = SqliteStore::open(folder.path().join("jobs.db"), SqliteOptions::new(clock, 1)).unwrap();
    waiting::wakes_others(&store, dependent, jobs_max).await
}

#[tokio::test]
async fn an_exchange_wakes_others_for_jobs_that_it_leaves() {
    waiting::an_exchange_wakes_others_for_jobs_that_it_leaves(wakes).await;
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
