//! Instances that clean up after cancelled flows.

use gristmill_model::limits::CLEANUP_WAITS_MS_MAX;
use gristmill_model::positions::by_batch;
use gristmill_model::{
    BatchId, JobId, JobState, KeyedBatch, OnDuplicate, PackedArray, Spawn, Timestamp, Unique, Wake, WorkerId,
};
use gristmill_store::{BatchPositions, Change, CleanupBatch, DueCleanup, JobFilter, Selection, Store};

use crate::Database;
use crate::fixture::*;
use crate::graph::families::complete;
use crate::graph::flows::{one, prune_ended, step, suspend};

/// How long the instances here may clean up.
const WITHIN_MS: i64 = 1_000;

/// How often it is looked whether they have begun.
const LOOK_EVERY_MS: i64 = 100;

/// How long after the cancel of a flow that ran its cleanup begins.
const AFTER_RUN_MS: i64 = 60_000;

/// A step of a flow after which an instance may clean up.
fn careful(number: u32, count: u32, wake: Wake) -> Spawn {
    Spawn {
        cleanup_ms: Some(WITHIN_MS.unsigned_abs()),
        ..step(number, "step", count, wake)
    }
}

/// Flows of which each waits for two children, and the batch of the children, which nobody runs.
async fn waiting_flows(store: &dyn Store, worker: WorkerId, count: u32) -> (BatchId, BatchId) {
    let id = submit(store, batch(count)).await;
    let flows = one(store, worker).await;
    suspend(store, worker, &flows, None, |_| careful(1, 2, Wake::Any)).await;
    (id, store.newest_batch().await.unwrap().unwrap())
}

async fn cancel(store: &dyn Store, jobs: Vec<JobId>) -> (u64, u64) {
    let changed = change(store, jobs, Change::Cancel).await;
    (changed.changed, changed.unchanged)
}

/// The flows whose cleanup is due.
async fn due(store: &dyn Store) -> Vec<JobId> {
    let ran_before = store.now().plus_ms(-AFTER_RUN_MS);
    let due = store.cleanups_due(ran_before, 100).await.unwrap();
    let flows = due.into_iter().flat_map(|DueCleanup { flows, within_ms }| {
        assert_eq!(within_ms, WITHIN_MS.unsigned_abs());
        let positions: Vec<u32> = flows.positions.iter().collect();
        positions
            .into_iter()
            .map(move |position| job(flows.batch, position))
    });
    let mut flows: Vec<JobId> = flows.collect();
    flows.sort_unstable();
    flows
}

/// Begins the cleanup after these flows. Returns whether it could.
async fn begin(store: &dyn Store, flows: &[JobId]) -> bool {
    let count = flows.len() as u32;
    let memos = vec!["[\"begin\"]"; flows.len()].join(",");
    let mut batch = batch_of("cleanup", count);
    batch.memos = Some(PackedArray::parse(&format!("[{memos}]")).unwrap());
    let cleanup = CleanupBatch {
        batch,
        within_ms: WITHIN_MS.unsigned_abs(),
    };
    let packed = by_batch(flows.iter().copied())
        .into_iter()
        .map(BatchPositions::from);
    store
        .begin_cleanups(packed.collect(), Some(cleanup))
        .await
        .unwrap()
}

/// A retry that names the flows, or finds them, changes none.
async fn cannot_be_retried(store: &dyn Store, flows: &[JobId]) {
    for flow in flows {
        let refused = store.change((*flow).into(), Change::Retry).await.unwrap_err();
        assert!(refused.to_string().contains("is cleaned up after"), "{refused}");
        let packed = BatchPositions {
            batch: flow.batch,
            positions: [flow.position].into_iter().collect(),
        };
        let packed = Selection::Packed {
            jobs: vec![packed],
            states: Change::Retry.states().to_vec(),
        };
        assert_eq!(change(store, packed, Change::Retry).await.changed, 0);
    }
}

