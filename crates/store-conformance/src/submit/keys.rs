//! There is one job for each key.

use std::collections::BTreeSet;

use gristmill_model::{
    After, BatchId, Clock, JobId, JobState, KeyScope, KeyedBatch, NewBatch, OnDuplicate, OnFailure,
    PackedArray, RetryPolicy, Unique,
};
use gristmill_store::{Change, JobFilter, Selection, Store, StoreError, SubmittedJobs};

use crate::Database;
use crate::fixture::*;

/// Skips duplicates.
const SKIP: Unique = on(OnDuplicate::Skip);

const fn on(on_duplicate: OnDuplicate) -> Unique {
    Unique {
        scope: KeyScope::Kind,
        on_duplicate,
        period_ms: None,
        debounce: None,
    }
}

/// Jobs with these keys. Each payload is the key followed by `tag`.
fn keyed(keys: &[&str], tag: &str, unique: Unique) -> KeyedBatch {
    let payloads: Vec<String> = keys.iter().map(|key| format!("{key}{tag}")).collect();
    let pack = |items: String| PackedArray::parse(&items).unwrap();
    let batch = NewBatch::new(KIND, pack(serde_json::to_string(&payloads).unwrap()));
    KeyedBatch::new(batch, pack(serde_json::to_string(keys).unwrap()), unique)
}

async fn submit_keyed(store: &dyn Store, batch: KeyedBatch) -> SubmittedJobs {
    store.submit_keyed(vec![batch]).await.unwrap().remove(0)
}

async fn state(store: &dyn Store, job: JobId) -> JobState {
    store.job(job).await.unwrap().unwrap().row.state
}

/// The payloads that a claim of all jobs gets, in order. The jobs are completed.
async fn run_all(store: &dyn Store) -> Vec<String> {
    let worker = worker(store).await;
    let mut payloads = Vec::new();
    while let Some(lease) = claim(store, worker, 1_000).await {
        for slice in &lease.slices {
            payloads.extend(
                slice
                    .payloads
                    .items()
                    .map(|item| item.trim_matches('"').to_owned()),
            );
        }
        exchange(store, worker, lease.slices.iter().map(completed).collect(), None).await;
    }
    payloads
}

/// A job whose key belongs to an open job is skipped on every handle. After the end of that job it is stored.
pub async fn duplicates_are_skipped(database: &dyn Database) {
    let (one, other) = (database.open().await, database.open().await);
    let first = submit_keyed(&*one, keyed(&["a", "b"], "1", SKIP)).await;
    let batch = first.batch.unwrap();
    assert_eq!((first.count, first.jobs), (2, vec![job(batch, 0), job(batch, 1)]));

    let second = submit_keyed(&*other, keyed(&["b", "c", "a"], "2", SKIP)).await;
    let next = second.batch.unwrap();
    assert_eq!(second.count, 1);
    assert_eq!(second.jobs, [job(batch, 1), job(next, 0), job(batch, 0)]);
    let third = submit_keyed(&*one, keyed(&["c", "b"], "3", SKIP)).await;
    assert_eq!((third.batch, third.count), (None, 0));
    assert_eq!(third.jobs, [job(next, 0), job(batch, 1)]);
    assert_eq!(
        one.stats().await.unwrap().batches,
        2,
        "an empty batch is not stored"
    );

    let details = other.job(job(next, 0)).await.unwrap().unwrap();
    assert_eq!(details.key.as_deref(), Some("c"));
    assert_eq!(details.options.unique, Some(SKIP));
    assert_eq!(run_all(&*other).await, ["a1", "b1", "c2"]);
    let fourth = submit_keyed(&*one, keyed(&["a"], "4", SKIP)).await;
    assert_eq!(fourth.count, 1, "the key is free");
    assert_eq!(run_all(&*one).await, ["a4"]);
}

