//! Flows: jobs that suspend step by step, and keep their memos and children.

use std::collections::BTreeMap;

use gristmill_model::limits::GENERATIONS_MAX;
use gristmill_model::{
    After, BatchId, Clock, JobState, LeasedSlice, NewBatch, PackedArray, Positions, Spawn, Wake, WorkerId,
};
use gristmill_store::{Change, JobFilter, Page, PruneOptions, Selection, Store, Suspension};

use crate::Database;
use crate::fixture::*;
use crate::graph::families::{complete, told};

/// A step with children of a kind. Its memo is its number.
pub(super) fn step(number: u32, kind: &str, count: u32, wake: Wake) -> Spawn {
    let spawn = Spawn::new().children(kind, 0..count).unwrap().flow(wake);
    spawn.memo(&number).unwrap()
}

/// Suspends all jobs of a slice. `seen` is the number of ended children that each has seen, if others are open.
pub(super) async fn suspend(
    store: &dyn Store,
    worker: WorkerId,
    slice: &LeasedSlice,
    seen: Option<u32>,
    spawn: impl Fn(u32) -> Spawn,
) {
    let mut report = suspended_at(slice, &slice.positions, spawn);
    for suspended in &mut report.suspended {
        suspended.seen = seen
            .iter()
            .flat_map(|seen| slice.positions.iter().map(|_| *seen))
            .collect();
    }
    let receipts = exchange(store, worker, vec![report], None).await.receipts;
    assert_eq!(
        (&receipts[0].accepted, receipts[0].dead.len()),
        (&slice.positions, 0)
    );
}

pub(super) async fn suspensions(store: &dyn Store, batch: BatchId, flow: u32) -> Vec<Suspension> {
    let jobs = Positions::from(flow..flow + 1);
    store.suspensions(batch, &jobs).await.unwrap().remove(0)
}

pub(super) async fn one(store: &dyn Store, worker: WorkerId) -> LeasedSlice {
    only(claim(store, worker, 10_000).await)
}

/// Prunes all batches whose jobs have ended.
pub(super) async fn prune_ended(store: &dyn Store) {
    let options = PruneOptions {
        finished_before: store.now().plus_ms(1),
        keep_batches: 0,
        dead_too: true,
        dry_run: false,
    };
    store.prune(options).await.unwrap();
}

pub(super) async fn nothing(store: &dyn Store, worker: WorkerId) {
    assert_eq!(held(&claim(store, worker, 10_000).await), [""; 0]);
}

fn memos(slice: &LeasedSlice) -> &str {
    slice.memos.as_ref().map_or("none", PackedArray::as_str)
}

/// A flow gets the memos and children of all of its steps, and goes on with the attempt.
pub async fn steps_keep_their_memos_and_children(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, batch(3)).await;
    let first = one(&*store, worker).await;
    suspend(&*store, worker, &first, None, |_| step(1, "a", 1, Wake::All)).await;
    complete(&*store, worker).await;
    let second = one(&*store, worker).await;
    assert_eq!((second.batch, memos(&second)), (id, "[[1]\n,[1]\n,[1]]"));
    suspend(&*store, worker, &second, None, |_| step(2, "b", 2, Wake::All)).await;
    let children = one(&*store, worker).await;
    let done = completed_at(&children, &positions("0-3"));
    exchange(&*store, worker, vec![done], None).await;
    let third = one(&*store, worker).await;
    assert_eq!(third.positions.to_string(), "0-1");
    assert_eq!((memos(&third), third.attempt), ("[[1,2]\n,[1,2]]", 1));
    assert_eq!(
        told(&*store, id, 1).await,
        ["1 completed 0", "2 completed 0", "3 completed 1"]
    );
    assert_eq!(
        told(&*store, id, 2).await,
        ["2 completed 0", "4 waiting ", "5 waiting "]
    );
    let suspensions = suspensions(&*store, id, 2).await;
    let described: Vec<(String, Option<Wake>, String)> = suspensions
        .into_iter()
        .map(|step| (step.memo, step.flow, step.children[0].positions.to_string()))
        .collect();
    let expected = [("1", "2"), ("2", "4-5")];
    assert_eq!(
        described,
        expected.map(|(memo, children)| (memo.to_owned(), Some(Wake::All), children.to_owned()))
    );
    exchange(&*store, worker, vec![completed(&third)], None).await;
    assert_eq!(
        states(&*store, id).await,
        [JobState::Completed, JobState::Completed, JobState::Blocked]
    );
}

