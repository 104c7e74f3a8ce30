//! Jobs that spawn children and wait for them.

use std::collections::BTreeMap;

use gristmill_model::limits::TAGS_PER_JOB_MAX;
use gristmill_model::{
    After, BatchId, ChildAfter, ChildBatch, Clock, JobState, LeasedSlice, NewBatch, OnChildFailure,
    OnFailure, PackedArray, RetryPolicy, Spawn, Tag, TagCondition, Timestamp, WorkerId,
};
use gristmill_store::family::child_outcomes;
use gristmill_store::{JobFilter, PruneOptions, Store, StoreError};

use crate::Database;
use crate::fixture::*;

pub(super) const CHILD: &str = "child";

/// This many children. Their payloads are the parent's number and their own. The memo is the parent's number.
pub(super) fn spawn(parent: u32, count: u32) -> Spawn {
    let payloads = (0..count).map(|child| format!("{parent}.{child}"));
    Spawn::new()
        .children(CHILD, payloads)
        .unwrap()
        .memo(&parent)
        .unwrap()
}

pub(super) fn collecting(parent: u32, count: u32) -> Spawn {
    spawn(parent, count).on_failure(OnChildFailure::Collect)
}

/// Submits parents, and lets each wait for the children that `spawn` returns. Returns their batch.
pub(super) async fn suspend(
    store: &dyn Store,
    worker: WorkerId,
    parents: NewBatch,
    spawn: impl Fn(u32) -> Spawn,
) -> BatchId {
    let id = submit(store, parents).await;
    let slice = only(claim(store, worker, 10_000).await);
    let report = suspended_at(&slice, &slice.positions, spawn);
    let receipt = exchange(store, worker, vec![report], None)
        .await
        .receipts
        .remove(0);
    assert_eq!((&receipt.accepted, receipt.dead.len()), (&slice.positions, 0));
    id
}

/// Claims one slice, and reports all of its jobs as completed.
pub(super) async fn complete(store: &dyn Store, worker: WorkerId) -> LeasedSlice {
    let slice = only(claim(store, worker, 10_000).await);
    let receipts = exchange(store, worker, vec![completed(&slice)], None)
        .await
        .receipts;
    assert_eq!(receipts[0].accepted, slice.positions);
    slice
}

pub(super) async fn fail(store: &dyn Store, worker: WorkerId, slice: &LeasedSlice, which: &str) {
    let failed = failed_at(slice, &positions(which), &error().permanent());
    exchange(store, worker, vec![failed], None).await;
}

/// The outcomes of a job's children, as `position state value-or-error` texts.
pub(super) async fn told(store: &dyn Store, batch: BatchId, parent: u32) -> Vec<String> {
    let all = child_outcomes(store, batch, &(parent..parent + 1).into())
        .await
        .unwrap();
    let told = all[0].iter().map(|child| {
        let value = child.value.as_ref().map(|value| value.get().to_owned());
        let error = child.error.as_ref().map(|error| error.message.clone());
        format!(
            "{} {} {}",
            child.job.position,
            child.state,
            value.or(error).unwrap_or_default()
        )
    });
    told.collect()
}