/// The last of several jobs with the same key in one batch is kept. Jobs without a key are not affected.
pub async fn the_last_of_a_batch_stays(database: &dyn Database) {
    let store = database.open().await;
    let mut batch = keyed(&["a", "b", "a", "b", "a"], "", SKIP);
    batch.batch.payloads = payloads(5);
    batch.keys = PackedArray::parse(r#"["a", null, "a", null, "a"]"#).unwrap();
    let submitted = submit_keyed(&*store, batch).await;
    let id = submitted.batch.unwrap();
    assert_eq!(submitted.count, 3);
    assert_eq!(submitted.jobs, [2, 0, 2, 1, 2].map(|position| job(id, position)));
    assert_eq!(run_all(&*store).await, ["1", "3", "4"]);
}

/// Keys are unique within a kind or a queue.
pub async fn keys_have_a_scope(database: &dyn Database) {
    let store = database.open().await;
    let of = |kind: &str, queue: &str, scope| {
        let mut batch = keyed(&["a"], "", Unique { scope, ..SKIP });
        batch.batch.kind = kind.to_owned();
        batch.batch.queue = queue.to_owned();
        batch
    };
    for (kind, queue, scope, count) in [
        ("x", "default", KeyScope::Kind, 1),
        ("y", "default", KeyScope::Kind, 1),
        ("x", "other", KeyScope::Kind, 0),
        ("x", "default", KeyScope::Queue, 1),
        ("y", "default", KeyScope::Queue, 0),
        ("y", "other", KeyScope::Queue, 1),
        ("z", "other", KeyScope::Queue, 0),
    ] {
        let submitted = submit_keyed(&*store, of(kind, queue, scope)).await;
        assert_eq!(submitted.count, count, "{kind} on {queue} by {scope:?}");
    }
}

/// A job that stands for a more urgent duplicate gets its priority, if it still waits.
pub async fn a_duplicate_raises_the_priority(database: &dyn Database) {
    let store = database.open().await;
    let first = submit_keyed(&*store, keyed(&["a", "b", "c"], "1", SKIP)).await;
    submit(&*store, batch(1)).await;
    let urgent = |keys: &[&str], priority| {
        let mut batch = keyed(keys, "2", SKIP);
        batch.batch.options.priority = priority;
        batch
    };
    submit_keyed(&*store, urgent(&["b"], 5)).await;
    submit_keyed(&*store, urgent(&["c"], 9)).await;
    submit_keyed(&*store, urgent(&["b", "c"], 7)).await;
    submit_keyed(&*store, urgent(&["a"], -1)).await;
    let row = store.job(first.jobs[1]).await.unwrap().unwrap().row;
    assert_eq!((row.state, row.priority), (JobState::Waiting, 7));
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.waiting, counts.total()), (4, 4));
    assert_eq!(run_all(&*store).await, ["c1", "b1", "a1", "0"]);
}

/// A replaced job is cancelled, whether it waits or runs. The new job runs.
pub async fn jobs_are_replaced(database: &dyn Database) {
    let store = database.open().await;
    let first = submit_keyed(&*store, keyed(&["a", "b", "c"], "1", SKIP)).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 1).await.unwrap();
    let replace = on(OnDuplicate::Replace);
    let second = submit_keyed(&*store, keyed(&["a", "c", "d"], "2", replace)).await;
    assert_eq!(second.count, 3);
    for (index, expected) in [JobState::Cancelled, JobState::Waiting, JobState::Cancelled]
        .iter()
        .enumerate()
    {
        assert_eq!(state(&*store, first.jobs[index]).await, *expected);
    }
    let revoked = store.heartbeat(worker, Default::default()).await.unwrap().revoked;
    assert_eq!(revoked.len(), 1, "the worker learns of it");
    let refused = exchange(&*store, worker, vec![completed(&lease.slices[0])], None).await;
    assert_eq!(refused.receipts[0].refused, positions("0"));
    // The keys belong to the new jobs now.
    let third = submit_keyed(&*store, keyed(&["a", "b"], "3", SKIP)).await;
    assert_eq!(third.jobs, [second.jobs[0], first.jobs[1]]);
    assert_eq!(run_all(&*store).await, ["b1", "a2", "c2", "d2"]);
}

/// A payload that arrives while the owner of its key runs is run after the owner has completed. If the owner does not
/// complete, the payload is dropped.
pub async fn jobs_run_once_more(database: &dyn Database) {
    let store = database.open().await;
    let rerun = on(OnDuplicate::Rerun);
    let mut batch = keyed(&["a", "b", "c"], "1", rerun);
    batch.batch.options.retry = RetryPolicy::NEVER;
    let first = submit_keyed(&*store, batch).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 2).await.unwrap();
    for tag in ["2", "3"] {
        let again = submit_keyed(&*store, keyed(&["a", "b", "c"], tag, rerun)).await;
        assert_eq!((again.count, again.jobs), (0, first.jobs.clone()));
    }
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().total(), 3);
    let report = gristmill_model::Report {
        failed: failed_at(&lease.slices[0], &positions("1"), &error()).failed,
        ..completed_at(&lease.slices[0], &positions("0"))
    };
    exchange(&*store, worker, vec![report], None).await;
    assert_eq!(state(&*store, first.jobs[1]).await, JobState::Dead);
    let fourth = submit_keyed(&*store, keyed(&["a", "b"], "4", SKIP)).await;
    assert_eq!(fourth.count, 1, "the key of what runs again is taken");
    assert_eq!(run_all(&*store).await, ["c1", "a3", "b4"]);
    assert_eq!(submit_keyed(&*store, keyed(&["a"], "5", SKIP)).await.count, 1);
}

