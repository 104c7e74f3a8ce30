//! Jobs that spawn further children of their own parent.

use gristmill_model::limits::TAGS_PER_JOB_MAX;
use gristmill_model::{ChildBatch, JobState, PackedArray, Positions, Tag};
use gristmill_store::{Change, JobFilter, Selection, StoreError};

use crate::Database;
use crate::fixture::*;
use crate::graph::families::{CHILD, collecting, complete, fail, spawn, suspend, told};

/// A child spawns siblings as it completes. Its parent also waits for these, and sees their outcomes after the outcomes
/// of its own children. The last child can spawn siblings, too.
pub async fn parents_wait_for_siblings_too(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(1), |parent| spawn(parent, 2)).await;
    let children = only(claim(&*store, worker, 10).await);
    let first = spreading_at(&children, &positions("0"), |_| spawn(8, 1));
    exchange(&*store, worker, vec![first], None).await;
    let last = spreading_at(&children, &positions("1"), |_| spawn(9, 2));
    let answer = exchange(&*store, worker, vec![last], Some(want(10))).await;
    assert_eq!(answer.receipts[0].accepted.to_string(), "1");
    assert!(answer.receipts[0].failed.is_empty());
    assert_eq!(states(&*store, id).await, [JobState::Blocked]);
    let siblings = answer.lease.unwrap().slices;
    let payloads: Vec<&str> = siblings.iter().map(|slice| slice.payloads.as_str()).collect();
    assert_eq!(payloads, ["[\"8.0\"]", "[\"9.0\"\n,\"9.1\"]"]);
    for sibling in &siblings {
        let details = store.job(job(sibling.batch, 0)).await.unwrap().unwrap();
        assert_eq!(details.parent, Some(job(id, 0)));
    }
    exchange(&*store, worker, vec![completed(&siblings[0])], None).await;
    assert_eq!(states(&*store, id).await, [JobState::Blocked]);
    let answer = exchange(&*store, worker, vec![completed(&siblings[1])], Some(want(10))).await;
    assert_eq!(held(&answer.lease), [format!("{id}:0")]);
    let finalizing = only(answer.lease);
    assert_eq!(finalizing.memos.as_ref().map(PackedArray::as_str), Some("[0]"));
    let expected = ["0.0", "0.1", "8.0", "9.0", "9.1"];
    let found: Vec<String> = told(&*store, id, 0).await;
    let found: Vec<&str> = found
        .iter()
        .map(|child| child.split('"').nth(1).unwrap())
        .collect();
    assert_eq!(found, expected);
    let counts = store.job(job(id, 0)).await.unwrap().unwrap().children.unwrap();
    assert_eq!((counts.completed, counts.total()), (5, 5));
}

/// The siblings that many children of many parents spawn in one report share batches. They have the tags, queue and
/// group of the parents.
pub async fn siblings_of_many_jobs_share_batches(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let mut parents = batch(4);
    parents.tags = vec![Tag {
        positions: Some(positions("2")),
        ..Tag::all("which", "third")
    }];
    parents.options.group = Some("tenant".to_owned());
    let id = suspend(&*store, worker, parents, |parent| spawn(parent, 3)).await;
    let children = only(claim(&*store, worker, 100).await);
    assert_eq!(children.positions.to_string(), "0-11");
    let batches = store.stats().await.unwrap().batches;
    // These are all children of parent 0, and one each of parents 2 and 3.
    let report = spreading_at(&children, &positions("0-2,7,9"), |child| spawn(child, 2));
    assert_eq!(report.siblings.len(), 1);
    exchange(&*store, worker, vec![report], None).await;
    assert_eq!(store.stats().await.unwrap().batches, batches + 1);
    let mut shares = Vec::new();
    for parent in 0..4 {
        let jobs = &store.children(id, &(parent..parent + 1).into()).await.unwrap()[0].jobs;
        shares.push(jobs.get(1).map(|jobs| jobs.positions.to_string()));
    }
    let described: Vec<Option<&str>> = shares.iter().map(Option::as_deref).collect();
    assert_eq!(described, [Some("0-5"), None, Some("6-7"), Some("8-9")]);
    let siblings = only(claim(&*store, worker, 100).await);
    let details = store.job(job(siblings.batch, 6)).await.unwrap().unwrap();
    assert_eq!(
        (details.parent, details.row.group.as_deref()),
        (Some(job(id, 2)), Some("tenant"))
    );
    assert_eq!(details.tags["which"], "third");
    let rest = completed_at(&children, &positions("3-6,8,10-11"));
    let answer = exchange(&*store, worker, vec![rest], Some(want(10))).await;
    assert_eq!(held(&answer.lease), [format!("{id}:1")]);
    let some = completed_at(&siblings, &positions("0-4,6-9"));
    let answer = exchange(&*store, worker, vec![some], Some(want(10))).await;
    assert_eq!(held(&answer.lease), [format!("{id}:2-3")]);
    let last = completed_at(&siblings, &positions("5"));
    let answer = exchange(&*store, worker, vec![last], Some(want(10))).await;
    assert_eq!(held(&answer.lease), [format!("{id}:0")]);
}

