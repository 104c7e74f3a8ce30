//! Batches that wait for others.

use gristmill_model::{
    After, BatchId, Clock, Hooks, JobId, JobState, NewBatch, OnFailure, Prerequisite, RetryPolicy, WorkerId,
};
use gristmill_store::{
    Change, FailedPrerequisite, JobFilter, NewRun, PruneOptions, RunAdvance, RunState, Selection, Store,
    StoreError,
};

use crate::Database;
use crate::fixture::*;

/// A batch of `count` jobs that wait for prerequisites.
pub(super) fn waiting(count: u32, after: impl IntoIterator<Item = After>) -> NewBatch {
    NewBatch {
        after: after.into_iter().collect(),
        ..once(count)
    }
}

pub(super) async fn state(store: &dyn Store, batch: BatchId) -> JobState {
    states(store, batch).await[0]
}

async fn cancel_all(store: &dyn Store, batch: BatchId) -> u64 {
    let filter = JobFilter {
        batch: Some(batch),
        ..JobFilter::default()
    };
    change(store, filter, Change::Cancel).await.changed
}

/// Claims all jobs, and completes them in the exchanges that claim more. Returns the batches in order.
async fn drain(store: &dyn Store, worker: WorkerId) -> Vec<BatchId> {
    let mut order = Vec::new();
    let mut lease = claim(store, worker, 10_000).await;
    while let Some(held) = lease {
        order.extend(held.slices.iter().map(|slice| slice.batch));
        let reports = held.slices.iter().map(completed).collect();
        lease = exchange(store, worker, reports, Some(want(10_000))).await.lease;
    }
    order
}

/// Batches of one submit that wait for one another run in order. They are blocked until then.
pub async fn a_chain_runs_in_order(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let mut urgent = waiting(2, [After::earlier(1)]);
    urgent.options.priority = 9;
    let chain = vec![once(3), waiting(2, [After::earlier(0)]), urgent];
    let ids = store.submit(chain, None).await.unwrap();
    assert_eq!(
        states(&*store, ids[1]).await,
        [JobState::Blocked, JobState::Blocked]
    );
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.blocked, counts.waiting, counts.total()), (4, 3, 7));
    let blocked = JobFilter {
        states: vec![JobState::Blocked],
        ..JobFilter::default()
    };
    assert_eq!(store.counts(&blocked).await.unwrap().total(), 4);
    let page = gristmill_store::Page {
        after: None,
        limit: 10,
    };
    assert_eq!(store.jobs(&blocked, page).await.unwrap().len(), 4);
    assert!(!store.is_finished(ids[2]).await.unwrap());
    assert_eq!(drain(&*store, worker).await, ids);
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().completed, 7);
}

/// A blocked job shows its prerequisites while they are open.
pub async fn a_blocked_job_shows_its_prerequisites(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let first = submit(&*store, once(3)).await;
    let second = submit(&*store, once(2)).await;
    let after = [
        After::batch(first),
        After::job(job(second, 1)).on_failure(OnFailure::Ignore),
    ];
    let mut hooked = waiting(2, after);
    hooked.options.hooks = Hooks::of(Some("done".parse().unwrap()), None);
    let blocked = submit(&*store, hooked).await;
    let told = async || {
        let details = store.job(job(blocked, 1)).await.unwrap().unwrap();
        let described = details.prerequisites.iter().map(|prerequisite| {
            let (jobs, counts) = (
                prerequisite.positions.as_deref().unwrap_or("all"),
                prerequisite.counts,
            );
            let states = (counts.waiting, counts.running, counts.completed);
            format!(
                "{}:{jobs} {} {states:?}",
                prerequisite.batch, prerequisite.on_failure
            )
        });
        described.collect::<Vec<_>>()
    };
    assert_eq!(
        told().await,
        [
            format!("{first}:all cancel (3, 0, 0)"),
            format!("{second}:1 ignore (1, 0, 0)")
        ]
    );
    let lease = claim(&*store, worker, 1).await.unwrap();
    assert_eq!(told().await[0], format!("{first}:all cancel (2, 1, 0)"));
    exchange(&*store, worker, vec![completed(&lease.slices[0])], None).await;
    assert_eq!(told().await[0], format!("{first}:all cancel (2, 0, 1)"));
    let lease = claim(&*store, worker, 2).await.unwrap();
    exchange(&*store, worker, vec![completed(&lease.slices[0])], None).await;
    assert_eq!(told().await, [format!("{second}:1 ignore (1, 0, 0)")]);
    drain(&*store, worker).await;
    assert!(told().await.is_empty());
}