/// A flow that wakes on any child runs again when one ends. The others stay open, and it waits for them again.
pub async fn open_children_stay_with_their_flow(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, batch(2)).await;
    let first = one(&*store, worker).await;
    suspend(&*store, worker, &first, None, |_| step(1, "a", 3, Wake::Any)).await;
    let children = one(&*store, worker).await;
    let end = |which: &str| {
        let report = completed_at(&children, &positions(which));
        let store = store.clone();
        async move {
            held(
                &exchange(&*store, worker, vec![report], Some(want(10)))
                    .await
                    .lease,
            )
        }
    };
    let lease = exchange(
        &*store,
        worker,
        vec![completed_at(&children, &positions("1"))],
        Some(want(10)),
    )
    .await
    .lease;
    let woken = only(lease);
    assert_eq!((woken.batch, woken.positions.to_string().as_str()), (id, "0"));
    assert_eq!(
        told(&*store, id, 0).await,
        ["0 waiting ", "1 completed 1", "2 waiting "]
    );
    // It waits for the open ones of before and for a new one.
    suspend(&*store, worker, &woken, Some(1), |_| step(2, "b", 1, Wake::Any)).await;
    assert_eq!(held(&claim(&*store, worker, 10).await).len(), 1, "the new child");
    assert_eq!(end("0").await, [format!("{id}:0")]);
    assert_eq!(end("3-5").await, [format!("{id}:1")], "the other flow, once");
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.running, counts.blocked), (4, 0));
}

/// A child that ends while its flow runs wakes the flow as soon as it suspends.
pub async fn what_ends_meanwhile_is_news(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, batch(1)).await;
    let first = one(&*store, worker).await;
    suspend(&*store, worker, &first, None, |_| step(1, "a", 3, Wake::Any)).await;
    let children = one(&*store, worker).await;
    let end = |which: &str| completed_at(&children, &positions(which));
    exchange(&*store, worker, vec![end("0")], None).await;
    let woken = one(&*store, worker).await;
    exchange(&*store, worker, vec![end("1")], None).await;
    suspend(&*store, worker, &woken, Some(1), |_| step(2, "a", 0, Wake::Any)).await;
    let woken = one(&*store, worker).await;
    assert_eq!((woken.batch, memos(&woken)), (id, "[[1,2]]"));
    // A step that wants all waits for the last one, and for nothing that has ended.
    suspend(&*store, worker, &woken, Some(2), |_| step(3, "a", 0, Wake::All)).await;
    nothing(&*store, worker).await;
    exchange(&*store, worker, vec![end("2")], None).await;
    let woken = one(&*store, worker).await;
    assert_eq!(memos(&woken), "[[1,2,3]]");
    // Nothing is open any more, so a step without children goes on at once.
    suspend(&*store, worker, &woken, None, |_| step(4, "a", 0, Wake::All)).await;
    let woken = one(&*store, worker).await;
    exchange(&*store, worker, vec![completed(&woken)], None).await;
    assert_eq!(states(&*store, id).await, [JobState::Completed]);
}

/// A step that wants all waits for open children of earlier steps, too.
pub async fn all_means_all_steps(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    submit(&*store, batch(1)).await;
    let first = one(&*store, worker).await;
    suspend(&*store, worker, &first, None, |_| step(1, "a", 2, Wake::Any)).await;
    let children = one(&*store, worker).await;
    let done = completed_at(&children, &positions("0"));
    exchange(&*store, worker, vec![done], None).await;
    let woken = one(&*store, worker).await;
    suspend(&*store, worker, &woken, Some(1), |_| step(2, "b", 1, Wake::All)).await;
    let new = one(&*store, worker).await;
    exchange(&*store, worker, vec![completed(&new)], None).await;
    nothing(&*store, worker).await;
    let done = completed_at(&children, &positions("1"));
    exchange(&*store, worker, vec![done], None).await;
    assert_eq!(memos(&one(&*store, worker).await), "[[1,2]]");
}