/// Siblings can spawn siblings. Each parent continues when its own children have ended.
pub async fn siblings_spawn_siblings(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(3), |parent| spawn(parent, 1)).await;
    for round in 1..=3 {
        let slice = only(claim(&*store, worker, 100).await);
        assert_eq!((&*slice.kind, slice.len()), (CHILD, 3));
        let report = spreading_at(&slice, &slice.positions, |_| spawn(round, 1));
        exchange(&*store, worker, vec![report], None).await;
    }
    let slice = only(claim(&*store, worker, 100).await);
    let mut report = spreading_at(&slice, &positions("0-1"), |_| spawn(9, 1));
    report.completed = completed(&slice).completed;
    let answer = exchange(&*store, worker, vec![report], Some(want(1))).await;
    assert_eq!(held(&answer.lease), [format!("{id}:2")]);
    let last = complete(&*store, worker).await;
    assert_eq!((&*last.kind, last.len()), (CHILD, 2));
    assert_eq!(held(&claim(&*store, worker, 10).await), [format!("{id}:0-1")]);
    assert_eq!(told(&*store, id, 1).await.len(), 5);
    assert_eq!(told(&*store, id, 2).await.len(), 4);
}

/// Siblings with cached values have already ended when they are stored.
pub async fn siblings_may_have_ended_already(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let cached = |count| {
        let mut batch = ChildBatch::new("known", payloads(count));
        batch.options.cached_ms = Some(60_000);
        batch
    };
    let mut known = batch_of("known", 2);
    known.options.cached_ms = Some(60_000);
    submit(&*store, known).await;
    complete(&*store, worker).await;
    let id = suspend(&*store, worker, batch(1), |parent| spawn(parent, 1)).await;
    let child = only(claim(&*store, worker, 10).await);
    let report = spreading_at(&child, &child.positions, |_| spawn(0, 0).batch(cached(2)));
    let answer = exchange(&*store, worker, vec![report], Some(want(10))).await;
    assert_eq!(held(&answer.lease), [format!("{id}:0")]);
    assert_eq!(told(&*store, id, 0).await.len(), 3);
}

/// A job without a parent that completes with siblings fails for good. Other jobs of its report do not.
pub async fn jobs_without_parents_spawn_no_siblings(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, batch(3)).await;
    let slice = only(claim(&*store, worker, 10).await);
    let mut report = spreading_at(&slice, &positions("1"), |_| spawn(9, 2));
    report.completed = completed(&slice).completed;
    let answer = exchange(&*store, worker, vec![report], None).await;
    let receipt = &answer.receipts[0];
    let told = [&receipt.accepted, &receipt.dead, &receipt.failed].map(ToString::to_string);
    assert_eq!(told, ["0-2", "1", "1"]);
    let (done, dead) = (JobState::Completed, JobState::Dead);
    assert_eq!(states(&*store, id).await, [done, dead, done]);
    let details = store.job(job(id, 1)).await.unwrap().unwrap();
    let error = &details.failures[0].error;
    assert_eq!((error.error_type.as_str(), error.permanent), ("siblings", true));
    assert!(
        error.message.contains(&format!("job {id}:1 has no parent")),
        "{error:?}"
    );
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!(counts.total(), 3);
}

/// Siblings that cannot be stored as a batch fail their spawner. An invalid report is refused as a whole.
pub async fn siblings_that_cannot_be_stored_fail_their_spawner(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let mut parents = batch(1);
    let tags = (0..TAGS_PER_JOB_MAX).map(|number| Tag::all(format!("t{number}"), "v"));
    parents.tags = tags.collect();
    let id = suspend(&*store, worker, parents, |parent| collecting(parent, 3)).await;
    let children = only(claim(&*store, worker, 10).await);
    let spreading = |which: &str| {
        spreading_at(&children, &positions(which), |_| {
            let mut siblings = ChildBatch::new(CHILD, payloads(1));
            siblings.tags = [("more".to_owned(), "v".to_owned())].into();
            spawn(0, 0).batch(siblings)
        })
    };
    let mut wrong = spreading("0");
    wrong.siblings[0].positions = positions("1");
    let refused = store.exchange(worker, vec![wrong], None).await;
    assert!(matches!(refused, Err(StoreError::InvalidInput(_))), "{refused:?}");
    let mut wrong = spreading("0");
    wrong.siblings[0].children[0].shares = vec![2];
    let refused = store.exchange(worker, vec![wrong], None).await;
    assert!(matches!(refused, Err(StoreError::InvalidInput(_))), "{refused:?}");
    let others = completed_at(&children, &positions("1-2"));
    let answer = exchange(&*store, worker, vec![spreading("0"), others], Some(want(10))).await;
    assert_eq!(answer.receipts[0].dead.to_string(), "0");
    assert_eq!(held(&answer.lease), [format!("{id}:0")]);
    let told = told(&*store, id, 0).await;
    assert!(
        told[0].starts_with("0 dead") && told[0].contains("33 tags"),
        "{told:?}"
    );
}

