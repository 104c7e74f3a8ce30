//! Jobs that the store submits at the end of a batch or a run.

use std::collections::BTreeMap;

use gristmill_model::{
    After, BatchId, BatchOptions, Clock, Hooks, JobState, KeyedBatch, Lease, NewBatch, PackedArray,
    RecurrenceRule, Rejected, RetryPolicy, Spawn, Unique, WorkerId,
};
use gristmill_store::hook::{EndSummary, WebhookPayload};
use gristmill_store::{
    CatchUp, Change, JobCounts, JobFilter, NewRun, NewSchedule, Overlap, Page, RunState, Store, StoreError,
    Want,
};

use crate::Database;
use crate::fixture::*;

const DONE: &str = "done";
const FAILED: &str = "failed";

fn hooks() -> Option<Box<Hooks>> {
    Hooks::of(Some(DONE.parse().unwrap()), Some(FAILED.parse().unwrap()))
}

/// A batch of `count` jobs with a single attempt and both hooks.
fn hooked(count: u32) -> NewBatch {
    let mut new = once(count);
    new.options.hooks = hooks();
    new
}

/// The summary of a batch in these checks. It was submitted and has ended at the current time.
fn summary(database: &dyn Database, batch: BatchId, counts: &[(JobState, u64)]) -> EndSummary {
    let now = database.clock().now().to_string();
    let mut summary = EndSummary {
        outcome: String::new(),
        name: None,
        batch: Some(batch),
        run: None,
        kind: KIND.to_owned(),
        queue: "default".to_owned(),
        jobs: 0,
        completed: 0,
        dead: 0,
        cancelled: 0,
        expired: 0,
        submitted_at: now.clone(),
        ended_at: now,
    };
    for (state, jobs) in counts {
        summary.add(*state, *jobs);
    }
    summary
}

/// The kinds and payloads of all hook jobs, in order.
async fn submitted(store: &dyn Store) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let page = Page {
        after: None,
        limit: 10_000,
    };
    for row in store.jobs(&JobFilter::default(), page).await.unwrap() {
        if &*row.kind != KIND {
            let details = store.job(row.job).await.unwrap().unwrap();
            all.push((row.kind.to_string(), details.payload.get().to_owned()));
        }
    }
    all
}

/// The only hook job, which must be of this kind.
async fn the_hook(store: &dyn Store, kind: &str) -> EndSummary {
    let all = submitted(store).await;
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0].0, kind);
    serde_json::from_str(&all[0].1).unwrap()
}

/// The end of the last job submits the hook's job in the same transaction. The same exchange can claim it.
pub async fn a_batch_that_completes_submits_its_hook(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let mut new = hooked(5);
    new.options.hooks.as_mut().unwrap().name = Some("nightly".to_owned());
    let id = submit(&*store, new).await;
    let slice = only(claim(&*store, worker, 5).await);
    let most = vec![completed_at(&slice, &positions("0-1,3-4"))];
    let exchanged = exchange(&*store, worker, most, Some(want(5))).await;
    assert_eq!((exchanged.lease, submitted(&*store).await), (None, Vec::new()));
    database.clock().advance_ms(1_234);
    let last = vec![completed_at(&slice, &positions("2"))];
    let exchanged = exchange(&*store, worker, last, Some(want(5))).await;
    let hook = only(exchanged.lease);
    assert_eq!(&*hook.kind, DONE);
    let told: EndSummary = serde_json::from_str(hook.payloads.items().next().unwrap()).unwrap();
    let submitted_at = database.clock().now().plus_ms(-1_234).to_string();
    let expected = EndSummary {
        name: Some("nightly".to_owned()),
        submitted_at,
        ..summary(database, id, &[(JobState::Completed, 5)])
    };
    assert_eq!(told, expected);
    assert_eq!(told.outcome, "success");
    let details = store.job(job(hook.batch, 0)).await.unwrap().unwrap();
    assert_eq!(details.options, BatchOptions::default());
    assert_eq!(submitted(&*store).await.len(), 1, "only one of two hooks fires");
}

/// Every other end submits the other hook's job, with the counts by state.
pub async fn a_batch_that_fails_submits_the_other_hook(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let mut new = hooked(6);
    new.rejected = vec![Rejected {
        position: 5,
        error: error(),
    }];
    new.options.expires_at = Some(database.clock().now().plus_ms(1));
    let id = submit(&*store, new).await;
    let slice = only(claim(&*store, worker, 3).await);
    let mut ends = failed_at(&slice, &positions("1-2"), &error());
    ends.completed = completed_at(&slice, &positions("0")).completed;
    exchange(&*store, worker, vec![ends], None).await;
    let cancelled = change(&*store, job(id, 3), Change::Cancel).await;
    assert_eq!((cancelled.changed, submitted(&*store).await), (1, Vec::new()));
    let submitted_at = database.clock().now().to_string();
    database.clock().advance_ms(1);
    assert_eq!(store.expire().await.unwrap(), 1);
    let counts = [
        (JobState::Completed, 1),
        (JobState::Dead, 3),
        (JobState::Cancelled, 1),
        (JobState::Expired, 1),
    ];
    let expected = EndSummary {
        submitted_at,
        ..summary(database, id, &counts)
    };
    assert_eq!(the_hook(&*store, FAILED).await, expected);
    assert_eq!(expected.outcome, "failure");
}

