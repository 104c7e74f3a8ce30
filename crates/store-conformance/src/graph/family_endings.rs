//! Families with failed, cancelled, retried or deleted jobs.

use gristmill_model::limits::RESCUES_MAX;
use gristmill_model::{After, ChildBatch, JobState, NewBatch, OnFailure, Suspended, Timestamp};
use gristmill_store::{Change, JobFilter, NewRun, RunAdvance, RunState, Selection};

use crate::Database;
use crate::fixture::*;
use crate::graph::families::*;

/// With this policy, a child that does not complete ends its siblings and its parent, and no other job.
pub async fn a_failed_child_ends_its_parent(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(2), |parent| spawn(parent, 3)).await;
    let next = submit(
        &*store,
        NewBatch {
            after: vec![After::job(job(id, 0))],
            ..once(1)
        },
    )
    .await;
    let children = only(claim(&*store, worker, 5).await);
    let first = completed_at(&children, &positions("0"));
    exchange(&*store, worker, vec![first], None).await;
    fail(&*store, worker, &children, "2").await;
    assert_eq!(states(&*store, id).await, [JobState::Dead, JobState::Blocked]);
    assert_eq!(states(&*store, next).await, [JobState::Cancelled]);
    let expected = [
        JobState::Completed,
        JobState::Cancelled,
        JobState::Dead,
        JobState::Running,
        JobState::Running,
        JobState::Waiting,
    ];
    assert_eq!(states(&*store, children.batch).await, expected);
    let revoked = store.heartbeat(worker, Default::default()).await.unwrap().revoked;
    assert_eq!(revoked[0].positions.to_string(), "1");
    let details = store.job(job(id, 0)).await.unwrap().unwrap();
    let failure = &details.failures[0];
    assert_eq!(failure.error.error_type, "children");
    assert_eq!(
        failure.error.message,
        format!("job {}:2, a child of it, ended as dead", children.batch)
    );
    assert_eq!((failure.attempt, details.row.attempt), (1, 1));
    // The other family continues.
    let late = completed_at(&children, &positions("1,3-4"));
    let answer = exchange(&*store, worker, vec![late], Some(want(10))).await;
    assert_eq!(answer.receipts[0].refused.to_string(), "1");
    let last = only(answer.lease);
    assert_eq!(last.positions.to_string(), "5");
    let answer = exchange(&*store, worker, vec![completed(&last)], Some(want(10))).await;
    assert_eq!(held(&answer.lease), [format!("{id}:1")]);
}

/// A parent can wait for all of its children, however they end. A dead child has no value, and shows its error.
pub async fn failures_are_collected(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(1), |parent| collecting(parent, 4)).await;
    let children = only(claim(&*store, worker, 3).await);
    fail(&*store, worker, &children, "1").await;
    let named = Selection::Jobs(vec![job(children.batch, 2), job(children.batch, 3)]);
    assert_eq!(change(&*store, named, Change::Cancel).await.changed, 2);
    assert_eq!(states(&*store, id).await, [JobState::Blocked]);
    let last = completed_at(&children, &positions("0"));
    let answer = exchange(&*store, worker, vec![last], Some(want(10))).await;
    assert_eq!(held(&answer.lease), [format!("{id}:0")]);
    assert_eq!(
        told(&*store, id, 0).await,
        ["0 completed \"0.0\"", "1 dead no", "2 cancelled ", "3 cancelled "]
    );
    let counts = store.job(job(id, 0)).await.unwrap().unwrap().children.unwrap();
    assert_eq!((counts.completed, counts.dead, counts.cancelled), (1, 1, 2));
}

/// A failing grandchild ends its ancestors one after the other, and all of their descendants.
pub async fn a_failure_ends_all_generations(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(1), |parent| spawn(parent, 3)).await;
    let middle = only(claim(&*store, worker, 2).await);
    let report = suspended_at(&middle, &positions("0-1"), |parent| spawn(parent, 2));
    let answer = exchange(&*store, worker, vec![report], Some(want(1))).await;
    let other = only(answer.lease);
    assert_eq!(
        (other.batch, other.positions.to_string().as_str()),
        (middle.batch, "2")
    );
    let last = only(claim(&*store, worker, 1).await);
    fail(&*store, worker, &last, "0").await;
    assert_eq!(states(&*store, id).await, [JobState::Dead]);
    assert_eq!(
        states(&*store, middle.batch).await,
        [JobState::Dead, JobState::Cancelled, JobState::Cancelled]
    );
    let ended = [
        JobState::Dead,
        JobState::Cancelled,
        JobState::Cancelled,
        JobState::Cancelled,
    ];
    assert_eq!(states(&*store, last.batch).await, ended);
    assert_eq!(claim(&*store, worker, 10).await, None);
}

