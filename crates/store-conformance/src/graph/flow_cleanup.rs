//! Flows that clean up after a cancel.

use gristmill_model::{
    BatchId, JobId, JobState, KeyedBatch, LeasedSlice, OnDuplicate, PackedArray, Report, Spawn, Unique, Wake,
    WorkerId,
};
use gristmill_store::{Change, JobFilter, Store};

use crate::Database;
use crate::fixture::*;
use crate::graph::families::{complete, told};
use crate::graph::flows::{nothing, one, prune_ended, step, suspend};

/// How long the flows here may clean up.
const CLEANUP_MS: u64 = 1_000;

/// A step of a flow that may clean up.
fn careful(number: u32, count: u32, wake: Wake) -> Spawn {
    Spawn {
        cleanup_ms: Some(CLEANUP_MS),
        ..step(number, "step", count, wake)
    }
}

/// Flows of which each waits for children, and their first child.
async fn waiting_flows(store: &dyn Store, worker: WorkerId, count: u32) -> (BatchId, LeasedSlice) {
    let id = submit(store, batch(count)).await;
    let flows = one(store, worker).await;
    suspend(store, worker, &flows, None, |_| careful(1, 2, Wake::Any)).await;
    (id, one(store, worker).await)
}

async fn cancel(store: &dyn Store, jobs: Vec<JobId>) -> (u64, u64) {
    let changed = change(store, jobs, Change::Cancel).await;
    (changed.changed, changed.unchanged)
}

fn memo(slice: &LeasedSlice) -> String {
    slice.memos.as_ref().unwrap().as_str().to_owned()
}

/// A report whose jobs the lease no longer holds.
async fn refused(store: &dyn Store, worker: WorkerId, report: Report) {
    let reported = report.positions();
    let receipts = exchange(store, worker, vec![report], None).await.receipts;
    assert_eq!((&receipts[0].refused, receipts[0].dead.len()), (&reported, 0));
}

/// Lets a flow take one more step after its cancel. Returns its next run.
async fn take_step(store: &dyn Store, worker: WorkerId, flow: JobId) -> LeasedSlice {
    let woken = one(store, worker).await;
    assert_eq!((woken.batch, woken.attempt), (flow.batch, 1));
    assert_eq!(woken.positions, (flow.position..flow.position + 1).into());
    assert_eq!(memo(&woken), r#"[[1,{"cancelled":true,"seen":[]}]]"#);
    suspend(store, worker, &woken, Some(2), |_| careful(2, 1, Wake::All)).await;
    complete(store, worker).await;
    let woken = one(store, worker).await;
    assert_eq!(memo(&woken), r#"[[1,{"cancelled":true,"seen":[]},2]]"#);
    let told = told(store, flow.batch, flow.position).await;
    assert_eq!((told.len(), told[2].as_str()), (3, "0 completed 0"));
    woken
}

/// A cancelled flow loses its open children, runs again, and may take more steps. It ends as cancelled whatever it does.
pub async fn cancelled_flows_clean_up(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let (id, children) = waiting_flows(&*store, worker, 3).await;
    let states_of_children = async || states(&*store, children.batch).await;
    assert_eq!(cancel(&*store, vec![job(id, 0)]).await, (1, 0));
    let (cancelled, running) = (JobState::Cancelled, JobState::Running);
    assert_eq!(states_of_children().await[..3], [cancelled, cancelled, running]);
    let woken = take_step(&*store, worker, job(id, 0)).await;
    refused(&*store, worker, completed(&woken)).await;
    // The next one runs when it is cancelled.
    exchange(
        &*store,
        worker,
        vec![completed_at(&children, &positions("2"))],
        None,
    )
    .await;
    let before = one(&*store, worker).await;
    assert_eq!(before.positions.to_string(), "1");
    assert_eq!(cancel(&*store, vec![job(id, 1)]).await, (1, 0));
    assert_eq!(states_of_children().await[2..4], [JobState::Completed, cancelled]);
    refused(&*store, worker, completed(&before)).await;
    let woken = take_step(&*store, worker, job(id, 1)).await;
    refused(&*store, worker, failed_at(&woken, &positions("1"), &error())).await;
    assert_eq!(
        states(&*store, id).await,
        [cancelled, cancelled, JobState::Blocked]
    );
    let failed = store.job(job(id, 1)).await.unwrap().unwrap();
    let message = error().message;
    assert_eq!(failed.row.error.as_deref(), Some(&*message), "its error is kept");
    assert_eq!(store.next_expiry().await.unwrap(), None);
    // A retry would cancel it again.
    let retried = change(&*store, vec![job(id, 0), job(id, 1)], Change::Retry).await;
    assert_eq!((retried.changed, retried.unchanged), (0, 2));
    no_damage(&*store).await;
    cancel(&*store, vec![job(id, 2)]).await;
    cancel(&*store, vec![job(id, 2)]).await;
    prune_ended(&*store).await;
    no_damage(&*store).await;
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().total(), 0);
}

/// Its time ends a flow that cleans up, whether it runs, waits for a worker or waits for a step. So does a second cancel.
pub async fn cleanups_end_in_time(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let (id, _) = waiting_flows(&*store, worker, 5).await;
    let all: Vec<JobId> = (0..5).map(|position| job(id, position)).collect();
    assert_eq!(cancel(&*store, all).await, (5, 0));
    let moment = store.now().plus_ms(1_000);
    assert_eq!(store.next_expiry().await.unwrap(), Some(moment));
    let woken = one(&*store, worker).await;
    assert_eq!(woken.positions.len(), 5);
    let waits = suspended_at(&woken, &positions("0-1"), |_| careful(2, 1, Wake::All));
    exchange(&*store, worker, vec![waits], None).await;
    let anew = suspended_at(&woken, &positions("4"), |_| careful(2, 0, Wake::Anew));
    refused(&*store, worker, anew).await;
    exchange(&*store, worker, vec![released_at(&woken, &positions("2"))], None).await;
    assert_eq!(cancel(&*store, vec![job(id, 1)]).await, (1, 0));
    let now = states(&*store, id).await;
    assert_eq!(
        now,
        [
            JobState::Blocked,
            JobState::Cancelled,
            JobState::Waiting,
            JobState::Running,
            JobState::Cancelled
        ]
    );
    database.clock().advance_ms(999);
    assert_eq!(store.expire().await.unwrap(), 0);
    database.clock().advance_ms(1);
    assert_eq!(store.expire().await.unwrap(), 3);
    assert_eq!(states(&*store, id).await, [JobState::Cancelled; 5]);
    assert_eq!(store.next_expiry().await.unwrap(), None);
    refused(&*store, worker, completed_at(&woken, &positions("3"))).await;
    nothing(&*store, worker).await;
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.cancelled, counts.total()), (17, 17));
    no_damage(&*store).await;
}