/// The hook for the other outcome does not fire.
pub async fn a_hook_fires_only_for_its_outcome(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let mut new = once(1);
    new.options.hooks = Hooks::of(None, Some(FAILED.parse().unwrap()));
    submit(&*store, new).await;
    let slice = only(claim(&*store, worker, 1).await);
    exchange(&*store, worker, vec![completed(&slice)], None).await;
    assert_eq!(submitted(&*store).await, []);
    assert_eq!(store.stats().await.unwrap().batches, 1);
}

/// A hook that is a URL becomes a job of the built-in kind, with the summary as the body.
pub async fn a_url_gets_the_summary(database: &dyn Database) {
    let store = database.open().await;
    let url = "https://hooks.example/x?y=\"z\"";
    let mut new = once(2);
    new.queue = "slow".to_owned();
    new.options.hooks = Hooks::of(None, Some(url.parse().unwrap()));
    let id = submit(&*store, new).await;
    let filter = JobFilter {
        batch: Some(id),
        ..JobFilter::default()
    };
    change(&*store, filter, Change::Cancel).await;
    let all = submitted(&*store).await;
    assert_eq!((all.len(), all[0].0.as_str()), (1, "http"));
    let payload: WebhookPayload<EndSummary> = serde_json::from_str(&all[0].1).unwrap();
    let expected = EndSummary {
        queue: "slow".to_owned(),
        ..summary(database, id, &[(JobState::Cancelled, 2)])
    };
    assert_eq!((payload.url.as_str(), payload.body), (url, expected));
    let stats = store.stats().await.unwrap();
    assert!(stats.kinds.iter().all(|lane| &*lane.queue == "slow"), "{stats:?}");
}

/// Simultaneous ends submit one job. So does a batch that ends, is retried and ends again.
pub async fn a_hook_is_submitted_once(database: &dyn Database) {
    let (one, other) = (database.open().await, database.open().await);
    for round in 0..10 {
        let id = submit(&*one, hooked(2)).await;
        let (first, second) = (worker(&*one).await, worker(&*other).await);
        let left = only(claim_work(&*one, first).await);
        let right = only(claim_work(&*other, second).await);
        tokio::join!(
            exchange(&*one, first, vec![completed(&left)], None),
            exchange(
                &*other,
                second,
                vec![failed_at(&right, &right.positions, &error())],
                None
            ),
        );
        let all = submitted(&*one).await;
        assert_eq!(all.len(), round + 1, "{all:?}");
        let dead = vec![job(id, right.positions.first().unwrap())];
        assert_eq!(change(&*one, dead, Change::Retry).await.changed, 1);
        let again = only(claim_work(&*one, first).await);
        exchange(&*one, first, vec![completed(&again)], None).await;
        assert_eq!(submitted(&*one).await.len(), round + 1);
    }
}

/// Claims a job that is not a hook's.
async fn claim_work(store: &dyn Store, worker: WorkerId) -> Option<Lease> {
    let want = Want {
        kinds: vec![KIND.into()],
        ..want(1)
    };
    exchange(store, worker, Vec::new(), Some(want)).await.lease
}

/// A batch has not ended while one of its jobs waits for a retry or for its children.
pub async fn hooks_wait_for_retries_and_children(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let mut new = hooked(2);
    new.options.retry = RetryPolicy {
        attempts_max: 2,
        delay_ms: 0,
        delay_ms_max: 0,
        ..RetryPolicy::default()
    };
    let id = submit(&*store, new).await;
    let slice = only(claim(&*store, worker, 2).await);
    let mut report = failed_at(&slice, &positions("0"), &error());
    let spawn = |_| Spawn::new().children(KIND, [1]).unwrap();
    report.suspended = suspended_at(&slice, &positions("1"), spawn).suspended;
    exchange(&*store, worker, vec![report], None).await;
    let mut seen = 0;
    // These are the retry, the child, and the parent that finalizes.
    while let Some(lease) = claim_work(&*store, worker).await {
        assert_eq!(submitted(&*store).await, []);
        let slice = only(Some(lease));
        seen += 1;
        exchange(&*store, worker, vec![completed(&slice)], None).await;
    }
    assert_eq!(seen, 3);
    assert_eq!(
        the_hook(&*store, DONE).await,
        summary(database, id, &[(JobState::Completed, 2)])
    );
}