/// A worker with several children of one parent dies once too often. All of these children are dead, and so is their parent.
pub async fn children_die_with_their_worker(database: &dyn Database) {
    let store = database.open().await;
    let first = worker(&*store).await;
    let id = suspend(&*store, first, batch(1), |parent| {
        spawn(parent, 2).batch(ChildBatch::new("other", payloads(2)))
    })
    .await;
    let mut batches = Vec::new();
    for round in 0..=RESCUES_MAX {
        let worker = worker(&*store).await;
        let lease = claim(&*store, worker, 10).await.unwrap();
        batches = lease.slices.iter().map(|slice| slice.batch).collect();
        let rescued = store.rescue(Timestamp(0), vec![worker]).await.unwrap();
        let expected = if round < RESCUES_MAX { (4, 0) } else { (0, 4) };
        assert_eq!((rescued.jobs, rescued.dead), expected);
    }
    assert_eq!(batches.len(), 2);
    for children in batches {
        assert_eq!(states(&*store, children).await, [JobState::Dead; 2]);
    }
    assert_eq!(states(&*store, id).await, [JobState::Dead]);
}

/// Children that were spawned under a lost lease are not stored. Neither are the children of jobs that were cancelled
/// meanwhile.
pub async fn late_reports_spawn_nothing(database: &dyn Database) {
    let store = database.open().await;
    let stale = worker(&*store).await;
    let id = submit(&*store, batch(3)).await;
    let slice = only(claim(&*store, stale, 3).await);
    let report = suspended_at(&slice, &slice.positions, |parent| spawn(parent, 2));
    change(&*store, job(id, 1), Change::Cancel).await;
    let partly = Suspended::select(&report.suspended[0], &positions("0-1")).unwrap();
    let partly = gristmill_model::Report {
        suspended: vec![partly],
        ..report.clone()
    };
    let receipt = exchange(&*store, stale, vec![partly], None)
        .await
        .receipts
        .remove(0);
    assert_eq!(
        (
            receipt.accepted.to_string().as_str(),
            receipt.refused.to_string().as_str()
        ),
        ("0", "1")
    );
    store.rescue(Timestamp(0), vec![stale]).await.unwrap();
    let receipt = exchange(&*store, stale, vec![report], None)
        .await
        .receipts
        .remove(0);
    assert_eq!(receipt.refused, slice.positions);
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!(
        (counts.waiting, counts.blocked, counts.cancelled, counts.total()),
        (3, 1, 1, 5)
    );
    let fresh = worker(&*store).await;
    let lease = claim(&*store, fresh, 10).await.unwrap();
    let payloads: Vec<&str> = lease.slices.iter().map(|slice| slice.payloads.as_str()).collect();
    assert_eq!(payloads, ["[2]", "[\"0.0\"\n,\"0.1\"]"]);
}

/// The cancellation of a parent also cancels its descendants, even running ones. Jobs that wait for them continue or end.
pub async fn cancelled_parents_take_their_children(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(2), |parent| spawn(parent, 2)).await;
    let middle = only(claim(&*store, worker, 1).await);
    let report = suspended_at(&middle, &positions("0"), |parent| spawn(parent, 2));
    exchange(&*store, worker, vec![report], None).await;
    let rest = only(claim(&*store, worker, 3).await);
    assert_eq!(
        (rest.batch, rest.positions.to_string().as_str()),
        (middle.batch, "1-3")
    );
    let last = only(claim(&*store, worker, 1).await);
    let after = After::batch(last.batch).on_failure(OnFailure::Ignore);
    let next = submit(
        &*store,
        NewBatch {
            after: vec![after],
            ..once(1)
        },
    )
    .await;
    let changed = change(&*store, job(id, 0), Change::Cancel).await;
    assert_eq!((changed.changed, changed.unchanged), (1, 0));
    assert_eq!(
        states(&*store, id).await,
        [JobState::Cancelled, JobState::Blocked]
    );
    let (gone, left) = (JobState::Cancelled, JobState::Running);
    assert_eq!(states(&*store, middle.batch).await, [gone, gone, left, left]);
    assert_eq!(states(&*store, last.batch).await, [gone, gone]);
    assert_eq!(states(&*store, next).await, [JobState::Waiting]);
    let revoked = store.heartbeat(worker, Default::default()).await.unwrap().revoked;
    let mut revoked: Vec<String> = revoked
        .iter()
        .map(|revoked| format!("{}:{}", revoked.batch, revoked.positions))
        .collect();
    revoked.sort_unstable();
    assert_eq!(
        revoked,
        [format!("{}:1", middle.batch), format!("{}:0", last.batch)]
    );
    // A cancelled child is a failure, even if somebody cancels it by hand.
    change(&*store, job(middle.batch, 3), Change::Cancel).await;
    assert_eq!(states(&*store, id).await, [gone, JobState::Dead]);
    assert_eq!(states(&*store, middle.batch).await, [gone; 4]);
}