/// A flow that ends, is cancelled or dies takes its open children with it.
pub async fn ended_flows_leave_nothing_open(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, once(4)).await;
    let flows = one(&*store, worker).await;
    suspend(&*store, worker, &flows, None, |_| step(1, "a", 2, Wake::Any)).await;
    let children = one(&*store, worker).await;
    let done = completed_at(&children, &positions("0,2,4,6"));
    exchange(&*store, worker, vec![done], None).await;
    let woken = one(&*store, worker).await;
    let done = completed_at(&woken, &positions("0"));
    let failed = failed_at(&woken, &positions("1"), &error());
    exchange(&*store, worker, vec![done, failed], None).await;
    assert_eq!(
        states(&*store, children.batch).await[..4],
        [
            JobState::Completed,
            JobState::Cancelled,
            JobState::Completed,
            JobState::Cancelled
        ]
    );
    // One is cancelled while it runs, the other while it waits again.
    let rest = released_at(&woken, &positions("3"));
    exchange(&*store, worker, vec![rest], None).await;
    change(&*store, vec![job(id, 2), job(id, 3)], Change::Cancel).await;
    assert_eq!(
        states(&*store, children.batch).await[4..],
        [
            JobState::Completed,
            JobState::Cancelled,
            JobState::Completed,
            JobState::Cancelled
        ]
    );
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!(
        (counts.running, counts.waiting, counts.blocked, counts.total()),
        (0, 0, 0, 12)
    );
}

/// A dead flow that is retried goes on after its last step.
pub async fn a_retried_flow_goes_on(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, once(2)).await;
    let flows = one(&*store, worker).await;
    suspend(&*store, worker, &flows, None, |_| step(1, "a", 1, Wake::All)).await;
    complete(&*store, worker).await;
    let woken = one(&*store, worker).await;
    let failed = failed_at(&woken, &positions("0-1"), &error());
    exchange(&*store, worker, vec![failed], None).await;
    assert_eq!(states(&*store, id).await, [JobState::Dead; 2]);
    change(&*store, job(id, 1), Change::Retry).await;
    let again = one(&*store, worker).await;
    assert_eq!(
        (again.positions.to_string().as_str(), memos(&again)),
        ("1", "[[1]]")
    );
    assert_eq!(told(&*store, id, 1).await, ["1 completed 0"]);
}

/// Children that a flow gives up are cancelled with their own, and do not wake it.
pub async fn given_up_children_are_cancelled(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, batch(2)).await;
    let flows = one(&*store, worker).await;
    suspend(&*store, worker, &flows, None, |_| step(1, "a", 3, Wake::Any)).await;
    let steps = one(&*store, worker).await;
    // The child 2 of the first flow has a child of its own, and its child 0 has ended.
    let deeper = suspended_at(&steps, &positions("2"), |_| step(1, "deep", 1, Wake::All));
    exchange(
        &*store,
        worker,
        vec![deeper, completed_at(&steps, &positions("0,3"))],
        None,
    )
    .await;
    let lease = claim(&*store, worker, 10).await.unwrap();
    let woken = lease.slices.iter().find(|slice| slice.batch == id).unwrap();
    let deep = lease.slices.iter().find(|slice| slice.batch != id).unwrap();
    assert_eq!(woken.positions.to_string(), "0-1");
    let mut report = suspended_at(woken, &positions("0-1"), |_| step(2, "b", 1, Wake::Any));
    report.suspended[0].seen = vec![1, 1];
    report.suspended[0].given_up = vec![
        vec![job(steps.batch, 0), job(steps.batch, 2)],
        vec![job(steps.batch, 4), job(steps.batch, 5), job(steps.batch, 1)],
    ];
    exchange(&*store, worker, vec![report], None).await;
    let told_states = [JobState::Completed, JobState::Running, JobState::Cancelled];
    let others = [JobState::Completed, JobState::Cancelled, JobState::Cancelled];
    assert_eq!(states(&*store, steps.batch).await, [told_states, others].concat());
    assert_eq!(states(&*store, deep.batch).await, [JobState::Cancelled]);
    let next = one(&*store, worker).await;
    assert_eq!(next.positions.to_string(), "0-1", "the new steps, and no flow");
    // The store refuses the report of a cancelled job, and wakes nobody.
    let late = completed_at(&steps, &positions("4-5"));
    assert_eq!(
        exchange(&*store, worker, vec![late], None).await.receipts[0]
            .accepted
            .len(),
        0
    );
    nothing(&*store, worker).await;
    exchange(&*store, worker, vec![completed_at(&next, &positions("1"))], None).await;
    let woken = one(&*store, worker).await;
    assert_eq!((woken.batch, woken.positions.to_string().as_str()), (id, "1"));
    let told = told(&*store, id, 1).await;
    let told: Vec<&str> = told.iter().filter_map(|one| one.split(' ').nth(1)).collect();
    assert_eq!(told, ["completed", "cancelled", "cancelled", "completed"]);
    // Nothing is open any more, so a flow that gives up all that it waits for goes on at once.
    exchange(&*store, worker, vec![completed_at(&next, &positions("0"))], None).await;
    let woken = one(&*store, worker).await;
    let mut report = suspended_at(&woken, &positions("0"), |_| step(3, "b", 0, Wake::All));
    report.suspended[0].seen = vec![3];
    report.suspended[0].given_up = vec![vec![job(steps.batch, 1)]];
    exchange(&*store, worker, vec![report], None).await;
    assert_eq!(one(&*store, worker).await.batch, id);
}