/// A job waits for its children without a slot. It then runs once more: with its memo, on the same attempt, and with
/// the outcomes of its children.
pub async fn parents_wait_and_finalize(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(1), |parent| spawn(parent, 3)).await;
    let next = submit(
        &*store,
        NewBatch {
            after: vec![After::batch(id)],
            ..once(1)
        },
    )
    .await;
    assert_eq!(states(&*store, id).await, [JobState::Blocked]);
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.blocked, counts.waiting, counts.running), (2, 3, 0));
    let details = store.job(job(id, 0)).await.unwrap().unwrap();
    let children = details.children.unwrap();
    assert_eq!((children.waiting, children.total(), details.parent), (3, 3, None));
    assert_eq!(details.row.attempt, 1);

    let slice = complete(&*store, worker).await;
    assert_eq!((&*slice.kind, slice.memos.as_ref()), (CHILD, None));
    assert_eq!(slice.payloads.as_str(), "[\"0.0\"\n,\"0.1\"\n,\"0.2\"]");
    let child = store.job(job(slice.batch, 2)).await.unwrap().unwrap();
    assert_eq!((child.parent, child.children), (Some(job(id, 0)), None));
    assert!(!store.is_finished(id).await.unwrap());

    let finalizing = only(claim(&*store, worker, 10).await);
    assert_eq!((finalizing.batch, finalizing.attempt), (id, 1));
    assert_eq!(finalizing.payloads.as_str(), "[0]");
    assert_eq!(finalizing.memos.as_ref().map(PackedArray::as_str), Some("[0]"));
    assert_eq!(
        told(&*store, id, 0).await,
        [
            "0 completed \"0.0\"",
            "1 completed \"0.1\"",
            "2 completed \"0.2\""
        ]
    );
    let answer = exchange(&*store, worker, vec![completed(&finalizing)], Some(want(10))).await;
    assert_eq!(held(&answer.lease), [format!("{next}:0")]);
    assert_eq!(states(&*store, id).await, [JobState::Completed]);
}

/// The parents of one report share batches of children. Each continues when its own children have ended. A parent
/// without children continues at once.
pub async fn children_of_many_parents_share_batches(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let counts = [2, 3, 0, 1];
    let id = submit(&*store, batch(6)).await;
    let parents = only(claim(&*store, worker, 4).await);
    let suspended = suspended_at(&parents, &positions("0-3"), |parent| Spawn {
        // Each parent first spawns a child, so that all of them share a batch. The report below takes one child back.
        children: vec![ChildBatch::new(CHILD, payloads(counts[parent as usize].max(1)))],
        ..spawn(parent, 0)
    });
    assert_eq!(suspended.suspended.len(), 1);
    let mut report = suspended.clone();
    report.suspended[0].children[0].shares = vec![2, 3, 0, 1];
    let kept = positions("0-4,6");
    report.suspended[0].children[0].payloads = report.suspended[0].children[0].payloads.select(&kept);
    let batches = store.stats().await.unwrap().batches;
    let answer = exchange(&*store, worker, vec![report], Some(want(1))).await;
    assert_eq!(store.stats().await.unwrap().batches, batches + 1);
    let without = only(answer.lease);
    assert_eq!((without.batch, without.positions.to_string().as_str()), (id, "2"));
    assert_eq!(without.memos.as_ref().map(PackedArray::as_str), Some("[2]"));

    let rest = only(claim(&*store, worker, 2).await);
    assert_eq!((rest.positions.to_string().as_str(), rest.memos), ("4-5", None));
    let children = only(claim(&*store, worker, 10).await);
    assert_eq!(children.positions.to_string(), "0-5");
    let done = |which: &str| {
        let report = completed_at(&children, &positions(which));
        let store = store.clone();
        async move {
            let answer = exchange(&*store, worker, vec![report], Some(want(10))).await;
            held(&answer.lease)
        }
    };
    assert_eq!(done("1-2").await, [""; 0]);
    assert_eq!(done("0").await, [format!("{id}:0")]);
    assert_eq!(done("3,5").await, [format!("{id}:3")]);
    assert_eq!(done("4").await, [format!("{id}:1")]);
    let children = store.children(id, &positions("0-5")).await.unwrap();
    let described: Vec<String> = children
        .iter()
        .map(|children| {
            let jobs = children.jobs.iter().map(|jobs| jobs.positions.to_string());
            format!("{}: {}", children.parent, jobs.collect::<Vec<_>>().join(" "))
        })
        .collect();
    assert_eq!(described, ["0: 0-1", "1: 2-4", "2: ", "3: 5"]);
    assert_eq!(
        store
            .job(job(children[1].jobs[0].batch, 3))
            .await
            .unwrap()
            .unwrap()
            .parent,
        Some(job(id, 1))
    );
}