/// A dead parent that is retried by hand starts from the beginning, as often as it is retried.
pub async fn dead_parents_begin_anew(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(1), |parent| spawn(parent, 1)).await;
    for round in 1..=2 {
        let child = only(claim(&*store, worker, 10).await);
        fail(&*store, worker, &child, "0").await;
        assert_eq!(states(&*store, id).await, [JobState::Dead]);
        let details = store.job(job(id, 0)).await.unwrap().unwrap();
        assert_eq!(details.failures.len(), round);
        assert_eq!(change(&*store, job(id, 0), Change::Retry).await.changed, 1);
        let slice = only(claim(&*store, worker, 10).await);
        assert_eq!((slice.batch, slice.attempt, slice.memos.clone()), (id, 1, None));
        let report = suspended_at(&slice, &slice.positions, |parent| spawn(parent, 1));
        exchange(&*store, worker, vec![report], None).await;
    }
    complete(&*store, worker).await;
    complete(&*store, worker).await;
    assert_eq!(states(&*store, id).await, [JobState::Completed]);
}

/// A parent that still waits also waits for a failed child that is retried by hand.
pub async fn a_retried_child_is_waited_for(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(1), |parent| {
        collecting(parent, 2).batch(ChildBatch::new("other", payloads(1)))
    })
    .await;
    let lease = claim(&*store, worker, 10).await.unwrap();
    let (children, other) = (&lease.slices[0], &lease.slices[1]);
    fail(&*store, worker, children, "0-1").await;
    let retried = change(&*store, job(children.batch, 1), Change::Retry).await;
    assert_eq!(retried.changed, 1);
    let again = only(claim(&*store, worker, 10).await);
    exchange(&*store, worker, vec![completed(other)], None).await;
    assert_eq!(states(&*store, id).await, [JobState::Blocked]);
    let answer = exchange(&*store, worker, vec![completed(&again)], Some(want(10))).await;
    assert_eq!(held(&answer.lease), [format!("{id}:0")]);
    assert_eq!(
        told(&*store, id, 0).await,
        ["0 dead no", "1 completed \"0.1\"", "0 completed 0"]
    );
}

/// The deletion of a run cancels the children of its jobs.
pub async fn a_deleted_run_takes_its_children(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let run = store
        .create_run(NewRun {
            name: "run".to_owned(),
            description: String::new(),
        })
        .await
        .unwrap();
    let advance = RunAdvance {
        run: run.id,
        progress: Default::default(),
        state: RunState::Submitting,
    };
    store.submit(vec![batch(1)], Some(advance)).await.unwrap();
    let slice = only(claim(&*store, worker, 10).await);
    let report = suspended_at(&slice, &slice.positions, |parent| spawn(parent, 2));
    exchange(&*store, worker, vec![report], None).await;
    let child = only(claim(&*store, worker, 1).await);
    store.delete_run(run.id).await.unwrap();
    assert_eq!(states(&*store, child.batch).await, [JobState::Cancelled; 2]);
    let details = store.job(job(child.batch, 0)).await.unwrap().unwrap();
    assert_eq!(details.row.state, JobState::Cancelled);
    let refused = exchange(&*store, worker, vec![completed(&child)], Some(want(10))).await;
    assert_eq!((refused.receipts[0].refused.len(), refused.lease), (1, None));
}