/// A cancel ends a flow and its open children. Its cleanup begins once, and no retry undoes it. Until then, its batch and those of its
/// children stay.
pub async fn cancelled_flows_are_cleaned_up_after(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let (id, children) = waiting_flows(&*store, worker, 3).await;
    let (first, second) = (job(id, 0), job(id, 1));
    assert_eq!(cancel(&*store, vec![first]).await, (1, 0));
    let by_filter = JobFilter {
        batch: Some(id),
        ..JobFilter::default()
    };
    assert_eq!(change(&*store, by_filter, Change::Cancel).await.changed, 2);
    assert_eq!(cancel(&*store, vec![first, second]).await, (0, 2));
    let cancelled = JobState::Cancelled;
    assert_eq!(states(&*store, id).await, [cancelled; 3]);
    assert_eq!(states(&*store, children).await, [cancelled; 6]);
    let flows = [first, second, job(id, 2)];
    assert_eq!(due(&*store).await, flows);
    cannot_be_retried(&*store, &flows).await;

    prune_ended(&*store).await;
    let suspensions = store.suspensions(id, &positions("0-2")).await.unwrap();
    let told: Vec<usize> = suspensions.iter().map(Vec::len).collect();
    assert_eq!(told, [1, 1, 1]);
    assert_eq!(states(&*store, children).await, [cancelled; 6]);

    assert!(begin(&*store, &flows[..2]).await);
    assert!(!begin(&*store, &flows[1..]).await, "one has begun");
    assert_eq!(due(&*store).await, [flows[2]]);
    let cleanup = one(&*store, worker).await;
    assert_eq!((&*cleanup.kind, cleanup.positions.len()), ("cleanup", 2));
    assert_eq!(
        cleanup.memos.as_ref().unwrap().as_str(),
        "[[[\"begin\"]]\n,[[\"begin\"]]]"
    );
    let only = BatchPositions {
        batch: id,
        positions: positions("2"),
    };
    assert!(store.begin_cleanups(vec![only], None).await.unwrap());
    assert!(due(&*store).await.is_empty());
    cannot_be_retried(&*store, &flows[..2]).await;
    // Nothing cleans up after the last one, so it can go on.
    assert_eq!(change(&*store, vec![flows[2]], Change::Retry).await.changed, 1);
    let goes_on = one(&*store, worker).await;
    exchange(&*store, worker, vec![completed(&goes_on)], None).await;
    no_damage(&*store).await;
    prune_ended(&*store).await;
    exchange(&*store, worker, vec![completed(&cleanup)], None).await;
    database.clock().advance_ms(1);
    prune_ended(&*store).await;
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().total(), 0);
    no_damage(&*store).await;
}

/// A worker runs a flow until it learns of the cancel. The cleanup does not begin beside it.
pub async fn a_flow_that_runs_is_cleaned_up_after_later(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let (id, _) = waiting_flows(&*store, worker, 2).await;
    let children = one(&*store, worker).await;
    // Nothing cleans up after a flow that has not waited, nor after one that has ended.
    let new = submit(&*store, batch(1)).await;
    assert_eq!(cancel(&*store, vec![job(new, 0)]).await, (1, 0));
    let done = completed_at(&children, &positions("0"));
    exchange(&*store, worker, vec![done], None).await;
    let running = one(&*store, worker).await;
    assert_eq!(running.positions.to_string(), "0");
    assert_eq!(cancel(&*store, vec![job(id, 0), job(id, 1)]).await, (2, 0));
    assert!(due(&*store).await.is_empty());
    let receipts = exchange(&*store, worker, vec![completed(&running)], None)
        .await
        .receipts;
    assert_eq!(receipts[0].refused, running.positions);
    database.clock().advance_ms(AFTER_RUN_MS - 1);
    assert!(due(&*store).await.is_empty());
    assert!(!begin(&*store, &[job(new, 0)]).await);
    database.clock().advance_ms(1);
    assert_eq!(due(&*store).await, [job(id, 0), job(id, 1)]);
    no_damage(&*store).await;
}