/// A batch that waits for a whole batch continues exactly once, when the last of its jobs has ended.
pub async fn a_fan_in_fires_once(database: &dyn Database) {
    let store = database.open().await;
    let other = database.open().await;
    let id = submit(&*store, once(10)).await;
    let next = submit(&*store, waiting(2, [After::batch(id)])).await;
    let (first, second) = (worker(&*store).await, worker(&*other).await);
    let left = claim(&*store, first, 5).await.unwrap();
    let right = claim(&*other, second, 10).await.unwrap();
    let most = completed_at(&right.slices[0], &positions("5-8"));
    exchange(&*other, second, vec![most], None).await;
    let all = completed(&left.slices[0]);
    exchange(&*store, first, vec![all.clone()], None).await;
    assert_eq!(state(&*store, next).await, JobState::Blocked);
    let last = completed_at(&right.slices[0], &positions("9"));
    let answer = exchange(&*other, second, vec![last.clone()], Some(want(10))).await;
    assert_eq!(held(&answer.lease), [format!("{next}:0-1")]);
    // A repeated report is refused, and continues nothing.
    exchange(&*store, first, vec![all], None).await;
    exchange(&*other, second, vec![last], None).await;
    assert_eq!(held(&claim(&*store, first, 10).await), [""; 0]);
    assert_eq!(
        states(&*store, next).await,
        [JobState::Running, JobState::Running]
    );
}

/// A late report of a rescued job ends no job, so no other job continues because of it.
pub async fn a_stale_report_fires_nothing(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, once(1)).await;
    let next = submit(&*store, waiting(1, [After::batch(id)])).await;
    let stale = worker(&*store).await;
    let lease = claim(&*store, stale, 1).await.unwrap();
    store
        .rescue(gristmill_model::Timestamp(0), vec![stale])
        .await
        .unwrap();
    exchange(&*store, stale, vec![completed(&lease.slices[0])], None).await;
    assert_eq!(
        (state(&*store, id).await, state(&*store, next).await),
        (JobState::Waiting, JobState::Blocked)
    );
    let fresh = worker(&*store).await;
    assert_eq!(drain(&*store, fresh).await, [id, next]);
}

/// A batch can wait for single jobs of several batches and kinds.
pub async fn single_jobs_can_be_waited_for(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let first = submit(&*store, once(4)).await;
    let second = submit(&*store, batch_of("other", 2)).await;
    let next = waiting(
        1,
        [
            After::job(job(first, 3)),
            After::job(job(first, 1)),
            After::job(job(second, 0)),
        ],
    );
    let next = store.submit_one(next).await.unwrap().batch;
    let lease = claim(&*store, worker, 10).await.unwrap();
    let [one, two] = &lease.slices[..] else {
        panic!("expected two slices, but got {lease:?}")
    };
    for (slice, done) in [(one, "3"), (two, "0"), (one, "0,2")] {
        exchange(&*store, worker, vec![completed_at(slice, &positions(done))], None).await;
        assert_eq!(state(&*store, next).await, JobState::Blocked);
    }
    exchange(&*store, worker, vec![completed_at(one, &positions("1"))], None).await;
    assert_eq!(state(&*store, next).await, JobState::Waiting);
}

/// Jobs that wait for a failing job become cancelled, dead or ready, by their own choice, after all prerequisites have ended.
pub async fn a_failed_prerequisite_has_the_chosen_effect(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, once(3)).await;
    let on = |on_failure| waiting(2, [After::batch(id).on_failure(on_failure)]);
    let cancelled = submit(&*store, on(OnFailure::Cancel)).await;
    let dead = submit(&*store, on(OnFailure::Fail)).await;
    let ready = submit(&*store, on(OnFailure::Ignore)).await;
    let other = submit(&*store, waiting(1, [After::job(job(id, 2))])).await;
    let lease = claim(&*store, worker, 3).await.unwrap();
    let failed = failed_at(&lease.slices[0], &positions("1"), &error());
    exchange(&*store, worker, vec![failed], None).await;
    assert_eq!(state(&*store, cancelled).await, JobState::Blocked);
    let rest = completed_at(&lease.slices[0], &positions("0,2"));
    exchange(&*store, worker, vec![rest], None).await;
    assert_eq!(states(&*store, cancelled).await, [JobState::Cancelled; 2]);
    assert_eq!(states(&*store, dead).await, [JobState::Dead; 2]);
    assert_eq!(states(&*store, ready).await, [JobState::Waiting; 2]);
    assert_eq!(state(&*store, other).await, JobState::Waiting);
    let details = store.job(job(dead, 1)).await.unwrap().unwrap();
    let failure = &details.failures[0].error;
    assert_eq!(
        (
            failure.error_type.as_str(),
            failure.message.as_str(),
            failure.permanent
        ),
        (
            "prerequisite",
            format!("job {id}:1, which it waited for, ended as dead").as_str(),
            true
        )
    );
    assert!(store.is_finished(dead).await.unwrap() && store.is_finished(cancelled).await.unwrap());
    // A retry by hand runs them all the same.
    let named = Selection::Jobs(vec![job(dead, 0), job(dead, 1), job(cancelled, 0)]);
    assert_eq!(change(&*store, named, Change::Retry).await.changed, 3);
    let mut ran = drain(&*store, worker).await;
    ran.sort_unstable();
    assert_eq!(ran, [cancelled, dead, ready, other]);
}