/// Children have their own children. Grandparents finish last.
pub async fn families_nest(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(2), |parent| spawn(parent, 2)).await;
    let mut generations = vec![id];
    for _ in 0..2 {
        let slice = only(claim(&*store, worker, 100).await);
        generations.push(slice.batch);
        let report = suspended_at(&slice, &slice.positions, |parent| spawn(parent, 2));
        exchange(&*store, worker, vec![report], None).await;
    }
    let last = complete(&*store, worker).await;
    assert_eq!(last.len(), 16);
    for generation in generations.iter().rev() {
        let slice = complete(&*store, worker).await;
        assert_eq!(slice.batch, *generation);
        assert!(slice.memos.is_some());
    }
    assert_eq!(claim(&*store, worker, 10).await, None);
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.completed, counts.total()), (30, 30));
}

/// A finalizing job keeps its memo when it comes back from a dead worker, from a leaving worker, or by release.
pub async fn finalizing_jobs_are_rescued(database: &dyn Database) {
    let store = database.open().await;
    let first = worker(&*store).await;
    let id = suspend(&*store, first, batch(3), |parent| spawn(parent, 1)).await;
    complete(&*store, first).await;
    let memos = |slice: &LeasedSlice| slice.memos.as_ref().map(|memos| memos.as_str().to_owned());
    let slice = only(claim(&*store, first, 10).await);
    assert_eq!(memos(&slice).as_deref(), Some("[0\n,1\n,2]"));
    exchange(&*store, first, vec![released_at(&slice, &positions("1"))], None).await;
    let slice = only(claim(&*store, first, 10).await);
    assert_eq!((slice.batch, memos(&slice).as_deref()), (id, Some("[1]")));
    store.rescue(Timestamp(0), vec![first]).await.unwrap();
    let second = worker(&*store).await;
    let slices = claim(&*store, second, 10).await.unwrap().slices;
    let all: Vec<(String, u32)> = slices
        .iter()
        .map(|slice| (slice.positions.to_string(), slice.rescues))
        .collect();
    assert_eq!(all.iter().map(|(_, rescues)| *rescues).max(), Some(1));
    store.leave(second, Default::default()).await.unwrap();
    let third = worker(&*store).await;
    let slices = claim(&*store, third, 10).await.unwrap().slices;
    let told: BTreeMap<String, Option<String>> = slices
        .iter()
        .map(|slice| (slice.positions.to_string(), memos(slice)))
        .collect();
    assert!(told.values().all(Option::is_some), "{told:?}");
    let reports = slices.iter().map(completed).collect();
    exchange(&*store, third, reports, None).await;
    assert_eq!(states(&*store, id).await, [JobState::Completed; 3]);
}

/// A failed finalization follows the retry policy of the job. It finalizes again without spawning its children again.
pub async fn failed_finalizers_are_tried_again(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let mut twice = batch(1);
    twice.options.retry = RetryPolicy {
        attempts_max: 2,
        delay_ms: 0,
        ..RetryPolicy::default()
    };
    let id = suspend(&*store, worker, twice, |parent| spawn(parent, 1)).await;
    complete(&*store, worker).await;
    for attempt in 1..=2 {
        let slice = only(claim(&*store, worker, 10).await);
        assert_eq!((slice.batch, slice.attempt), (id, attempt));
        assert_eq!(slice.memos.as_ref().map(PackedArray::as_str), Some("[0]"));
        let failed = failed_at(&slice, &slice.positions, &error());
        exchange(&*store, worker, vec![failed], None).await;
    }
    assert_eq!(states(&*store, id).await, [JobState::Dead]);
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().total(), 2);
}