/// A worker runs a step of a child of a flow that waits. The cleanup does not begin beside it.
pub async fn a_flow_whose_step_runs_is_cleaned_up_after_later(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let (id, children) = waiting_flows(&*store, worker, 1).await;
    let child = one(&*store, worker).await;
    assert_eq!(child.batch, children);
    suspend(&*store, worker, &child, None, |_| careful(1, 1, Wake::Any)).await;
    assert_eq!(one(&*store, worker).await.positions.len(), 2);
    let (resting, _) = waiting_flows(&*store, worker, 1).await;
    let (flow, resting) = (job(id, 0), job(resting, 0));
    assert_eq!(cancel(&*store, vec![flow, resting]).await, (2, 0));
    assert_eq!(due(&*store).await, [resting]);
    database.clock().advance_ms(AFTER_RUN_MS - 1);
    assert_eq!(due(&*store).await, [resting]);
    database.clock().advance_ms(1);
    assert_eq!(
        due(&*store).await,
        [flow, job(children, 0), job(children, 1), resting]
    );
    no_damage(&*store).await;
}

/// An instance that cleans up too long is cancelled, with its steps. Nothing cleans up after it. Its time counts from its beginning.
pub async fn cleanups_end_in_time(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let (id, _) = waiting_flows(&*store, worker, 3).await;
    let flows = [job(id, 0), job(id, 1), job(id, 2)];
    cancel(&*store, flows.to_vec()).await;
    database.clock().advance_ms(AFTER_RUN_MS);
    assert!(begin(&*store, &flows).await);
    // A repeated cancel by conditions leaves the cleanup.
    let again = change(&*store, JobFilter::default(), Change::Cancel).await;
    assert_eq!(again.changed, 0);
    let cleanup = one(&*store, worker).await;
    let waits = suspended_at(&cleanup, &positions("0-1"), |_| careful(2, 1, Wake::All));
    exchange(&*store, worker, vec![waits], None).await;
    let steps = one(&*store, worker).await;
    let done = completed_at(&steps, &positions("0"));
    exchange(&*store, worker, vec![done], None).await;
    let (cancelled, running) = (JobState::Cancelled, JobState::Running);
    assert_eq!(
        states(&*store, cleanup.batch).await,
        [JobState::Waiting, JobState::Blocked, running]
    );
    look(database, &*store).await;
    let ends_at = store.now().plus_ms(WITHIN_MS);
    assert_eq!(store.next_expiry().await.unwrap(), Some(ends_at));
    database.clock().advance_ms(WITHIN_MS - 1);
    assert_eq!(store.expire().await.unwrap(), 0);
    database.clock().advance_ms(1);
    assert_eq!(store.expire().await.unwrap(), 3);
    assert_eq!(states(&*store, cleanup.batch).await, [cancelled; 3]);
    assert_eq!(
        states(&*store, steps.batch).await,
        [JobState::Completed, cancelled]
    );
    assert_eq!(store.next_expiry().await.unwrap(), None);
    assert!(due(&*store).await.is_empty());
    assert_eq!(store.expire().await.unwrap(), 0);
    no_damage(&*store).await;
}

/// Goes on to the next look whether instances have begun.
async fn look(database: &dyn Database, store: &dyn Store) {
    database.clock().advance_ms(LOOK_EVERY_MS);
    let next = store.next_expiry().await.unwrap();
    assert_eq!(next, Some(store.now()), "it is looked at now");
    assert_eq!(store.expire().await.unwrap(), 0);
}