/// The exchange that completes a job can claim the job that runs once more.
pub async fn jobs_that_run_once_more_are_claimed_at_once(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let rerun = on(OnDuplicate::Rerun);
    submit_keyed(&*store, keyed(&["a"], "1", rerun)).await;
    let slice = only(claim(&*store, worker, 10).await);
    submit_keyed(&*store, keyed(&["a"], "2", rerun)).await;
    let exchanged = exchange(&*store, worker, vec![completed(&slice)], Some(want(10))).await;
    let again = only(exchanged.lease);
    assert_eq!((again.len(), again.batch == slice.batch), (1, false));
    exchange(&*store, worker, vec![completed(&again)], None).await;
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().completed, 2);
}

/// With refused duplicates the whole submit is refused. The error names the key.
pub async fn duplicates_are_refused(database: &dyn Database) {
    let store = database.open().await;
    let first = submit_keyed(&*store, keyed(&["a"], "1", SKIP)).await;
    let reject = on(OnDuplicate::Reject);
    let refused = store
        .submit_keyed(vec![
            keyed(&["x", "y"], "2", reject),
            keyed(&["z", "a"], "2", reject),
        ])
        .await;
    match refused {
        Err(StoreError::DuplicateKey { key, owner }) => {
            assert_eq!((key.as_str(), owner), ("a", Some(first.jobs[0])));
        }
        other => panic!("{other:?}"),
    }
    let twice = store.submit_keyed(vec![keyed(&["x", "x"], "3", reject)]).await;
    assert!(
        matches!(&twice, Err(StoreError::DuplicateKey { key, owner: None }) if key == "x"),
        "{twice:?}"
    );
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().total(), 1);
    assert_eq!(
        submit_keyed(&*store, keyed(&["x", "z"], "4", reject)).await.count,
        2
    );
    let mut wrong = keyed(&["q"], "", SKIP);
    wrong.keys = PackedArray::parse("[1]").unwrap();
    assert!(matches!(
        store.submit_keyed(vec![wrong]).await,
        Err(StoreError::InvalidBatch(_))
    ));
    let plain = keyed(&["q"], "", SKIP).batch;
    assert!(matches!(
        store.submit(vec![plain.clone()], None).await,
        Err(StoreError::InvalidBatch(_))
    ));
    assert!(store.submit_one(plain).await.is_err());
}

/// A key with a period outlasts its job.
pub async fn keys_last_for_their_period(database: &dyn Database) {
    let store = database.open().await;
    let period = |on_duplicate| Unique {
        period_ms: Some(10_000),
        ..on(on_duplicate)
    };
    let skip = period(OnDuplicate::Skip);
    let first = submit_keyed(&*store, keyed(&["a", "b"], "1", skip)).await;
    assert_eq!(run_all(&*store).await, ["a1", "b1"]);
    database.clock().advance_ms(9_999);
    store.expire().await.unwrap();
    for on_duplicate in [OnDuplicate::Skip, OnDuplicate::Replace, OnDuplicate::Rerun] {
        let again = submit_keyed(&*store, keyed(&["a"], "2", period(on_duplicate))).await;
        assert_eq!((again.count, again.jobs), (0, vec![first.jobs[0]]));
    }
    database.clock().advance_ms(1);
    // Housekeeping makes no difference.
    assert_eq!(submit_keyed(&*store, keyed(&["a"], "3", skip)).await.count, 1);
    store.expire().await.unwrap();
    assert_eq!(
        submit_keyed(&*store, keyed(&["a", "b"], "4", skip)).await.count,
        1
    );
    // A job can be replaced within the period of its key. An open job keeps its key even after the period.
    let replace = period(OnDuplicate::Replace);
    let replacing = submit_keyed(&*store, keyed(&["a"], "5", replace)).await;
    assert_eq!(replacing.count, 1);
    database.clock().advance_ms(20_000);
    store.expire().await.unwrap();
    let late = submit_keyed(&*store, keyed(&["a"], "6", skip)).await;
    assert_eq!(late.jobs, replacing.jobs);
    assert_eq!(run_all(&*store).await, ["b4", "a5"]);
}