/// A flow that begins itself, and waits for it, fails at a depth with a name. Nothing of that step is stored.
pub async fn flows_nest_to_a_limit(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    submit(&*store, once(1)).await;
    for _ in 0..GENERATIONS_MAX {
        let flow = one(&*store, worker).await;
        suspend(&*store, worker, &flow, None, |_| step(1, KIND, 1, Wake::All)).await;
    }
    let flow = one(&*store, worker).await;
    let report = suspended_at(&flow, &flow.positions, |_| step(1, KIND, 1, Wake::All));
    let receipts = exchange(&*store, worker, vec![report], None).await.receipts;
    assert_eq!(receipts[0].dead, flow.positions);
    let details = store.job(job(flow.batch, 0)).await.unwrap().unwrap();
    let message = &details.failures[0].error.message;
    assert!(message.contains("generation 101 of children"), "{message}");
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!(counts.total(), u64::from(GENERATIONS_MAX) + 1);
    // The flow above it gets the failure, and can go on.
    let above = one(&*store, worker).await;
    assert_eq!(told(&*store, above.batch, 0).await.len(), 1);
}

/// A retry by hand leaves the steps of flows as they are: a flow may have used their outcomes.
pub async fn steps_are_not_retried_by_hand(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, once(1)).await;
    let flow = one(&*store, worker).await;
    suspend(&*store, worker, &flow, None, |_| step(1, "a", 3, Wake::All)).await;
    let steps = one(&*store, worker).await;
    let other = submit(&*store, once(1)).await;
    change(&*store, job(other, 0), Change::Cancel).await;
    let permanent = error().permanent();
    let failed = failed_at(&steps, &positions("1"), &permanent);
    exchange(
        &*store,
        worker,
        vec![failed, completed_at(&steps, &positions("0"))],
        None,
    )
    .await;
    change(&*store, job(steps.batch, 2), Change::Cancel).await;
    for step in [1, 2] {
        let named = Selection::Jobs(vec![job(other, 0), job(steps.batch, step)]);
        let refused = store.change(named, Change::Retry).await.unwrap_err().to_string();
        let step = job(steps.batch, step);
        assert!(
            refused.starts_with(&format!("job {step} is a step of flow {id}:0, ")),
            "{refused}"
        );
    }
    assert_eq!(
        states(&*store, other).await,
        [JobState::Cancelled],
        "nothing was retried"
    );
    let completed_step = Selection::Jobs(vec![job(steps.batch, 0)]);
    assert_eq!(change(&*store, completed_step, Change::Retry).await.unchanged, 1);
    let all = Selection::Filter(JobFilter::default());
    assert_eq!(
        change(&*store, all, Change::Retry).await.changed,
        1,
        "the other job"
    );
    let kept = [JobState::Completed, JobState::Dead, JobState::Cancelled];
    assert_eq!(states(&*store, steps.batch).await, kept);
}