/// A flow that loses its parent cleans up, and a second loss does not stop it. A job that takes its key does. One that has not
/// waited yet, and one that says nothing of a cleanup, end at once.
pub async fn cleanups_outlast_their_parents(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let parent = submit(&*store, batch(1)).await;
    let flow = one(&*store, worker).await;
    suspend(&*store, worker, &flow, None, |_| careful(1, 2, Wake::Any)).await;
    let children = one(&*store, worker).await;
    let waits = suspended_at(&children, &positions("0"), |_| careful(1, 1, Wake::All));
    exchange(&*store, worker, vec![waits], None).await;
    let grandchild = one(&*store, worker).await;
    assert_eq!(cancel(&*store, vec![job(parent, 0)]).await, (1, 0));
    assert_eq!(
        states(&*store, children.batch).await,
        [JobState::Waiting, JobState::Cancelled],
        "the other one ran for the first time"
    );
    assert_eq!(states(&*store, grandchild.batch).await, [JobState::Cancelled]);
    assert_eq!(cancel(&*store, vec![job(parent, 0)]).await, (1, 0));
    assert_eq!(states(&*store, parent).await, [JobState::Cancelled]);
    let child = one(&*store, worker).await;
    assert_eq!(
        (child.batch, child.positions.to_string().as_str()),
        (children.batch, "0")
    );
    suspend(&*store, worker, &child, None, |_| careful(2, 1, Wake::All)).await;
    complete(&*store, worker).await;
    let child = one(&*store, worker).await;
    refused(&*store, worker, completed(&child)).await;
    assert_eq!(
        states(&*store, children.batch).await,
        [JobState::Cancelled, JobState::Cancelled]
    );

    let replacing = || {
        let unique = Unique {
            on_duplicate: OnDuplicate::Replace,
            ..Unique::default()
        };
        vec![KeyedBatch::new(
            batch(1),
            PackedArray::parse("[\"key\"]").unwrap(),
            unique,
        )]
    };
    store.submit_keyed(replacing()).await.unwrap();
    let flow = one(&*store, worker).await;
    suspend(&*store, worker, &flow, None, |_| careful(1, 1, Wake::All)).await;
    store.submit_keyed(replacing()).await.unwrap();
    assert_eq!(states(&*store, flow.batch).await, [JobState::Cancelled]);
    no_damage(&*store).await;
}