/// However a job ends, its key is then free.
pub async fn keys_go_with_their_jobs(database: &dyn Database) {
    let store = database.open().await;
    let mut batch = keyed(&["cancelled", "dead", "running"], "", SKIP);
    batch.batch.options.retry = RetryPolicy::NEVER;
    let first = submit_keyed(&*store, batch).await;
    let mut expiring = keyed(&["expired"], "", SKIP);
    expiring.batch.options.expires_at = Some(database.clock().now().plus_ms(10));
    expiring.batch.options.priority = -1;
    submit_keyed(&*store, expiring).await;
    change(&*store, first.jobs[0], Change::Cancel).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 2).await.unwrap();
    let report = failed_at(&lease.slices[0], &positions("1"), &error());
    exchange(&*store, worker, vec![report], None).await;
    database.clock().advance_ms(10);
    assert_eq!(store.expire().await.unwrap(), 1);
    let again = submit_keyed(
        &*store,
        keyed(&["cancelled", "dead", "running", "expired"], "", SKIP),
    )
    .await;
    assert_eq!(again.count, 3);
    assert_eq!(again.jobs[2], first.jobs[2]);
}

/// A retried job gets its key back. If another job has it meanwhile, the retry does nothing.
pub async fn retried_jobs_need_their_key(database: &dyn Database) {
    let store = database.open().await;
    let first = submit_keyed(&*store, keyed(&["a", "b"], "1", SKIP)).await;
    change(&*store, first.jobs.clone(), Change::Cancel).await;
    submit_keyed(&*store, keyed(&["a"], "2", SKIP)).await;
    let changed = change(&*store, first.jobs.clone(), Change::Retry).await;
    assert_eq!((changed.changed, changed.unchanged), (1, 1));
    assert_eq!(state(&*store, first.jobs[0]).await, JobState::Cancelled);
    let again = submit_keyed(&*store, keyed(&["b"], "3", SKIP)).await;
    assert_eq!(again.jobs, [first.jobs[1]]);
    assert_eq!(
        run_all(&*store).await,
        ["b1", "a2"],
        "the retried job belongs to the older batch"
    );
}

/// However many callers submit the same keys at the same time, each key is stored once.
pub async fn concurrent_duplicates_meet(database: &dyn Database) {
    const KEYS: usize = 60;
    let handles = [
        database.open().await,
        database.open().await,
        database.open().await,
    ];
    for on_duplicate in [OnDuplicate::Skip, OnDuplicate::Replace] {
        let names: Vec<String> = (0..KEYS).map(|key| format!("{on_duplicate:?}{key}")).collect();
        let submits = (0..12).map(|number: usize| {
            // The callers submit overlapping keys in different orders.
            let mut keys: Vec<&str> = names.iter().map(String::as_str).collect();
            keys.rotate_left(number * 7 % KEYS);
            if number.is_multiple_of(2) {
                keys.reverse();
            }
            let half = keys.split_off(KEYS / 2);
            let store = &handles[number % handles.len()];
            async move {
                let batches = vec![
                    keyed(&keys, "", on(on_duplicate)),
                    keyed(&half, "", on(on_duplicate)),
                ];
                store.submit_keyed(batches).await.unwrap()
            }
        });
        let stored: u32 = futures::future::join_all(submits)
            .await
            .iter()
            .flatten()
            .map(|submitted| submitted.count)
            .sum();
        let expected = match on_duplicate {
            OnDuplicate::Replace => KEYS as u32 * 12,
            _ => KEYS as u32,
        };
        assert_eq!(stored, expected, "{on_duplicate:?}");
        let ran = run_all(&*handles[0]).await;
        assert_eq!(ran.len(), KEYS, "{on_duplicate:?}");
        assert_eq!(ran.into_iter().collect::<BTreeSet<_>>().len(), KEYS);
    }
}

/// Jobs with keys that wait for all jobs of a batch.
fn waiting(keys: &[&str], tag: &str, unique: Unique, after: impl IntoIterator<Item = After>) -> KeyedBatch {
    let mut waiting = keyed(keys, tag, unique);
    waiting.batch.after = after.into_iter().collect();
    waiting
}

async fn plain(store: &dyn Store) -> BatchId {
    submit(store, batch_of("plain", 1)).await
}