/// With this policy, a sibling that does not complete ends its parent and all other children.
pub async fn a_failed_sibling_ends_its_parent(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(2), |parent| spawn(parent, 2)).await;
    let children = only(claim(&*store, worker, 10).await);
    let report = spreading_at(&children, &positions("0,2"), |_| spawn(9, 2));
    exchange(&*store, worker, vec![report], None).await;
    let siblings = only(claim(&*store, worker, 10).await);
    assert_eq!(siblings.len(), 4);
    fail(&*store, worker, &siblings, "2").await;
    let (done, gone, runs) = (JobState::Completed, JobState::Cancelled, JobState::Running);
    assert_eq!(states(&*store, id).await, [JobState::Blocked, JobState::Dead]);
    assert_eq!(states(&*store, children.batch).await, [done, runs, done, gone]);
    assert_eq!(
        states(&*store, siblings.batch).await,
        [runs, runs, JobState::Dead, gone]
    );
    let details = store.job(job(id, 1)).await.unwrap().unwrap();
    let expected = format!("job {}:2, a child of it, ended as dead", siblings.batch);
    assert_eq!(details.failures[0].error.message, expected);
    change(&*store, job(id, 0), Change::Cancel).await;
    assert_eq!(states(&*store, children.batch).await, [done, gone, done, gone]);
    assert_eq!(
        states(&*store, siblings.batch).await,
        [gone, gone, JobState::Dead, gone]
    );
}

/// The death of a parent cancels its children. Their later reports are refused, with their siblings, even if the child
/// that kills the parent is in the same report.
pub async fn dead_parents_get_no_siblings(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(2), |parent| spawn(parent, 2)).await;
    let children = only(claim(&*store, worker, 10).await);
    fail(&*store, worker, &children, "0").await;
    let late = spreading_at(&children, &positions("1"), |_| spawn(9, 1));
    let answer = exchange(&*store, worker, vec![late], Some(want(10))).await;
    assert_eq!(answer.receipts[0].refused.to_string(), "1");
    assert_eq!(answer.lease, None);
    let mut both = spreading_at(&children, &positions("2"), |_| spawn(9, 1));
    both.failed = failed_at(&children, &positions("3"), &error().permanent()).failed;
    let answer = exchange(&*store, worker, vec![both], Some(want(10))).await;
    assert_eq!(answer.receipts[0].accepted.to_string(), "2-3");
    assert_eq!(answer.lease, None);
    assert_eq!(states(&*store, id).await, [JobState::Dead; 2]);
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!(counts.total(), counts.ended());
}

/// A dead child is retried by hand after its parent has continued. It completes, and its siblings are dropped.
pub async fn siblings_of_parents_that_went_on_are_left_out(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(2), |parent| collecting(parent, 1)).await;
    let children = only(claim(&*store, worker, 10).await);
    fail(&*store, worker, &children, "0").await;
    change(&*store, job(children.batch, 0), Change::Retry).await;
    let lease = claim(&*store, worker, 10).await.unwrap();
    let again = lease.slices.iter().find(|slice| slice.batch == children.batch);
    let mut reports = vec![spreading_at(again.unwrap(), &positions("0"), |_| spawn(8, 1))];
    reports.push(spreading_at(&children, &positions("1"), |_| spawn(9, 1)));
    let answer = exchange(&*store, worker, reports, Some(want(10))).await;
    let accepted: Vec<String> = answer
        .receipts
        .iter()
        .map(|receipt| receipt.accepted.to_string())
        .collect();
    assert_eq!(accepted, ["0", "1"]);
    assert_eq!(only(answer.lease).payloads.as_str(), "[\"9.0\"]");
    assert_eq!(states(&*store, id).await, [JobState::Running, JobState::Blocked]);
    assert_eq!(told(&*store, id, 0).await.len(), 1);
}