/// A job that was cancelled because of a prerequisite shows the first job that did not complete, until it is retried.
pub async fn a_cancelled_job_shows_its_cause(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let first = submit(&*store, once(3)).await;
    let second = submit(&*store, waiting(2, [After::batch(first)])).await;
    let third = submit(&*store, waiting(1, [After::job(job(second, 1))])).await;
    let failing = waiting(1, [After::batch(first).on_failure(OnFailure::Fail)]);
    let failing = submit(&*store, failing).await;
    let lease = claim(&*store, worker, 3).await.unwrap();
    let mut report = failed_at(&lease.slices[0], &positions("1-2"), &error());
    report.completed = completed_at(&lease.slices[0], &positions("0")).completed;
    exchange(&*store, worker, vec![report], None).await;
    let cause = async |id| store.job(id).await.unwrap().unwrap().cause;
    let of = |id, state| Some(FailedPrerequisite { job: id, state });
    assert_eq!(cause(job(second, 0)).await, of(job(first, 1), JobState::Dead));
    assert_eq!(cause(job(second, 1)).await, of(job(first, 1), JobState::Dead));
    assert_eq!(
        cause(job(third, 0)).await,
        of(job(second, 1), JobState::Cancelled)
    );
    // The error of its attempt names the prerequisite.
    assert_eq!(
        (state(&*store, failing).await, cause(job(failing, 0)).await),
        (JobState::Dead, None)
    );
    // A job that is submitted after the failure has the same cause.
    let late = submit(&*store, waiting(1, [After::job(job(first, 2))])).await;
    assert_eq!(cause(job(late, 0)).await, of(job(first, 2), JobState::Dead));

    // The other jobs of the report keep the cause. A cancellation by request has none.
    let retry = Selection::Jobs(vec![job(second, 0)]);
    assert_eq!(change(&*store, retry, Change::Retry).await.changed, 1);
    assert_eq!(cause(job(second, 0)).await, None);
    assert_eq!(cause(job(second, 1)).await, of(job(first, 1), JobState::Dead));
    assert_eq!(cancel_all(&*store, second).await, 1);
    assert_eq!(state(&*store, second).await, JobState::Cancelled);
    assert_eq!(cause(job(second, 0)).await, None);
}

/// A job that waits for a job that waits in vain also waits in vain, however long the chain is.
pub async fn a_failure_ends_the_whole_chain(database: &dyn Database) {
    const LENGTH: usize = 3_000;
    let store = database.open().await;
    let worker = worker(&*store).await;
    let mut chain = vec![once(1)];
    chain.extend((1..LENGTH).map(|place| {
        let on_failure = match place % 2 {
            0 => OnFailure::Fail,
            _ => OnFailure::Cancel,
        };
        waiting(1, [After::earlier(place - 1).on_failure(on_failure)])
    }));
    chain.push(waiting(
        1,
        [After::earlier(LENGTH - 1).on_failure(OnFailure::Ignore)],
    ));
    let ids = store.submit(chain, None).await.unwrap();
    let lease = claim(&*store, worker, 10).await.unwrap();
    assert_eq!(lease.jobs(), 1);
    let failed = failed_at(&lease.slices[0], &positions("0"), &error());
    let answer = exchange(&*store, worker, vec![failed], Some(want(10))).await;
    let last = ids[LENGTH];
    assert_eq!(held(&answer.lease), [format!("{last}:0")]);
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    let half = LENGTH as u64 / 2;
    assert_eq!(
        (counts.cancelled, counts.dead, counts.running, counts.total()),
        (half, half, 1, LENGTH as u64 + 1)
    );
    let details = store.job(job(ids[2], 0)).await.unwrap().unwrap();
    assert_eq!(
        details.row.error,
        Some(format!(
            "job {}:0, which it waited for, ended as cancelled",
            ids[1]
        ))
    );
}

