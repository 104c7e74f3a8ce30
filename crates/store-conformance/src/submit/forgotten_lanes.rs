//! A prune forgets the queues, kinds and groups without jobs, which other handles know still.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt;
use gristmill_batching::BatchStats;
use gristmill_model::{BatchId, Clock, KeyedBatch, NewBatch, PackedArray, Unique};
use gristmill_store::{PruneOptions, Store, WorkSeen};

use crate::Database;
use crate::fixture::*;

const GROUPS: u32 = 20;

fn of_group(kind: &str, group: u32) -> NewBatch {
    let mut new = batch_of(kind, 1);
    new.options.group = Some(format!("tenant {group}"));
    new
}

/// A job in each group, and then one without: the lane that was made last stays.
fn of_all_groups() -> Vec<NewBatch> {
    let groups = (0..GROUPS).map(|group| of_group(KIND, group));
    groups.chain([batch_of("last", 1)]).collect()
}

/// Runs all that is due. Returns the batches.
async fn run_all(store: &dyn Store) -> BTreeSet<BatchId> {
    let worker = worker(store).await;
    let mut batches = BTreeSet::new();
    while let Some(lease) = claim(store, worker, 100).await {
        exchange(store, worker, lease.slices.iter().map(completed).collect(), None).await;
        batches.extend(lease.slices.iter().map(|slice| slice.batch));
    }
    store.leave(worker, BatchStats::default()).await.unwrap();
    batches
}

async fn prune_all(database: &dyn Database, store: &dyn Store) {
    database.clock().advance_ms(1_000);
    let options = PruneOptions {
        finished_before: database.clock().now(),
        keep_batches: 0,
        dead_too: true,
        dry_run: false,
    };
    store.prune(options).await.unwrap();
}

async fn groups(store: &dyn Store) -> Vec<String> {
    store.groups(None, "", 100).await.unwrap()
}

/// Two handles that know all groups, of which a prune by the first has deleted all but the last lane.
async fn pruned(database: &dyn Database) -> (Arc<dyn Store>, Arc<dyn Store>) {
    let (one, other) = (database.open().await, database.open().await);
    one.submit(of_all_groups(), None).await.unwrap();
    assert_eq!(run_all(&*other).await.len(), GROUPS as usize + 1);
    prune_all(database, &*one).await;
    (one, other)
}

/// Those without jobs; not those with jobs, and not those with keys.
pub async fn lanes_without_jobs_are_forgotten(database: &dyn Database) {
    let (one, other) = (database.open().await, database.open().await);
    one.submit(of_all_groups(), None).await.unwrap();
    run_all(&*other).await;
    let kept = submit(&*one, of_group(KIND, 7)).await;
    assert_eq!(groups(&*one).await.len(), GROUPS as usize);
    prune_all(database, &*one).await;
    assert_eq!(groups(&*one).await, ["tenant 7"]);
    no_damage(&*one).await;
    assert_eq!(run_all(&*other).await, BTreeSet::from([kept]));
    prune_all(database, &*other).await;
    assert!(groups(&*one).await.is_empty());
    no_damage(&*other).await;
}

/// However a job is submitted, through a handle that knows the lane as it was, it is stored and run.
pub async fn submits_make_forgotten_lanes_anew(database: &dyn Database) {
    let (one, other) = pruned(database).await;
    let mut submitted = BTreeSet::new();
    submitted.insert(submit(&*other, of_group(KIND, 0)).await);
    submitted.insert(other.submit_one(of_group(KIND, 1)).await.unwrap().batch);
    let two = vec![of_group(KIND, 2), of_group(KIND, 3)];
    submitted.extend(other.submit(two, None).await.unwrap());
    let mut elsewhere = of_group(KIND, 4);
    elsewhere.queue = "another".to_owned();
    submit(&*other, elsewhere).await;
    assert_eq!(run_all(&*one).await, submitted);
    no_damage(&*one).await;

    // Again, while a worker waits at the handle.
    prune_all(database, &*one).await;
    let waiting = worker(&*other).await;
    let seen = WorkSeen::default();
    let mut call = other.wait_for_claim(waiting, want(1), &seen);
    while call.as_mut().now_or_never().is_some() {
        call = other.wait_for_claim(waiting, want(1), &seen);
    }
    let id = other.submit_one(of_group(KIND, 1)).await.unwrap().batch;
    let handed = call.await.and_then(|exchanged| exchanged.lease);
    let claimed = match handed {
        Some(lease) => Some(lease),
        None => claim(&*other, waiting, 1).await,
    };
    assert_eq!(only(claimed).batch, id);
    no_damage(&*one).await;
}

fn keyed(group: u32) -> KeyedBatch {
    let keys = PackedArray::parse("[\"a\"]").unwrap();
    KeyedBatch::new(of_group(KIND, group), keys, Unique::default())
}

/// The number of a key's scope is that of the first lane of its kind: handles that know other first lanes find the same keys.
pub async fn keys_hold_where_lanes_are_forgotten(database: &dyn Database) {
    let (one, other) = pruned(database).await;
    let first = one.submit_keyed(vec![keyed(5)]).await.unwrap();
    let second = other.submit_keyed(vec![keyed(0)]).await.unwrap();
    assert_eq!(second[0].jobs, first[0].jobs);
    assert_eq!((first[0].count, second[0].count), (1, 0));
    // A lane whose number a stored key has is kept, also without jobs of its own.
    prune_all(database, &*one).await;
    submit(&*other, of_group(KIND, 0)).await;
    let third = other.submit_keyed(vec![keyed(1)]).await.unwrap();
    assert_eq!(third[0].jobs, first[0].jobs);
    assert_eq!(run_all(&*one).await.len(), 2);
    prune_all(database, &*other).await;
    let again = one.submit_keyed(vec![keyed(6)]).await.unwrap();
    let same = other.submit_keyed(vec![keyed(7)]).await.unwrap();
    assert_eq!((again[0].count, same[0].count), (1, 0));
    no_damage(&*one).await;
}

/// A prune takes away no count of a kind that has jobs.
pub async fn counts_of_forgotten_groups_are_kept(database: &dyn Database) {
    let one = database.open().await;
    one.submit(of_all_groups(), None).await.unwrap();
    run_all(&*one).await;
    let kept = submit(&*one, of_group(KIND, 7)).await;
    let completed = async || {
        let lanes = one.metrics().await.unwrap().lanes;
        let of_kind = lanes.iter().find(|lane| &*lane.kind == KIND).cloned();
        of_kind.map(|lane| lane.ended.completed)
    };
    assert_eq!(completed().await, Some(u64::from(GROUPS)));
    prune_all(database, &*one).await;
    assert_eq!(groups(&*one).await, ["tenant 7"]);
    assert_eq!(completed().await, Some(u64::from(GROUPS)));
    assert_eq!(run_all(&*one).await, BTreeSet::from([kept]));
    prune_all(database, &*one).await;
    assert_eq!(completed().await, None);
}