/// A finalizing job can spawn further children, and finalizes again with these.
pub async fn a_finalizer_may_spawn_again(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(1), |parent| spawn(parent, 2)).await;
    complete(&*store, worker).await;
    let slice = only(claim(&*store, worker, 10).await);
    let again = suspended_at(&slice, &slice.positions, |_| spawn(7, 1));
    exchange(&*store, worker, vec![again], None).await;
    complete(&*store, worker).await;
    let slice = complete(&*store, worker).await;
    assert_eq!((slice.batch, slice.attempt), (id, 1));
    assert_eq!(slice.memos.as_ref().map(PackedArray::as_str), Some("[7]"));
    assert_eq!(told(&*store, id, 0).await, ["0 completed \"7.0\""]);
}

/// Ended children are kept until the jobs of their parents' batch have ended.
pub async fn children_are_kept_for_their_parents(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(1), |parent| spawn(parent, 2)).await;
    complete(&*store, worker).await;
    let slice = only(claim(&*store, worker, 10).await);
    database.clock().advance_ms(1_000);
    let options = PruneOptions {
        finished_before: database.clock().now(),
        keep_batches: 0,
        dead_too: true,
        dry_run: false,
    };
    assert_eq!(store.prune(options).await.unwrap().batches, 0);
    assert_eq!(told(&*store, id, 0).await.len(), 2);
    exchange(&*store, worker, vec![completed(&slice)], None).await;
    database.clock().advance_ms(1_000);
    let options = PruneOptions {
        finished_before: database.clock().now(),
        ..options
    };
    let pruned = store.prune(options).await.unwrap();
    assert_eq!((pruned.batches, pruned.jobs), (2, 3));
    assert!(store.children(id, &positions("0")).await.unwrap().is_empty());
}

/// Children inherit the queue, group and tags of their parents, unless they have their own.
pub async fn children_inherit_queue_group_and_tags(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let mut parents = batch(3);
    parents.options.group = Some("tenant".to_owned());
    let tag = |name: &str, value: &str, which: Option<&str>| Tag {
        positions: which.map(positions),
        ..Tag::all(name, value)
    };
    parents.tags = vec![
        tag("all", "a", None),
        tag("one", "b", Some("1")),
        tag("own", "parent", None),
    ];
    suspend(&*store, worker, parents, |parent| {
        let mut own = ChildBatch::new(CHILD, payloads(2));
        own.tags = [("own".to_owned(), "child".to_owned())].into();
        let mut elsewhere = ChildBatch::new("elsewhere", payloads(1));
        elsewhere.queue = Some("other".to_owned());
        elsewhere.options.group = Some("nobody".to_owned());
        spawn(parent, 0).batch(own).batch(elsewhere)
    })
    .await;
    let tagged = |text: &str| JobFilter {
        kind: Some(CHILD.to_owned()),
        tags: vec![TagCondition::parse(text)],
        ..JobFilter::default()
    };
    for (text, which) in [
        ("all=a", "0-5"),
        ("one=b", "2-3"),
        ("own=child", "0-5"),
        ("own=parent", ""),
    ] {
        let found = store.job_ids(&tagged(text), None, 10).await.unwrap();
        let found: Vec<String> = found.iter().map(|jobs| jobs.positions.to_string()).collect();
        assert_eq!(found.join(" "), which, "{text}");
    }
    let children = only(claim(&*store, worker, 10).await);
    let details = store.job(job(children.batch, 2)).await.unwrap().unwrap();
    assert_eq!(
        (details.row.group.as_deref(), &*details.row.queue),
        (Some("tenant"), "default")
    );
    let tags: Vec<String> = details
        .tags
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(tags, ["all=a", "one=b", "own=child"]);
    let elsewhere = JobFilter {
        queue: Some("other".to_owned()),
        group: Some("nobody".to_owned()),
        ..JobFilter::default()
    };
    assert_eq!(store.counts(&elsewhere).await.unwrap().waiting, 3);
}

