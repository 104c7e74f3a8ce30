//! Single submits of lone callers, which commit in the callers' own threads where COMMIT does not wait for the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use gristmill_model::JobState;
use gristmill_model::{Clock, JobId, Timestamp};
use gristmill_store::{Exchanged, JobFilter, Store, StoreError, WorkSeen};
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

/// A caller that blocks a thread of tokio's, and polls the submits by another executor.
#[test]
fn a_lone_caller_may_block_its_thread() {
    let (done, is_done) = channel();
    std::thread::spawn(move || {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), Arc::default(), Synchronous::Normal);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for _ in 0..100 {
                futures::executor::block_on(store.submit_one(batch(1))).unwrap();
            }
        });
        done.send(()).unwrap();
    });
    is_done
        .recv_timeout(Duration::from_secs(60))
        .expect("no submit waits for ever");
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
    let other = Connection::open(folder.path().join("jobs.db")).unwrap();
    // A caller that was alone before does not stay so.
    for _ in 0..2 {
        // Another connection blocks the writer until all have gathered, however slow this thread is.
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let submits = join_all((0..200).map(|_| store.submit_one(batch(1))));
        let release = async { other.execute_batch("ROLLBACK").unwrap() };
        let (jobs, ()) = futures::join!(submits, release);
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

type Action = Box<dyn FnOnce() + Send>;

/// A clock that does something when it is asked for the nth time from now on. It may do so several times.
#[derive(Default)]
struct Trap(Mutex<Traps>);

#[derive(Default)]
struct Traps {
    asked: u32,
    actions: BTreeMap<u32, Action>,
}

impl std::fmt::Debug for Trap {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Trap")
    }
}

impl Trap {
    fn set(&self, asked: u32, action: impl FnOnce() + Send + 'static) {
        let mut traps = self.0.lock().unwrap();
        let at = traps.asked + asked;
        traps.actions.insert(at, Box::new(action));
    }
}

impl Clock for Trap {
    fn now(&self) -> Timestamp {
        let mut traps = self.0.lock().unwrap();
        traps.asked += 1;
        let asked = traps.asked;
        let action = traps.actions.remove(&asked);
        drop(traps);
        if let Some(action) = action {
            action();
        }
        Timestamp(1_000_000)
    }
}

fn open_with(folder: &Path, clock: Arc<Trap>, synchronous: Synchronous) -> Arc<SqliteStore> {
    let options = SqliteOptions {
        synchronous,
        ..SqliteOptions::new(clock, 1)
    };
    Arc::new(SqliteStore::open(folder.join("jobs.db"), options).unwrap())
}

#[tokio::test]
async fn a_panic_of_the_clock_fails_one_submit_and_no_other() {
    for synchronous in [Synchronous::Normal, Synchronous::Full] {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(Trap::default());
        let store = open_with(folder.path(), clock.clone(), synchronous);
        submit_singly(&store).await;
        clock.set(1, || panic!("the clock stands still"));
        let failed = store.submit_one(batch(1)).await;
        assert!(
            matches!(&failed, Err(StoreError::Panicked(text)) if text.contains("stands still")),
            "{failed:?}"
        );
        store.submit_one(batch(1)).await.unwrap();
        assert_eq!(store.counts(&JobFilter::default()).await.unwrap().total(), 21);
        store.close().await.unwrap();
    }
}

/// The clock panics in each transaction of a group, until the group is carried out one by one, and there for the second operation.
#[tokio::test]
async fn a_panic_of_the_clock_fails_no_other_operation_of_its_group() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Trap::default());
    let store = open_with(folder.path(), clock.clone(), Synchronous::Full);
    // The writer waits in the middle of an operation, until others have gathered behind it.
    let (waits, is_waiting) = channel();
    let (goes_on, may_go_on) = channel::<()>();
    clock.set(1, move || {
        waits.send(()).unwrap();
        may_go_on.recv().unwrap();
    });
    let submit_one = || store.submit(vec![batch(1)], None);
    let mut first = submit_one();
    assert!((&mut first).now_or_never().is_none());
    is_waiting.recv().unwrap();
    let mut group: Vec<_> = (0..4).map(|_| submit_one()).collect();
    for submit in &mut group {
        assert!(submit.now_or_never().is_none());
    }
    // Each transaction asks for the time, and then each submit in it: the first one has yet to ask, once. Two transactions of the group
    // fail; then the first submit asks twice.
    for asked in [2, 3, 6] {
        clock.set(asked, || panic!("the clock stands still"));
    }
    goes_on.send(()).unwrap();
    first.await.unwrap();
    let answers = join_all(group).await;
    let failed: Vec<bool> = answers.iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, true, false, false], "{answers:?}");
    assert!(matches!(&answers[1], Err(StoreError::Panicked(text)) if text.contains("stands still")));
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().total(), 4);
}

/// Locks the file when it is woken.
struct Locking(Mutex<Connection>);

impl Wake for Locking {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().execute_batch("BEGIN IMMEDIATE").unwrap();
    }
}

/// The worker leaves while the submit claims for it, and another process writes right after that.
#[tokio::test]
async fn a_lone_caller_leaves_it_to_the_writer_to_give_claims_back() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Trap::default());
    let store = open_with(folder.path(), clock.clone(), Synchronous::Normal);
    let worker = worker(&*store).await;
    submit_singly(&store).await;
    while claim(&*store, worker, 100).await.is_some() {}
    submit_singly(&store).await;
    while claim(&*store, worker, 100).await.is_some() {}
    let claiming = store.clone();
    let mut waiting: Pin<Box<dyn Future<Output = Option<Exchanged>> + Send>> = Box::pin(async move {
        let seen = WorkSeen::default();
        claiming.wait_for_claim(worker, want(1), &seen).await;
        claiming.wait_for_claim(worker, want(1), &seen).await
    });
    assert!((&mut waiting).now_or_never().is_none());
    let other = Arc::new(Locking(Mutex::new(
        Connection::open(folder.path().join("jobs.db")).unwrap(),
    )));
    let seen = WorkSeen::default();
    store.wait_for_work(&seen).await;
    let mut work = store.wait_for_work(&seen);
    let waker = Waker::from(other.clone());
    assert!(work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // The transaction, its submit and its claim ask for the time.
    clock.set(3, move || drop(waiting));
    let job = store.submit_one(batch(1)).await.unwrap();
    // The claim is still there, and the caller goes on.
    other.0.lock().unwrap().execute_batch("COMMIT").unwrap();
    drop(work);
    store.close().await.unwrap();
    drop(store);
    let store = open_with(folder.path(), clock, Synchronous::Normal);
    assert_eq!(states(&*store, job.batch).await, [JobState::Waiting]);
}