/// Batches that end without running, at once or in a chain, also submit their hooks.
pub async fn batches_that_never_run_submit_their_hooks(database: &dyn Database) {
    let store = database.open().await;
    let mut rejected = hooked(1);
    rejected.rejected = vec![Rejected {
        position: 0,
        error: error(),
    }];
    let first = submit(&*store, rejected).await;
    let expected = summary(database, first, &[(JobState::Dead, 1)]);
    assert_eq!(the_hook(&*store, FAILED).await, expected);
    let mut next = hooked(2);
    next.after = vec![After::earlier(0)];
    let mut last = hooked(3);
    last.after = vec![After::earlier(1)];
    let ids = store.submit(vec![once(1), next, last], None).await.unwrap();
    change(&*store, job(ids[0], 0), Change::Cancel).await;
    let all = submitted(&*store).await;
    let ended: Vec<EndSummary> = all[1..]
        .iter()
        .map(|(kind, payload)| {
            assert_eq!(kind, FAILED);
            serde_json::from_str(payload).unwrap()
        })
        .collect();
    let expected = [(ids[1], 2), (ids[2], 3)];
    let expected = expected.map(|(id, jobs)| summary(database, id, &[(JobState::Cancelled, jobs)]));
    let mut ended = ended;
    ended.sort_by_key(|summary| summary.batch);
    assert_eq!(ended, expected);
}

/// A single job with hooks is its own batch, and its end has its own hook.
pub async fn single_jobs_have_their_own_hooks(database: &dyn Database) {
    let store = database.open().await;
    let submits = (0..4).map(|_| store.submit_one(hooked(1)));
    let jobs = futures::future::join_all(submits).await;
    for job in jobs {
        change(&*store, job.unwrap(), Change::Cancel).await;
    }
    let all = submitted(&*store).await;
    assert_eq!(all.len(), 4, "{all:?}");
}

/// The summary for the jobs of a schedule names the schedule.
pub async fn hooks_of_schedules_name_them(database: &dyn Database) {
    let store = database.open().await;
    let schedules = ["a", "b"].map(|name| NewSchedule {
        name: name.to_owned(),
        rule: RecurrenceRule::Every { interval_ms: 60_000 },
        kind: KIND.to_owned(),
        queue: "default".to_owned(),
        payload: PackedArray::parse("[1]").unwrap(),
        options: BatchOptions {
            hooks: hooks(),
            ..BatchOptions::default()
        },
        key: None,
        expires_after_ms: None,
        tags: BTreeMap::new(),
        catch_up: CatchUp::One,
        overlap: Overlap::Allow,
    });
    store.put_schedules(schedules.to_vec()).await.unwrap();
    database.clock().advance_ms(60_000);
    assert_eq!(store.fire_schedules(100).await.unwrap().batches.len(), 2);
    let worker = worker(&*store).await;
    while let Some(lease) = claim_work(&*store, worker).await {
        let reports = lease.slices.iter().map(completed).collect();
        exchange(&*store, worker, reports, None).await;
    }
    let all = submitted(&*store).await;
    let mut names: Vec<Option<String>> = all
        .iter()
        .map(|(_, payload)| serde_json::from_str::<EndSummary>(payload).unwrap().name)
        .collect();
    names.sort();
    assert_eq!(names, [Some("a".to_owned()), Some("b".to_owned())]);
}

/// The end of a run submits its hook once, however often the run is finished.
pub async fn a_run_that_finishes_submits_its_hook_once(database: &dyn Database) {
    let store = database.open().await;
    let new = NewRun {
        name: "nightly".to_owned(),
        description: "{}".to_owned(),
    };
    let run = store.create_run(new.clone()).await.unwrap();
    let hook = || batch_of(DONE, 1);
    store.finish_run(run.id, new.clone(), hook()).await.unwrap();
    store.finish_run(run.id, new.clone(), hook()).await.unwrap();
    let stored = store.run("nightly").await.unwrap().unwrap();
    assert_eq!(stored.state, RunState::Finished);
    assert_eq!(submitted(&*store).await.len(), 1);
    store.delete_run(run.id).await.unwrap();
    assert_eq!(
        submitted(&*store).await.len(),
        1,
        "the hook's job is not a job of the run"
    );
    let gone = store.finish_run(run.id, new, hook()).await;
    assert!(matches!(gone, Err(StoreError::RunUnknown(_))), "{gone:?}");
    assert_eq!(submitted(&*store).await.len(), 1);
}

/// Hooks without a recipient, and hooks of jobs with keys, are refused.
pub async fn wrong_hooks_are_refused(database: &dyn Database) {
    let store = database.open().await;
    let mut none = once(1);
    none.options.hooks = Some(Box::default());
    let refused = store.submit(vec![none], None).await.unwrap_err();
    assert!(refused.to_string().contains("on_success"), "{refused}");
    let keys = PackedArray::parse("[\"a\"]").unwrap();
    let keyed = KeyedBatch::new(hooked(1), keys, Unique::default());
    let refused = store.submit_keyed(vec![keyed]).await.unwrap_err();
    assert!(refused.to_string().contains("keys"), "{refused}");
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!(counts, JobCounts::default());
}