/// A cleanup that no worker begins, one that is paused, and one whose worker died at once have all of their time.
pub async fn cleanups_that_wait_keep_their_time(database: &dyn Database) {
    let store = database.open().await;
    let lost = worker(&*store).await;
    let worker = worker(&*store).await;
    let (id, _) = waiting_flows(&*store, worker, 3).await;
    let flows = [job(id, 0), job(id, 1), job(id, 2)];
    cancel(&*store, flows.to_vec()).await;
    database.clock().advance_ms(AFTER_RUN_MS);
    assert!(begin(&*store, &flows).await);
    let begun = only(claim(&*store, lost, 1).await);
    let (new, paused) = (job(begun.batch, 1), job(begun.batch, 2));
    assert_eq!(begun.positions.to_string(), "0");
    let pause = Change::Pause {
        reason: "wait".to_owned(),
        until: None,
    };
    assert_eq!(change(&*store, vec![paused], pause).await.changed, 1);
    look(database, &*store).await;
    database.clock().advance_ms(WITHIN_MS / 2);
    store.rescue(Timestamp(0), vec![lost]).await.unwrap();
    database.clock().advance_ms(WITHIN_MS);
    let (waiting, stopped) = (JobState::Waiting, JobState::Paused);
    assert_eq!(store.expire().await.unwrap(), 0);
    assert_eq!(states(&*store, begun.batch).await, [waiting, waiting, stopped]);
    // A cancel by conditions spares them, and one that names the batch does not.
    let all = JobFilter::default();
    assert_eq!(change(&*store, all, Change::Cancel).await.changed, 0);
    assert_eq!(cancel(&*store, vec![new]).await, (1, 0));
    database.clock().advance_ms(CLEANUP_WAITS_MS_MAX);
    assert_eq!(store.expire().await.unwrap(), 2, "nobody waits for ever");
    assert_eq!(states(&*store, begun.batch).await, [JobState::Cancelled; 3]);

    let (id, _) = waiting_flows(&*store, worker, 1).await;
    cancel(&*store, vec![job(id, 0)]).await;
    database.clock().advance_ms(AFTER_RUN_MS);
    assert!(begin(&*store, &[job(id, 0)]).await);
    let named = JobFilter {
        batch: Some(store.newest_batch().await.unwrap().unwrap()),
        ..JobFilter::default()
    };
    assert_eq!(change(&*store, named, Change::Cancel).await.changed, 1);
    no_damage(&*store).await;
}

/// A cancel frees the key of a flow and wakes its parent, also if an instance cleans up after the flow. The next job of the key begins.
pub async fn cleanups_hold_up_nobody(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let keyed = |on_duplicate| {
        let unique = Unique {
            on_duplicate,
            ..Unique::default()
        };
        let keys = PackedArray::parse("[\"key\"]").unwrap();
        vec![KeyedBatch::new(batch(1), keys, unique)]
    };
    store.submit_keyed(keyed(OnDuplicate::Skip)).await.unwrap();
    let flow = one(&*store, worker).await;
    suspend(&*store, worker, &flow, None, |_| careful(1, 1, Wake::Any)).await;
    let child = one(&*store, worker).await;
    // A child flow waits, too.
    suspend(&*store, worker, &child, None, |_| careful(1, 1, Wake::Any)).await;
    let grandchild = one(&*store, worker).await;
    store.submit_keyed(keyed(OnDuplicate::Replace)).await.unwrap();
    let first = job(flow.batch, 0);
    assert_eq!(states(&*store, flow.batch).await, [JobState::Cancelled]);
    assert_eq!(states(&*store, grandchild.batch).await, [JobState::Cancelled]);
    let next = one(&*store, worker).await;
    assert!(next.batch > grandchild.batch, "it has the key");
    // A worker runs the step of the child.
    assert!(due(&*store).await.is_empty());
    database.clock().advance_ms(AFTER_RUN_MS);
    assert_eq!(due(&*store).await, [first, job(child.batch, 0)]);
    // A flow whose child is given up goes on at once.
    suspend(&*store, worker, &next, None, |_| careful(1, 1, Wake::All)).await;
    let child = one(&*store, worker).await;
    suspend(&*store, worker, &child, None, |_| careful(1, 1, Wake::All)).await;
    assert_eq!(cancel(&*store, vec![job(child.batch, 0)]).await, (1, 0));
    let woken = one(&*store, worker).await;
    assert_eq!(woken.batch, next.batch);
    exchange(&*store, worker, vec![completed(&woken)], None).await;
    assert_eq!(states(&*store, next.batch).await, [JobState::Completed]);
    let flows = due(&*store).await;
    assert_eq!(flows.len(), 3);
    assert!(begin(&*store, &flows).await);
    complete(&*store, worker).await;
    no_damage(&*store).await;
}
