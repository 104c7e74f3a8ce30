//! Single submits of lone callers, which commit in the callers' own threads where COMMIT does not wait for the disk.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use futures::FutureExt;
use futures::future::join_all;
use gristmill_model::{Clock, JobId, Timestamp};
use gristmill_store::{JobFilter, Store, StoreError};
use gristmill_store_conformance::fixture::*;
use gristmill_store_sqlite::{SqliteOptions, SqliteStore, Synchronous};
use rusqlite::Connection;

/// A clock that knows the threads that have asked it. A transaction asks for its time.
#[derive(Debug, Default)]
struct AskedBy(Mutex<Vec<ThreadId>>);

impl Clock for AskedBy {
    fn now(&self) -> Timestamp {
        self.0.lock().unwrap().push(std::thread::current().id());
        Timestamp(1_000_000)
    }
}

fn open(folder: &Path, clock: Arc<AskedBy>, synchronous: Synchronous) -> SqliteStore {
    let options = SqliteOptions {
        synchronous,
        ..SqliteOptions::new(clock, 1)
    };
    SqliteStore::open(folder.join("jobs.db"), options).unwrap()
}

/// Submits one job after the other, until the caller counts as lone.
async fn submit_singly(store: &SqliteStore) {
    for _ in 0..20 {
        store.submit_one(batch(1)).await.unwrap();
    }
}

/// Reports whether a lone caller's submit is carried out in its own thread.
async fn commits_itself(synchronous: Synchronous) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(AskedBy::default());
    let store = open(folder.path(), clock.clone(), synchronous);
    submit_singly(&store).await;
    clock.0.lock().unwrap().clear();
    store.submit_one(batch(1)).await.unwrap();
    let asked_by = clock.0.lock().unwrap().clone();
    assert!(!asked_by.is_empty());
    asked_by
        .iter()
        .all(|thread| *thread == std::thread::current().id())
}

#[tokio::test]
async fn a_lone_caller_commits_itself_unless_that_waits_for_the_disk() {
    assert!(commits_itself(Synchronous::Normal).await);
    assert!(!commits_itself(Synchronous::Full).await);
}

#[tokio::test]
async fn the_log_of_a_lone_caller_is_checkpointed() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions {
        synchronous: Synchronous::Normal,
        checkpoint_pages: 100,
        ..SqliteOptions::new(Arc::new(AskedBy::default()), 1)
    };
    let store = SqliteStore::open(folder.path().join("jobs.db"), options).unwrap();
    for _ in 0..1_000 {
        store.submit_one(batch(1)).await.unwrap();
    }
    // A submit writes several pages, so the log would have more than 4,000 of them.
    let log = std::fs::metadata(folder.path().join("jobs.db-wal")).unwrap();
    assert!(log.len() < 4_000 * 4_096, "{} bytes", log.len());
}

#[tokio::test]
async fn a_lone_caller_does_not_block_its_thread_while_another_process_writes() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(AskedBy::default());
    let store = open(folder.path(), clock, Synchronous::Normal);
    submit_singly(&store).await;
    let other = Connection::open(folder.path().join("jobs.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut submit = store.submit_one(batch(1));
    for _ in 0..3 {
        assert!((&mut submit).now_or_never().is_none());
    }
    other.execute_batch("COMMIT").unwrap();
    submit.await.unwrap();
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().total(), 21);
}

/// In one thread, where each submit is over before the next one begins, unless it waits for others.
#[tokio::test]
async fn callers_of_one_thread_share_a_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Arc::default(), Synchronous::Normal);
    // A caller that was alone before does not stay so.
    for _ in 0..2 {
        let jobs = join_all((0..200).map(|_| store.submit_one(batch(1)))).await;
        let batches: BTreeSet<_> = jobs.into_iter().map(|job| job.unwrap().batch).collect();
        assert!(batches.len() < 50, "{batches:?}");
        submit_singly(&store).await;
    }
}

/// Many threads, with one store that is closed in the middle: each call gets its own job, or is refused.
#[test]
fn callers_of_many_threads_get_their_own_jobs_until_the_store_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    let acknowledged: Vec<JobId> = runtime.block_on(async {
        let clock = Arc::new(AskedBy::default());
        let store = Arc::new(open(folder.path(), clock, Synchronous::Normal));
        let submitters = (0..4).map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                loop {
                    match store.submit_one(batch(1)).await {
                        Ok(job) => acknowledged.push(job),
                        Err(StoreError::Closed) => return acknowledged,
                        Err(error) => panic!("{error}"),
                    }
                    if number == 0 && acknowledged.len() == 300 {
                        store.close().await.unwrap();
                    }
                }
            })
        });
        let acknowledged = join_all(submitters.collect::<Vec<_>>()).await;
        acknowledged.into_iter().flat_map(Result::unwrap).collect()
    });
    let distinct: BTreeSet<JobId> = acknowledged.iter().copied().collect();
    assert_eq!(distinct.len(), acknowledged.len());
    let store = open(folder.path(), Arc::default(), Synchronous::Normal);
    let stored = runtime.block_on(store.counts(&JobFilter::default())).unwrap();
    assert_eq!(stored.total(), acknowledged.len() as u64);
}