/// A flow that begins anew has one memo and no children, and leaves nothing open. Its attempts count from 1. What it had goes
/// with the others of its families, so that a loop without end keeps what its last round has stored.
pub async fn flows_begin_anew(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, batch(2)).await;
    let anew = |_| Spawn::new().flow(Wake::Anew).memo(&7).unwrap();
    let first = one(&*store, worker).await;
    suspend(&*store, worker, &first, None, |_| step(1, "a", 2, Wake::Any)).await;
    let children = one(&*store, worker).await;
    let done = completed_at(&children, &positions("0,3"));
    exchange(&*store, worker, vec![done], None).await;
    let woken = one(&*store, worker).await;
    assert_eq!(woken.positions.to_string(), "0-1");
    // One of the two fails once before.
    let failed = failed_at(&woken, &positions("1"), &error());
    exchange(&*store, worker, vec![failed], None).await;
    let woken = LeasedSlice {
        positions: positions("0"),
        ..woken
    };
    suspend(&*store, worker, &woken, Some(1), anew).await;
    let woken = one(&*store, worker).await;
    assert_eq!((memos(&woken), woken.attempt), ("[[7]]", 1));
    assert_eq!(told(&*store, id, 0).await, [""; 0]);
    assert_eq!(told(&*store, id, 1).await, ["2 waiting ", "3 completed 1"]);
    let kept = suspensions(&*store, id, 1).await;
    assert_eq!((kept.len(), kept[0].memo.as_str()), (1, "1"));
    suspend(&*store, worker, &woken, None, |_| step(2, "b", 1, Wake::All)).await;
    complete(&*store, worker).await;
    let woken = one(&*store, worker).await;
    assert_eq!(memos(&woken), "[[7,2]]");
    exchange(&*store, worker, vec![completed(&woken)], None).await;

    database.clock().advance_ms(3_600_000);
    let again = one(&*store, worker).await;
    assert_eq!((again.positions.to_string().as_str(), again.attempt), ("1", 2));
    suspend(&*store, worker, &again, Some(1), anew).await;
    let woken = one(&*store, worker).await;
    assert_eq!((memos(&woken), woken.attempt), ("[[7]]", 1));
    assert_eq!(store.job(job(id, 1)).await.unwrap().unwrap().failures.len(), 0);
    let ends = [JobState::Completed, JobState::Cancelled];
    assert_eq!(
        states(&*store, children.batch).await,
        [ends[0], ends[1], ends[1], ends[0]]
    );
    // The children of both are nobody's, and can go while a flow is open.
    prune_ended(&*store).await;
    assert!(store.job(job(children.batch, 0)).await.unwrap().is_none());
    exchange(&*store, worker, vec![completed(&woken)], None).await;
    assert_eq!(states(&*store, id).await, [JobState::Completed; 2]);
}

/// A flow can have a memo before it has taken a step. It has no children then, and goes on as others do.
pub async fn flows_begin_with_memos(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let begins = |memos: &str| NewBatch {
        memos: Some(PackedArray::parse(memos).unwrap()),
        ..batch(2)
    };
    let refused = store.submit(vec![begins("[1]")], None).await.unwrap_err();
    assert!(refused.to_string().contains("1 memos for 2 flows"), "{refused}");
    let waits = NewBatch {
        after: vec![After::earlier(0)],
        ..begins("[30,31]")
    };
    let ids = store.submit(vec![begins("[10,11]"), waits], None).await.unwrap();
    let first = one(&*store, worker).await;
    assert_eq!((first.batch, memos(&first)), (ids[0], "[[10]\n,[11]]"));
    assert_eq!(told(&*store, ids[0], 1).await, [""; 0]);
    let kept = suspensions(&*store, ids[0], 1).await;
    assert_eq!((kept.len(), kept[0].memo.as_str()), (1, "11"));
    assert_eq!(*store.flow_kinds().await.unwrap(), [KIND.into()]);
    suspend(&*store, worker, &first, None, |_| step(2, "a", 1, Wake::All)).await;
    complete(&*store, worker).await;
    let again = one(&*store, worker).await;
    assert_eq!(memos(&again), "[[10,2]\n,[11,2]]");
    // A retry begins with the memo, too.
    exchange(&*store, worker, vec![completed(&again)], None).await;
    let second = one(&*store, worker).await;
    assert_eq!((second.batch, memos(&second)), (ids[1], "[[30]\n,[31]]"));
    let failed = failed_at(&second, &positions("0-1"), &error().permanent());
    exchange(&*store, worker, vec![failed], None).await;
    change(&*store, job(ids[1], 1), Change::Retry).await;
    assert_eq!(memos(&one(&*store, worker).await), "[[31]]");
    assert!(findings(&*store).await.is_empty());
}