/// A batch can wait for very many others, and for one batch in several ways.
pub async fn a_batch_can_wait_for_many_others(database: &dyn Database) {
    const COUNT: usize = 2_000;
    let store = database.open().await;
    let worker = worker(&*store).await;
    let mut graph: Vec<NewBatch> = (0..COUNT).map(|_| once(1)).collect();
    graph.extend((0..50).map(|_| waiting(1, (0..COUNT).step_by(40).map(After::earlier))));
    graph.push(waiting(1, (0..COUNT + 50).map(After::earlier)));
    let ids = store.submit(graph, None).await.unwrap();
    let order = drain(&*store, worker).await;
    assert_eq!(order.len(), ids.len());
    assert_eq!(order.last(), ids.last());
}

/// A prerequisite that has ended delays nothing. A failed one counts as failed at once.
pub async fn ended_prerequisites_count_at_once(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, once(3)).await;
    let lease = claim(&*store, worker, 2).await.unwrap();
    let mut report = failed_at(&lease.slices[0], &positions("1"), &error());
    report.completed = completed_at(&lease.slices[0], &positions("0")).completed;
    exchange(&*store, worker, vec![report], None).await;
    let after_job = |position| waiting(1, [After::job(job(id, position))]);
    let ready = submit(&*store, after_job(0)).await;
    let vain = submit(&*store, after_job(1)).await;
    let blocked = submit(&*store, after_job(2)).await;
    let behind = submit(
        &*store,
        waiting(1, [After::batch(vain).on_failure(OnFailure::Fail)]),
    )
    .await;
    let mut found = Vec::new();
    for batch in [ready, vain, blocked, behind] {
        found.push(state(&*store, batch).await);
    }
    assert_eq!(
        found,
        [
            JobState::Waiting,
            JobState::Cancelled,
            JobState::Blocked,
            JobState::Dead
        ]
    );
    let rejected = NewBatch {
        rejected: vec![gristmill_model::Rejected {
            position: 0,
            error: error(),
        }],
        ..once(2)
    };
    let submit = vec![
        rejected,
        waiting(
            1,
            [After {
                positions: Some(positions("0")),
                ..After::earlier(0)
            }],
        ),
        waiting(
            1,
            [After {
                positions: Some(positions("1")),
                ..After::earlier(0)
            }],
        ),
    ];
    let ids = store.submit(submit, None).await.unwrap();
    assert_eq!(state(&*store, ids[1]).await, JobState::Cancelled);
    assert_eq!(state(&*store, ids[2]).await, JobState::Blocked);
}

/// A submit with a missing prerequisite is refused as a whole. The store keeps working.
pub async fn missing_prerequisites_are_refused(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, once(2)).await;
    let gone = BatchId(id.0 + 1_000);
    for wrong in [
        vec![once(1), waiting(1, [After::batch(gone)])],
        vec![waiting(1, [After::job(job(id, 2))])],
        vec![waiting(1, [After::earlier(0)])],
        vec![waiting(1, [After::earlier(1)]), once(1)],
        vec![
            once(1),
            waiting(
                1,
                [After {
                    prerequisite: Prerequisite::Earlier(0),
                    ..After::job(job(id, 1))
                }],
            ),
        ],
    ] {
        let refused = store.submit(wrong, None).await.unwrap_err();
        assert!(
            matches!(refused, StoreError::PrerequisiteUnknown(batch) if batch == gone)
                || matches!(refused, StoreError::InvalidBatch(_)),
            "{refused}"
        );
    }
    let single = store.submit_one(waiting(1, [After::batch(gone)]));
    let beside = store.submit_one(waiting(1, [After::batch(id)]));
    let (single, beside) = tokio::join!(single, beside);
    assert!(single.unwrap_err().to_string().contains(&gone.to_string()));
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.waiting, counts.blocked, counts.total()), (2, 1, 3));
    assert_eq!(drain(&*store, worker).await, [id, beside.unwrap().batch]);
}