/// Parents that are paused while they wait also wait for siblings.
pub async fn paused_parents_wait_for_siblings(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(3), |parent| spawn(parent, 1)).await;
    let paused = || Selection::Jobs(vec![job(id, 1)]);
    change(&*store, paused(), pausing("quota", None)).await;
    let children = only(claim(&*store, worker, 10).await);
    let report = spreading_at(&children, &children.positions, |_| spawn(9, 1));
    exchange(&*store, worker, vec![report], None).await;
    change(&*store, paused(), resuming(None)).await;
    assert_eq!(states(&*store, id).await, [JobState::Blocked; 3]);
    assert_eq!(complete(&*store, worker).await.len(), 3);
    let freed = claim(&*store, worker, 10).await.unwrap().slices;
    assert_eq!(
        freed.iter().map(gristmill_model::LeasedSlice::len).sum::<u32>(),
        3
    );
}

/// Jobs are listed, counted and cancelled by their parent, whenever and by whichever job they were spawned.
pub async fn children_are_found_by_their_parent(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = suspend(&*store, worker, batch(3), |parent| spawn(parent, 2)).await;
    let first = only(claim(&*store, worker, 10).await);
    let mut report = spreading_at(&first, &positions("3"), |_| spawn(9, 1));
    report.completed = completed(&first).completed;
    let answer = exchange(&*store, worker, vec![report], Some(want(10))).await;
    let freed = answer.lease.unwrap().slices;
    let (finalizing, sibling) = (&freed[0], freed[1].batch);
    assert_eq!(finalizing.positions.to_string(), "0,2");
    let again = suspended_at(finalizing, &positions("0"), |parent| spawn(parent, 3));
    let last = only(exchange(&*store, worker, vec![again], Some(want(10))).await.lease).batch;
    let of = |batch, position| JobFilter {
        parent: Some(job(batch, position)),
        ..JobFilter::default()
    };
    let first = first.batch;
    for (position, expected) in [
        (0, vec![format!("{first}:0-1"), format!("{last}:0-2")]),
        (1, vec![format!("{first}:2-3"), format!("{sibling}:0")]),
        (2, vec![format!("{first}:4-5")]),
        (3, vec![]),
    ] {
        let found = store.job_ids(&of(id, position), None, 100).await.unwrap();
        let found: Vec<String> = found
            .iter()
            .map(|jobs| format!("{}:{}", jobs.batch, jobs.positions))
            .collect();
        assert_eq!(found, expected);
        let all = gristmill_store::Page {
            after: None,
            limit: 100,
        };
        let listed = store.jobs(&of(id, position), all).await.unwrap().len() as u64;
        assert_eq!(store.counts(&of(id, position)).await.unwrap().total(), listed);
    }
    assert_eq!(store.counts(&of(last, 0)).await.unwrap().total(), 0);
    let completed = JobFilter {
        states: vec![JobState::Completed],
        batch: Some(first),
        ..of(id, 0)
    };
    assert_eq!(store.counts(&completed).await.unwrap().total(), 2);
    let changed = change(&*store, of(id, 0), Change::Cancel).await;
    assert_eq!(changed.changed, 3);
    assert_eq!(states(&*store, last).await, [JobState::Cancelled; 3]);
    assert_eq!(states(&*store, sibling).await, [JobState::Running]);
}

/// Children that spawn siblings run beside failing children and cancellations. No parent finalizes without all of its
/// children, and no child of a dead parent is left.
pub async fn siblings_and_failures_that_meet_leave_nothing_behind(database: &dyn Database) {
    const WORKERS: u32 = 4;
    let store = database.open().await;
    let first = worker(&*store).await;
    let id = suspend(&*store, first, batch(12), |parent| {
        if parent < 6 {
            spawn(parent, WORKERS)
        } else {
            collecting(parent, WORKERS)
        }
    })
    .await;
    let mut tasks = Vec::new();
    for number in 0..WORKERS {
        let store = database.open().await;
        let worker = worker(&*store).await;
        let lease = claim(&*store, worker, 12).await.unwrap();
        tasks.push(tokio::spawn(async move {
            for slice in lease.slices {
                for position in slice.positions.iter() {
                    let which = Positions::from(position..position + 1);
                    let report = match (position + number) % 5 {
                        0 => failed_at(&slice, &which, &error().permanent()),
                        _ => spreading_at(&slice, &which, |_| spawn(100 + position, 2)),
                    };
                    exchange(&*store, worker, vec![report], None).await;
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    while let Some(lease) = claim(&*store, first, 1_000).await {
        for slice in &lease.slices {
            if slice.batch == id {
                for children in store.children(id, &slice.positions).await.unwrap() {
                    for jobs in children.jobs {
                        let states = states(&*store, jobs.batch).await;
                        let mut own = jobs.positions.iter().map(|position| states[position as usize]);
                        assert!(own.all(JobState::is_final), "{jobs:?} {states:?}");
                    }
                }
            }
        }
        exchange(&*store, first, lease.slices.iter().map(completed).collect(), None).await;
    }
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!(counts.total(), counts.ended(), "{counts:?}");
}
