//! A clock that is set forward or back does not end the lease of a living worker, nor keep that of a dead one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use gristmill_model::limits::LEASE_LOST_AFTER_MS;
use gristmill_model::{ManualClock, SystemClock, Timestamp, WorkerId};
use gristmill_store::Store;
use gristmill_store_conformance::fixture::*;
use gristmill_store_sqlite::{SqliteOptions, SqliteStore, SteadyClock};

const HOUR_MS: i64 = 3_600_000;
const NOBODY: [WorkerId; 0] = [];

/// The machine's steady clock, moved by hand.
#[derive(Debug)]
struct Steady {
    boot: &'static str,
    now_ms: AtomicI64,
}

impl SteadyClock for Steady {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn boot(&self) -> &str {
        self.boot
    }
}

/// A machine, whose wall clock anybody may set.
struct Machine {
    wall: Arc<ManualClock>,
    steady: Arc<Steady>,
}

impl Machine {
    fn booted(boot: &'static str, wall: Arc<ManualClock>) -> Machine {
        let now_ms = AtomicI64::new(1_000);
        Machine {
            wall,
            steady: Arc::new(Steady { boot, now_ms }),
        }
    }

    fn open(&self, folder: &Path) -> SqliteStore {
        let options = SqliteOptions {
            steady_clock: Some(self.steady.clone()),
            ..SqliteOptions::new(self.wall.clone(), 1)
        };
        SqliteStore::open(folder.join("jobs.db"), options).unwrap()
    }

    /// Lets time pass.
    fn pass_ms(&self, milliseconds: i64) {
        self.wall.advance_ms(milliseconds);
        self.steady.now_ms.fetch_add(milliseconds, Ordering::SeqCst);
    }
}

/// Does the engine's housekeeping. Returns the lost workers.
async fn keep_house(store: &SqliteStore) -> Vec<WorkerId> {
    let silent_before = store.now().plus_ms(-LEASE_LOST_AFTER_MS);
    let workers = store.workers().await.unwrap();
    if workers.iter().all(|row| row.heartbeat_at >= silent_before) {
        return Vec::new();
    }
    let rescued = store.rescue(silent_before, Vec::new()).await.unwrap();
    rescued.workers
}

fn wall() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp(1_800_000_000_000)))
}

/// An hour forward: a worker with heartbeats keeps its jobs, and one without loses them in time.
#[tokio::test]
async fn a_clock_set_forward_ends_no_lease() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::booted("a", wall());
    let (working, keeping) = (machine.open(folder.path()), machine.open(folder.path()));
    submit(&working, batch(2)).await;
    let worker = worker(&working).await;
    assert!(claim(&working, worker, 9).await.is_some());
    machine.pass_ms(LEASE_LOST_AFTER_MS - 1_000);
    machine.wall.advance_ms(HOUR_MS);
    assert_eq!(keep_house(&keeping).await, NOBODY);
    let shown = keeping.workers().await.unwrap()[0].heartbeat_at;
    assert_eq!(keeping.now().since_ms(shown), LEASE_LOST_AFTER_MS - 1_000);
    assert!(working.heartbeat(worker, Default::default()).await.unwrap().known);
    machine.pass_ms(LEASE_LOST_AFTER_MS);
    assert_eq!(keep_house(&keeping).await, NOBODY);
    machine.pass_ms(1);
    assert_eq!(keep_house(&keeping).await, [worker]);
}

/// An hour back: a dead worker does not lose its jobs later because of that.
#[tokio::test]
async fn a_clock_set_back_keeps_no_lease() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::booted("a", wall());
    let (working, keeping) = (machine.open(folder.path()), machine.open(folder.path()));
    submit(&working, batch(2)).await;
    let dead = worker(&working).await;
    assert!(claim(&working, dead, 9).await.is_some());
    machine.wall.advance_ms(-HOUR_MS);
    machine.pass_ms(LEASE_LOST_AFTER_MS);
    assert_eq!(keep_house(&keeping).await, NOBODY);
    machine.pass_ms(1);
    assert_eq!(keep_house(&keeping).await, [dead]);
    // The jobs were submitted at a time that is in the future now.
    machine.wall.advance_ms(HOUR_MS);
    let heir = worker(&keeping).await;
    assert!(claim(&keeping, heir, 9).await.is_some());
}

/// A boot sets the wall clock back to before the last heartbeat, which nevertheless was before the boot.
#[tokio::test]
async fn a_boot_ends_the_leases_from_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let before = Machine::booted("a", wall());
    let store = before.open(folder.path());
    let dead = worker(&store).await;
    store.close().await.unwrap();
    before.wall.advance_ms(-HOUR_MS);
    let after = Machine::booted("b", before.wall.clone());
    let store = after.open(folder.path());
    assert_eq!(
        keep_house(&store).await,
        NOBODY,
        "it may be of another machine, and heard of soon"
    );
    after.pass_ms(LEASE_LOST_AFTER_MS);
    assert_eq!(keep_house(&store).await, [dead]);
}

/// The machine's own steady clock: all processes read heartbeats alike.
#[tokio::test]
async fn heartbeats_are_shown_by_the_wall_clock() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let options = SqliteOptions::new(Arc::new(SystemClock), 1);
        SqliteStore::open(folder.path().join("jobs.db"), options).unwrap()
    };
    let (working, keeping) = (open(), open());
    let before = working.now();
    worker(&working).await;
    let row = keeping.workers().await.unwrap().remove(0);
    let after = keeping.now();
    // Both clocks are read in whole milliseconds.
    let (first, last) = (before.plus_ms(-2), after.plus_ms(2));
    assert!(
        first <= row.heartbeat_at && row.heartbeat_at <= last,
        "{before} {} {after}",
        row.heartbeat_at
    );
}