/// Steps that have the kind of their flow are no flows; child flows are. That stays so when the flow has begun anew.
pub async fn steps_of_their_flows_kind_are_told_apart(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, batch(3)).await;
    let first = one(&*store, worker).await;
    let own_kind = |number, is_step| {
        let mut spawn = step(number, KIND, 2, Wake::All);
        spawn.children[0].is_step = is_step;
        spawn
    };
    suspend(&*store, worker, &first, None, |flow| own_kind(1, flow > 0)).await;
    let flows = || JobFilter {
        kind: Some(KIND.to_owned()),
        no_steps: true,
        ..JobFilter::default()
    };
    // The steps of two flows are one batch; the child flows of the other are another.
    let counts = store.counts(&flows()).await.unwrap();
    assert_eq!((counts.blocked, counts.waiting, counts.total()), (3, 2, 5));
    let of_states = |states: Vec<JobState>| JobFilter { states, ..flows() };
    let waiting = store.newest_jobs(&of_states(vec![JobState::Waiting]), 10).await;
    let waiting = waiting.unwrap();
    assert_eq!(waiting.len(), 2);
    let kinds = store.kind_counts(true).await.unwrap();
    assert_eq!((kinds.len(), kinds[0].counts), (1, counts));
    assert_eq!(store.kind_counts(false).await.unwrap()[0].counts.total(), 9);
    let lease = claim(&*store, worker, 100).await.unwrap();
    let reports: Vec<_> = lease.slices.iter().map(completed).collect();
    exchange(&*store, worker, reports, None).await;
    let woken = claim(&*store, worker, 100).await.unwrap();
    for flow in &woken.slices {
        let anew = |_| Spawn::new().flow(Wake::Anew).memo(&7).unwrap();
        suspend(&*store, worker, flow, None, anew).await;
    }
    let counts = store.counts(&flows()).await.unwrap();
    assert_eq!((counts.waiting, counts.completed, counts.total()), (3, 2, 5));
    let page = Page {
        after: None,
        limit: 100,
    };
    let done = of_states(vec![JobState::Completed]);
    assert_eq!(store.jobs(&done, page).await.unwrap().len(), 2);
    assert_eq!(store.job_ids(&flows(), None, 100).await.unwrap().len(), 2);
    prune_ended(&*store).await;
    assert_eq!(store.kind_counts(false).await.unwrap()[0].counts.total(), 3);
    assert_eq!(states(&*store, id).await, [JobState::Waiting; 3]);
    no_damage(&*store).await;
}

