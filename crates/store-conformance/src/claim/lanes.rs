//! Claims from many lanes: from ten, from a thousand, and from the numbers in the variable `LANES` (`LANES=10000,100000`).

use std::collections::BTreeSet;
use std::time::Instant;

use gristmill_model::{BatchId, Control, Effect, Scope};
use gristmill_store::{Store, Want};

use crate::Database;
use crate::fixture::*;

/// The numbers of lanes in each run.
const LANES: [u32; 2] = [10, 1_000];
/// The number of batches in one submit.
const SUBMITTED_AT_ONCE: u32 = 1_000;
/// One lane in this many has jobs of a higher priority.
const URGENT_ONE_OF: u32 = 100;

/// The numbers of lanes to try.
fn sizes() -> Vec<u32> {
    let told = std::env::var("LANES").unwrap_or_default();
    let told = told.split(',').filter_map(|number| number.trim().parse().ok());
    LANES.into_iter().chain(told).collect()
}

/// Submits one job in each of this many groups. Returns the batches of the urgent jobs, and the other batches.
async fn fill(store: &dyn Store, lanes: u32) -> (BTreeSet<BatchId>, BTreeSet<BatchId>) {
    let (mut urgent, mut others) = (BTreeSet::new(), BTreeSet::new());
    let mut lane = 0;
    while lane < lanes {
        let end = lanes.min(lane + SUBMITTED_AT_ONCE);
        let news = (lane..end).map(|lane| {
            let mut new = batch(1);
            new.options.group = Some(format!("tenant {lane}"));
            new.options.priority = i16::from(lane % URGENT_ONE_OF == URGENT_ONE_OF - 1);
            new
        });
        let ids = store.submit(news.collect(), None).await.unwrap();
        for (lane, id) in (lane..end).zip(ids) {
            if lane % URGENT_ONE_OF == URGENT_ONE_OF - 1 {
                urgent.insert(id)
            } else {
                others.insert(id)
            };
        }
        lane = end;
    }
    (urgent, others)
}

/// Claims and completes jobs until none are left. Returns the batches in the order of their claims.
async fn drain(store: &dyn Store) -> Vec<BatchId> {
    let worker = worker(store).await;
    let (mut reports, mut claimed) = (Vec::new(), Vec::new());
    loop {
        let exchanged = exchange(store, worker, reports, Some(want(1_000))).await;
        let Some(lease) = exchanged.lease else {
            assert_eq!(exchanged.next_run_at, None, "a due job was not claimed");
            return claimed;
        };
        reports = lease.slices.iter().map(completed).collect();
        claimed.extend(lease.slices.iter().map(|slice| slice.batch));
    }
}

/// Each job is claimed once, whatever the number of lanes. Jobs of a higher priority come first.
pub async fn jobs_of_many_lanes_are_claimed(database: &dyn Database) {
    for lanes in sizes() {
        let store = database.open().await;
        let began = Instant::now();
        let (urgent, others) = fill(&*store, lanes).await;
        let filled = began.elapsed();
        // Another process learns of all lanes with its first claim.
        let other = database.open().await;
        let claimed = drain(&*other).await;
        println!(
            "{lanes} lanes: filled in {filled:.2?}, drained by {:.2?}",
            began.elapsed()
        );
        let all: BTreeSet<BatchId> = claimed.iter().copied().collect();
        assert_eq!(all, urgent.union(&others).copied().collect(), "{lanes} lanes");
        assert_eq!(claimed.len(), all.len(), "{lanes} lanes: a job was claimed twice");
        if lanes as usize <= gristmill_store::rules::lanes::LOOK_LANES_MAX {
            let first = claimed.iter().take(urgent.len()).copied();
            assert_eq!(first.collect::<BTreeSet<_>>(), urgent, "{lanes} lanes");
        }
    }
}

/// The lanes of other queues do not slow down a worker of one queue. A worker's own limited lanes do not slow it down either.
pub async fn other_lanes_do_not_slow_a_worker_down(database: &dyn Database) {
    let store = database.open().await;
    let news = (0..400).map(|lane| {
        let mut new = batch(1);
        new.queue = format!("queue {lane}");
        new
    });
    let ids = store.submit(news.collect(), None).await.unwrap();
    let worker = worker(&*store).await;
    let wanted = Want {
        queues: vec!["queue 300".into()],
        ..want(10)
    };
    let exchanged = exchange(&*store, worker, Vec::new(), Some(wanted)).await;
    let slice = only(exchanged.lease);
    assert_eq!(slice.batch, ids[300]);
    let limit = Control {
        scope: Scope {
            kind: Some(KIND.to_owned()),
            each_group: true,
            ..Scope::default()
        },
        effect: Effect::Concurrency { jobs_max: 1 },
    };
    store.put_controls(vec![limit]).await.unwrap();
    let (urgent, others) = fill(&*store, 400).await;
    assert_eq!(drain(&*store).await.len(), urgent.len() + others.len());
}