/// Claims one job of the kind `plain` and reports that it completed.
async fn complete_plain(store: &dyn Store) {
    let worker = worker(store).await;
    let plain = gristmill_store::Want {
        kinds: vec!["plain".into()],
        ..want(1)
    };
    let slice = only(exchange(store, worker, Vec::new(), Some(plain)).await.lease);
    exchange(store, worker, vec![completed(&slice)], None).await;
}

/// Jobs with keys can wait for stored batches and for earlier batches of their submit. If other jobs stand for jobs of
/// these, they wait for the others.
pub async fn jobs_with_keys_wait_for_others(database: &dyn Database) {
    let store = database.open().await;
    let first = plain(&*store).await;
    let standing = submit_keyed(&*store, waiting(&["a"], "1", SKIP, [After::batch(first)])).await;
    assert_eq!(state(&*store, standing.jobs[0]).await, JobState::Blocked);
    let both = store
        .submit_keyed(vec![
            keyed(&["a", "b"], "2", SKIP),
            waiting(&["c"], "2", SKIP, [After::earlier(0)]),
        ])
        .await
        .unwrap();
    assert_eq!(both[0].jobs[0], standing.jobs[0]);
    let next = both[1].jobs[0];
    assert_eq!(state(&*store, next).await, JobState::Blocked);
    assert_eq!(run_all_of(&*store, KIND).await, ["b2"]);
    assert_eq!(state(&*store, next).await, JobState::Blocked);
    complete_plain(&*store).await;
    assert_eq!(run_all_of(&*store, KIND).await, ["a1", "c2"]);
    // An ended prerequisite delays nothing.
    let late = submit_keyed(&*store, waiting(&["d"], "3", SKIP, [After::batch(first)])).await;
    assert_eq!(state(&*store, late.jobs[0]).await, JobState::Waiting);
    let rerun = waiting(&["e"], "", on(OnDuplicate::Rerun), [After::batch(first)]);
    let refused = store.submit_keyed(vec![rerun]).await;
    assert!(matches!(refused, Err(StoreError::InvalidBatch(_))), "{refused:?}");
    let unknown = waiting(&["e"], "", SKIP, [After::batch(BatchId(1_000))]);
    let refused = store.submit_keyed(vec![unknown]).await;
    assert!(
        matches!(refused, Err(StoreError::PrerequisiteUnknown(_))),
        "{refused:?}"
    );
}

/// Works like [`run_all`] for one kind.
async fn run_all_of(store: &dyn Store, kind: &str) -> Vec<String> {
    let worker = worker(store).await;
    let of_kind = || gristmill_store::Want {
        kinds: vec![kind.into()],
        ..want(1_000)
    };
    let mut payloads = Vec::new();
    let mut reports = Vec::new();
    while let Some(lease) = exchange(store, worker, std::mem::take(&mut reports), Some(of_kind()))
        .await
        .lease
    {
        for slice in &lease.slices {
            let items = slice.payloads.items();
            payloads.extend(items.map(|item| item.trim_matches('"').to_owned()));
        }
        reports = lease.slices.iter().map(completed).collect();
    }
    payloads
}

/// A job that replaces a blocked one waits for the same prerequisites and for its own. It is not ready before.
pub async fn a_job_that_replaces_a_blocked_job_waits_too(database: &dyn Database) {
    let store = database.open().await;
    let (first, second) = (plain(&*store).await, plain(&*store).await);
    let replace = on(OnDuplicate::Replace);
    let old = submit_keyed(
        &*store,
        waiting(&["a", "b", "c"], "1", replace, [After::batch(first)]),
    )
    .await;
    let new = submit_keyed(&*store, keyed(&["d", "b"], "2", replace)).await;
    assert_eq!(state(&*store, old.jobs[1]).await, JobState::Cancelled);
    assert_eq!(state(&*store, new.jobs[0]).await, JobState::Waiting);
    assert_eq!(state(&*store, new.jobs[1]).await, JobState::Blocked);
    // A further job replaces it, with another prerequisite.
    let newer = waiting(
        &["b", "e"],
        "3",
        replace,
        [After::batch(second).on_failure(OnFailure::Ignore)],
    );
    let newer = submit_keyed(&*store, newer).await;
    assert_eq!(state(&*store, new.jobs[1]).await, JobState::Cancelled);
    assert_eq!(run_all_of(&*store, KIND).await, ["d2"]);
    complete_plain(&*store).await;
    assert_eq!(run_all_of(&*store, KIND).await, ["a1", "c1"]);
    assert_eq!(state(&*store, newer.jobs[0]).await, JobState::Blocked);
    complete_plain(&*store).await;
    assert_eq!(run_all_of(&*store, KIND).await, ["b3", "e3"]);
}