/// A report with invalid children is refused as a whole. If only the store can notice the error, the parents die.
pub async fn children_that_cannot_be_stored_fail_their_parents(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let mut parents = once(2);
    parents.tags = (0..TAGS_PER_JOB_MAX)
        .map(|number| Tag {
            positions: Some(positions("0")),
            ..Tag::all(format!("t{number}"), "v")
        })
        .collect();
    let id = submit(&*store, parents).await;
    let slice = only(claim(&*store, worker, 2).await);
    let report = |position: &str| {
        suspended_at(&slice, &positions(position), |parent| {
            let mut children = ChildBatch::new(CHILD, payloads(1));
            children.tags = [("more".to_owned(), "v".to_owned())].into();
            spawn(parent, 0).batch(children)
        })
    };
    let mut wrong = report("0");
    wrong.suspended[0].children[0].shares = vec![2];
    let refused = store.exchange(worker, vec![wrong], None).await;
    assert!(matches!(refused, Err(StoreError::InvalidInput(_))), "{refused:?}");
    let answer = exchange(&*store, worker, vec![report("0"), report("1")], None).await;
    assert_eq!(answer.receipts[0].dead.to_string(), "0");
    assert_eq!(answer.receipts[1].dead.to_string(), "");
    assert_eq!(states(&*store, id).await, [JobState::Dead, JobState::Blocked]);
    let details = store.job(job(id, 0)).await.unwrap().unwrap();
    assert!(
        details.failures[0].error.message.contains("33 tags"),
        "{details:?}"
    );
    assert_eq!(complete(&*store, worker).await.len(), 1);
}

/// Children can wait for earlier children of the same parent.
pub async fn children_come_in_stages(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(2), |parent| {
        let mut last = ChildBatch::new("last", payloads(1));
        last.after = vec![ChildAfter {
            place: 0,
            on_failure: OnFailure::Cancel,
        }];
        collecting(parent, 2).batch(last)
    })
    .await;
    let first = claim(&*store, worker, 10).await.unwrap().slices;
    assert_eq!(first.len(), 2);
    fail(&*store, worker, &first[0], "0").await;
    let rest = completed_at(&first[0], &positions("1"));
    let answer = exchange(&*store, worker, vec![rest], Some(want(10))).await;
    // The last child of the first parent waited in vain. All of the parent's children have ended.
    assert_eq!(held(&answer.lease), [format!("{id}:0")]);
    let ended: Vec<String> = told(&*store, id, 0).await;
    assert_eq!(ended, ["0 dead no", "1 completed \"0.1\"", "0 cancelled "]);
    exchange(&*store, worker, vec![completed(&first[1])], None).await;
    let last = complete(&*store, worker).await;
    assert_eq!(&*last.kind, "last");
    assert_eq!(held(&claim(&*store, worker, 10).await), [format!("{id}:1")]);
}

/// A parent continues exactly once, however many processes end its children at the same time.
pub async fn children_that_end_together_free_their_parents_once(database: &dyn Database) {
    const WORKERS: usize = 4;
    let store = database.open().await;
    let first = worker(&*store).await;
    let id = suspend(&*store, first, batch(3), |parent| {
        collecting(parent, 8).batch(ChildBatch::new("other", payloads(4)))
    })
    .await;
    let mut tasks = Vec::new();
    for number in 0..WORKERS {
        let store = database.open().await;
        let worker = worker(&*store).await;
        let mut slices = Vec::new();
        for _ in 0..3 {
            let lease = claim(&*store, worker, 3).await.unwrap();
            slices.extend(lease.slices);
        }
        let fails = number == 0;
        tasks.push(tokio::spawn(async move {
            for slice in slices {
                let report = if fails {
                    failed_at(&slice, &slice.positions, &error().permanent())
                } else {
                    completed(&slice)
                };
                exchange(&*store, worker, vec![report], None).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let slices = claim(&*store, first, 10).await.unwrap().slices;
    let mut all = gristmill_model::Positions::new();
    for slice in &slices {
        assert_eq!(slice.batch, id);
        assert!(all.is_disjoint(&slice.positions));
        all = all.union(&slice.positions);
    }
    assert_eq!(all.to_string(), "0-2");
    for parent in 0..3 {
        assert_eq!(told(&*store, id, parent).await.len(), 12);
    }
}