/// A cancelled batch is pruned with all its rows while its prerequisite is still open.
pub async fn a_batch_is_pruned_before_its_prerequisite_ends(database: &dyn Database) {
    let store = database.open().await;
    let first = submit(&*store, once(2)).await;
    let second = submit(&*store, waiting(2, [After::batch(first)])).await;
    assert_eq!(cancel_all(&*store, second).await, 2);
    database.clock().advance_ms(100);
    let options = PruneOptions {
        finished_before: database.clock().now(),
        keep_batches: 0,
        dead_too: false,
        dry_run: false,
    };
    assert_eq!(store.prune(options).await.unwrap().batches, 1);
    no_damage(&*store).await;
    let worker = worker(&*store).await;
    assert_eq!(drain(&*store, worker).await, [first]);
    no_damage(&*store).await;
}

/// Blocked jobs can be cancelled, and they expire. Jobs that wait for a cancelled or expired job end with it.
pub async fn blocked_jobs_are_cancelled_and_expire(database: &dyn Database) {
    let store = database.open().await;
    let soon = database.clock().now().plus_ms(1_000);
    let id = submit(&*store, once(1)).await;
    let part = submit(&*store, waiting(3, [After::batch(id)])).await;
    let behind = submit(&*store, waiting(1, [After::job(job(part, 1))])).await;
    let changed = change(&*store, job(part, 1), Change::Cancel).await;
    assert_eq!(changed.changed, 1);
    assert_eq!(
        states(&*store, part).await,
        [JobState::Blocked, JobState::Cancelled, JobState::Blocked]
    );
    assert_eq!(state(&*store, behind).await, JobState::Cancelled);

    let mut late = waiting(2, [After::batch(id)]);
    late.options.expires_at = Some(soon);
    let late = submit(&*store, late).await;
    let behind = submit(&*store, waiting(1, [After::batch(late)])).await;
    let mut unstarted = once(1);
    unstarted.options.expires_at = Some(soon);
    let unstarted = submit(&*store, unstarted).await;
    let behind_it = submit(&*store, waiting(1, [After::batch(unstarted)])).await;
    database.clock().advance_ms(1_000);
    assert_eq!(store.expire().await.unwrap(), 3);
    assert_eq!(states(&*store, late).await, [JobState::Expired; 2]);
    assert_eq!(state(&*store, behind).await, JobState::Cancelled);
    assert_eq!(state(&*store, behind_it).await, JobState::Cancelled);

    // A filter counts the jobs that it matches. Jobs that wait for them follow.
    let running = worker(&*store).await;
    claim(&*store, running, 1).await.unwrap();
    assert_eq!(cancel_all(&*store, id).await, 1);
    assert_eq!(
        states(&*store, part).await,
        [JobState::Cancelled; 3],
        "the other jobs follow"
    );
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    assert_eq!(counts.blocked + counts.waiting + counts.running, 0);
    let all = submit(&*store, once(2)).await;
    submit(&*store, waiting(2, [After::batch(all)])).await;
    let everything = Selection::Filter(JobFilter::default());
    assert_eq!(change(&*store, everything, Change::Cancel).await.changed, 4);
}

/// A dead job that is retried before the other prerequisites have ended counts as open again.
pub async fn a_retried_job_is_waited_for(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let id = submit(&*store, once(2)).await;
    let next = submit(&*store, waiting(1, [After::batch(id)])).await;
    let lease = claim(&*store, worker, 2).await.unwrap();
    let failed = failed_at(&lease.slices[0], &positions("0"), &error());
    exchange(&*store, worker, vec![failed], None).await;
    let dead = Selection::Jobs(vec![job(id, 0)]);
    assert_eq!(change(&*store, dead.clone(), Change::Retry).await.changed, 1);
    let rest = completed_at(&lease.slices[0], &positions("1"));
    let answer = exchange(&*store, worker, vec![rest], Some(want(5))).await;
    assert_eq!(state(&*store, next).await, JobState::Blocked);
    let again = &answer.lease.unwrap().slices[0];
    exchange(&*store, worker, vec![completed(again)], None).await;
    assert_eq!(state(&*store, next).await, JobState::Waiting);
    // After the end, the job does not wait again.
    assert_eq!(change(&*store, dead, Change::Retry).await.changed, 0);
    assert_eq!(drain(&*store, worker).await, [next]);
}