/// A job that replaces both a job and its prerequisite has waited in vain: no job waits forever.
pub async fn a_job_that_replaces_a_chain_ends_with_it(database: &dyn Database) {
    let store = database.open().await;
    let replace = on(OnDuplicate::Replace);
    let first = submit_keyed(&*store, keyed(&["a"], "", replace)).await;
    let between = submit(
        &*store,
        NewBatch {
            after: vec![After::batch(first.batch.unwrap())],
            ..batch(1)
        },
    )
    .await;
    submit_keyed(&*store, waiting(&["b"], "", replace, [After::batch(between)])).await;
    let new = submit_keyed(&*store, keyed(&["b", "a"], "new", replace)).await;
    assert_eq!(state(&*store, job(between, 0)).await, JobState::Cancelled);
    assert_eq!(state(&*store, new.jobs[0]).await, JobState::Cancelled);
    assert_eq!(run_all(&*store).await, ["anew"]);
}

/// Jobs that wait in vain release their keys, however they end, even through a chain. So do jobs whose parents end.
pub async fn jobs_that_wait_in_vain_release_their_keys(database: &dyn Database) {
    let store = database.open().await;
    for on_failure in [OnFailure::Cancel, OnFailure::Fail] {
        let first = plain(&*store).await;
        let after = |batch: BatchId| [After::batch(batch).on_failure(on_failure)];
        let blocked = submit_keyed(&*store, waiting(&["a"], "", SKIP, after(first))).await;
        let next = submit_keyed(&*store, waiting(&["b"], "", SKIP, after(blocked.batch.unwrap()))).await;
        let skipped = submit_keyed(&*store, keyed(&["a", "b"], "", SKIP)).await;
        assert_eq!(
            (skipped.batch, skipped.jobs),
            (None, vec![blocked.jobs[0], next.jobs[0]])
        );
        change(&*store, job(first, 0), Change::Cancel).await;
        let ended = match on_failure {
            OnFailure::Fail => JobState::Dead,
            _ => JobState::Cancelled,
        };
        assert_eq!(state(&*store, next.jobs[0]).await, ended);
        let fresh = submit_keyed(&*store, keyed(&["a", "b"], "new", SKIP)).await;
        assert_eq!(fresh.count, 2);
        // A retry of the old jobs gets no key.
        let retried = change(&*store, vec![blocked.jobs[0], next.jobs[0]], Change::Retry).await;
        assert_eq!(retried.changed, 0);
        assert_eq!(run_all(&*store).await, ["anew", "bnew"]);
    }
    let worker = worker(&*store).await;
    let parent = submit_keyed(&*store, keyed(&["parent"], "", SKIP)).await;
    let slice = only(claim(&*store, worker, 1).await);
    let spawn = |_| gristmill_model::Spawn::new().children("child", [1]).unwrap();
    exchange(
        &*store,
        worker,
        vec![suspended_at(&slice, &slice.positions, spawn)],
        None,
    )
    .await;
    assert_eq!(
        submit_keyed(&*store, keyed(&["parent"], "", SKIP)).await.jobs,
        parent.jobs
    );
    let child = only(claim(&*store, worker, 1).await);
    let failed = failed_at(&child, &child.positions, &error().permanent());
    exchange(&*store, worker, vec![failed], None).await;
    assert_eq!(state(&*store, parent.jobs[0]).await, JobState::Dead);
    assert_eq!(submit_keyed(&*store, keyed(&["parent"], "", SKIP)).await.count, 1);
}

/// A job whose priority was lowered by hand gets the priority of a duplicate, even if its batch once had a higher one.
pub async fn a_duplicate_raises_a_lowered_priority(database: &dyn Database) {
    let store = database.open().await;
    let mut first = keyed(&["a", "b"], "", SKIP);
    first.batch.options.priority = 1;
    let first = submit_keyed(&*store, first).await;
    let lowered = Selection::Jobs(vec![first.jobs[0]]);
    change(&*store, lowered, Change::Prioritise(-2)).await;
    let again = submit_keyed(&*store, keyed(&["a", "b"], "", SKIP)).await;
    assert_eq!(again.jobs, first.jobs);
    for (id, priority) in first.jobs.into_iter().zip([0, 1]) {
        assert_eq!(store.job(id).await.unwrap().unwrap().row.priority, priority);
    }
}