/// Steps come before flows that have not begun, even those of the same submit, and so do flows that wake: all in the order of their
/// flows. A child flow's steps come before their flow. A step with a delay waits for its moment.
pub async fn flows_under_way_go_first(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let submitted_at = database.clock().now();
    let id = submit(&*store, batch(6)).await;
    let claim = async |jobs_max| held(&claim(&*store, worker, jobs_max).await);
    let begun = only(crate::fixture::claim(&*store, worker, 3).await);
    database.clock().advance_ms(400);
    let later_at = database.clock().now();
    let later = submit(&*store, batch_of("a", 1)).await;
    database.clock().advance_ms(600);
    let stepped_at = database.clock().now();
    suspend(&*store, worker, &begun, None, |_| step(1, "a", 1, Wake::All)).await;
    // Each is due since it could be claimed, whatever its place: a step that stands before older jobs is not the oldest.
    let lanes = store.metrics().await.unwrap().lanes;
    let due_since: BTreeMap<_, _> = lanes
        .iter()
        .map(|lane| (&*lane.kind, lane.oldest_due_at))
        .collect();
    let expected = [("a", Some(later_at)), (KIND, Some(submitted_at))];
    assert_eq!(due_since, expected.into());
    let steps = only(crate::fixture::claim(&*store, worker, 2).await);
    assert_eq!((&*steps.kind, steps.positions.to_string().as_str()), ("a", "0-1"));
    let children = steps.batch;
    assert_eq!(children, BatchId(later.0 + 1));
    // The first step is a flow of its own, and its step comes before the steps that others have begun earlier.
    let nested = suspended_at(&steps, &positions("0"), |_| step(1, "b", 1, Wake::All));
    exchange(&*store, worker, vec![nested], None).await;
    let inner = BatchId(children.0 + 1);
    let lease = crate::fixture::claim(&*store, worker, 1).await;
    assert_eq!(held(&lease), [format!("{inner}:0")]);
    let rest = completed_at(&steps, &positions("1"));
    exchange(&*store, worker, vec![rest, completed(&only(lease))], None).await;
    // The child flow and the step that is left stand before the flows; the one that wakes before those that have not begun.
    assert_eq!(claim(2).await, [format!("{children}:0"), format!("{children}:2")]);
    let woken = only(crate::fixture::claim(&*store, worker, 1).await);
    assert_eq!((woken.batch, woken.positions.to_string().as_str()), (id, "1"));
    let delayed = |_| {
        let mut spawn = step(2, "a", 1, Wake::All);
        spawn.children[0].options.run_at = Some(stepped_at.plus_ms(5));
        spawn
    };
    suspend(&*store, worker, &woken, None, delayed).await;
    assert_eq!(claim(10).await, [format!("{id}:3-5"), format!("{later}:0")]);
    database.clock().advance_ms(5);
    assert_eq!(claim(10).await, [format!("{}:0", BatchId(inner.0 + 1))]);
    assert!(findings(&*store).await.is_empty());
}

/// A flow that begins anew goes to the end of the line, and stays there: a loop without end does not keep others waiting.
pub async fn flows_that_begin_anew_go_to_the_end(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let first_at = database.clock().now();
    let id = submit(&*store, batch(1)).await;
    let first = one(&*store, worker).await;
    database.clock().advance_ms(1_000);
    let second = submit(&*store, batch(1)).await;
    database.clock().advance_ms(1_000);
    let claim = async |jobs_max| held(&claim(&*store, worker, jobs_max).await);
    suspend(&*store, worker, &first, None, |_| {
        Spawn::new().flow(Wake::Anew).memo(&7).unwrap()
    })
    .await;
    assert_eq!(claim(1).await, [format!("{second}:0")]);
    let again = one(&*store, worker).await;
    assert_eq!(again.batch, id);
    // Another job has a place between that of the first round and that of the second.
    let mut between = batch(1);
    between.options.run_at = Some(first_at.plus_ms(1_500));
    let between = submit(&*store, between).await;
    database.clock().advance_ms(1_000);
    let last = submit(&*store, batch(1)).await;
    suspend(&*store, worker, &again, None, |_| step(1, "a", 1, Wake::All)).await;
    // The step has the place of its flow, and shows no moment before its submit.
    let shown = store.job(job(BatchId(last.0 + 1), 0)).await.unwrap().unwrap().row;
    assert_eq!(shown.run_at, Some(shown.submitted_at));
    assert_eq!(claim(1).await, [format!("{between}:0")]);
    let steps = only(crate::fixture::claim(&*store, worker, 1).await);
    assert_eq!(&*steps.kind, "a");
    // A job that a step spawns for its flow has the step's place.
    database.clock().advance_ms(1_000);
    let report = spreading_at(&steps, &steps.positions, |_| step(2, "b", 1, Wake::All));
    exchange(&*store, worker, vec![report], None).await;
    let sibling = only(crate::fixture::claim(&*store, worker, 1).await);
    assert_eq!(&*sibling.kind, "b");
    exchange(&*store, worker, vec![completed(&sibling)], None).await;
    assert_eq!(claim(10).await, [format!("{id}:0"), format!("{last}:0")]);
    no_damage(&*store).await;
}