/// Jobs that are given back, rescued or tried again keep other jobs waiting. The wait ends when such a job ends.
pub async fn jobs_that_come_back_keep_others_waiting(database: &dyn Database) {
    let store = database.open().await;
    let lost = worker(&*store).await;
    let mut new = batch(3);
    new.options.retry = RetryPolicy {
        attempts_max: 2,
        delay_ms: 0,
        ..RetryPolicy::NEVER
    };
    let id = submit(&*store, new).await;
    let next = submit(&*store, waiting(1, [After::batch(id)])).await;
    let lease = claim(&*store, lost, 3).await.unwrap();
    let mut report = failed_at(&lease.slices[0], &positions("0"), &error());
    report.released = positions("1");
    exchange(&*store, lost, vec![report], None).await;
    store
        .rescue(gristmill_model::Timestamp(0), vec![lost])
        .await
        .unwrap();
    assert_eq!(state(&*store, next).await, JobState::Blocked);
    let fresh = worker(&*store).await;
    let lease = claim(&*store, fresh, 3).await.unwrap();
    assert_eq!(lease.jobs(), 3);
    store.leave(fresh, Default::default()).await.unwrap();
    let last = worker(&*store).await;
    let order = drain(&*store, last).await;
    assert_eq!(order.last(), Some(&next));
    assert_eq!(state(&*store, next).await, JobState::Completed);
}

/// Two handles end the halves of a prerequisite at the same time, while a third submits a job that waits for it.
/// Exactly one of them lets the waiting jobs continue.
pub async fn ends_that_meet_fire_once(database: &dyn Database) {
    let (store, other) = (database.open().await, database.open().await);
    let (first, second) = (worker(&*store).await, worker(&*other).await);
    for round in 0..30 {
        let ids = store.submit(vec![once(2), once(2)], None).await.unwrap();
        let after = |batch: &BatchId| After::batch(*batch);
        let early = submit(&*store, waiting(1, ids.iter().map(after))).await;
        let (left, right) = (claim(&*store, first, 2).await, claim(&*other, second, 2).await);
        let (left, right) = (left.unwrap(), right.unwrap());
        let reports = |slice, done| vec![completed_at(slice, &positions(done))];
        exchange(&*store, first, reports(&left.slices[0], "0"), None).await;
        exchange(&*other, second, reports(&right.slices[0], "1"), None).await;
        let (_, _, late) = tokio::join!(
            exchange(&*store, first, reports(&left.slices[0], "1"), None),
            exchange(&*other, second, reports(&right.slices[0], "0"), None),
            store.submit_one(waiting(1, ids.iter().map(after))),
        );
        let late = late.unwrap().batch;
        let mut ready: Vec<JobId> = Vec::new();
        for (by, worker) in [(&store, first), (&other, second)] {
            while let Some(lease) = claim(&**by, worker, 1).await {
                let slice = &lease.slices[0];
                ready.push(job(slice.batch, slice.positions.first().unwrap()));
                exchange(&**by, worker, vec![completed(slice)], None).await;
            }
        }
        ready.sort_unstable();
        assert_eq!(ready, [job(early, 0), job(late, 0)], "in round {round}");
    }
}

/// A waiting batch is not pruned. The deletion of a run ends the jobs that wait for its batches.
pub async fn deleted_batches_are_not_waited_for(database: &dyn Database) {
    let store = database.open().await;
    let run = NewRun {
        name: "nightly".to_owned(),
        description: "{}".to_owned(),
    };
    let run = store.create_run(run).await.unwrap();
    let advance = RunAdvance {
        run: run.id,
        progress: run.progress,
        state: RunState::Submitting,
    };
    let id = store.submit(vec![once(2)], Some(advance)).await.unwrap()[0];
    let next = submit(&*store, waiting(1, [After::batch(id)])).await;
    let all = PruneOptions {
        finished_before: database.clock().now().plus_ms(1_000_000),
        keep_batches: 0,
        dead_too: true,
        dry_run: false,
    };
    assert_eq!(store.prune(all).await.unwrap().batches, 0);
    store.delete_run(run.id).await.unwrap();
    assert_eq!(state(&*store, next).await, JobState::Cancelled);
    let refused = store.submit(vec![waiting(1, [After::batch(id)])], None).await;
    assert!(matches!(refused, Err(StoreError::PrerequisiteUnknown(batch)) if batch == id));
    assert_eq!(store.prune(all).await.unwrap().batches, 1);
    let refused = store.submit(vec![waiting(1, [After::batch(next)])], None).await;
    assert!(matches!(refused, Err(StoreError::PrerequisiteUnknown(batch)) if batch == next));
}
