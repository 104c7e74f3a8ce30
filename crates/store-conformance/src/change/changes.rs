//! Jobs that are cancelled, retried, or expire.

use gristmill_model::{Clock, JobState, RetryPolicy, Timestamp};
use gristmill_store::{BatchPositions, Change, Changed, JobFilter, Selection, Store};

use crate::Database;
use crate::fixture::*;

async fn state(store: &dyn Store, id: gristmill_model::JobId) -> (JobState, u32) {
    let row = store.job(id).await.unwrap().unwrap().row;
    (row.state, row.attempt)
}

/// Waiting, scheduled and running jobs can be cancelled. Other jobs stay as they are.
pub async fn open_jobs_are_cancelled(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, batch(6)).await;
    let mut delayed = batch(2);
    delayed.options.run_at = Some(database.clock().now().plus_ms(1_000));
    let later = submit(&*store, delayed).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 3).await.unwrap();
    let done = completed_at(&lease.slices[0], &positions("0"));
    exchange(&*store, worker, vec![done], None).await;

    let named = vec![
        job(id, 0),
        job(id, 1),
        job(id, 1),
        job(id, 4),
        job(later, 0),
        job(id, 99),
        job(later, 2),
    ];
    let changed = change(&*store, named.clone(), Change::Cancel).await;
    assert_eq!((changed.changed, changed.unchanged), (3, 3));
    assert_eq!(state(&*store, job(id, 0)).await, (JobState::Completed, 1));
    assert_eq!(state(&*store, job(id, 1)).await, (JobState::Cancelled, 1));
    assert_eq!(state(&*store, job(id, 4)).await, (JobState::Cancelled, 0));
    assert_eq!(state(&*store, job(later, 0)).await, (JobState::Cancelled, 0));
    assert_eq!(change(&*store, named, Change::Cancel).await.changed, 0);

    // The worker learns of it once, and its report of this job is refused.
    let heartbeat = store.heartbeat(worker, Default::default()).await.unwrap();
    assert_eq!(heartbeat.revoked.len(), 1);
    assert_eq!(
        (heartbeat.revoked[0].lease, heartbeat.revoked[0].batch),
        (lease.id, id)
    );
    assert_eq!(heartbeat.revoked[0].positions, positions("1"));
    assert!(
        store
            .heartbeat(worker, Default::default())
            .await
            .unwrap()
            .revoked
            .is_empty()
    );
    let late = completed_at(&lease.slices[0], &positions("1-2"));
    let receipts = exchange(&*store, worker, vec![late], Some(want(10))).await;
    assert_eq!(
        (
            receipts.receipts[0].accepted.to_string(),
            receipts.receipts[0].refused.to_string()
        ),
        ("2".into(), "1".into())
    );
    assert_eq!(held(&receipts.lease), [format!("{id}:3,5")]);
    assert_eq!(
        store
            .job(job(id, 1))
            .await
            .unwrap()
            .unwrap()
            .value
            .map(|value| value.to_string()),
        None
    );
}

/// Cancels exactly the jobs that match a filter.
pub async fn a_filter_selects_the_cancelled_jobs(database: &dyn Database) {
    let store = database.open().await;
    let resize = submit(&*store, batch_of("resize", 4)).await;
    let extract = submit(&*store, batch_of("extract", 4)).await;
    let worker = worker(&*store).await;
    claim(&*store, worker, 2).await.unwrap();
    let filter = |kind: Option<&str>, states: &[JobState]| {
        Selection::Filter(JobFilter {
            kind: kind.map(str::to_owned),
            states: states.to_vec(),
            ..JobFilter::default()
        })
    };
    let over = change(&*store, filter(None, &[JobState::Completed]), Change::Cancel).await;
    assert_eq!(over, Changed::default());
    let waiting = change(
        &*store,
        filter(Some("resize"), &[JobState::Waiting]),
        Change::Cancel,
    )
    .await;
    assert_eq!((waiting.changed, waiting.unchanged), (2, 0));
    assert_eq!(state(&*store, job(resize, 1)).await.0, JobState::Running);
    let rest = change(&*store, filter(Some("resize"), &[]), Change::Cancel).await;
    assert_eq!(rest.changed, 2);
    assert_eq!(state(&*store, job(extract, 0)).await.0, JobState::Waiting);
    let only = Selection::Filter(JobFilter {
        batch: Some(extract),
        ..JobFilter::default()
    });
    assert_eq!(change(&*store, only, Change::Cancel).await.changed, 4);
    assert!(store.is_finished(resize).await.unwrap() && store.is_finished(extract).await.unwrap());
}

/// A packed selection with states changes only jobs in these states, and no others of their batches.
pub async fn packed_jobs_are_changed(database: &dyn Database) {
    let store = database.open().await;
    let (one, two) = (
        submit(&*store, batch(6)).await,
        submit(&*store, batch_of("extract", 4)).await,
    );
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 2).await.unwrap();
    let done = completed_at(&lease.slices[0], &positions("0"));
    exchange(&*store, worker, vec![done], None).await;
    let packed = |states: &[JobState], jobs: &[(gristmill_model::BatchId, &str)]| {
        let jobs = jobs.iter().map(|(batch, named)| BatchPositions {
            batch: *batch,
            positions: positions(named),
        });
        Selection::Packed {
            jobs: jobs.collect(),
            states: states.to_vec(),
        }
    };
    // Job 0 has completed, job 1 runs, and the batch has no job 9.
    let waiting = packed(&[JobState::Waiting], &[(one, "0-3,9"), (two, "2-3")]);
    let paused = change(&*store, waiting, pausing("deploy", None)).await;
    assert_eq!((paused.changed, paused.unchanged), (4, 3));
    assert_eq!(state(&*store, job(one, 1)).await.0, JobState::Running);
    assert_eq!(state(&*store, job(one, 2)).await.0, JobState::Paused);
    assert_eq!(state(&*store, job(one, 4)).await.0, JobState::Waiting);
    assert_eq!(state(&*store, job(two, 1)).await.0, JobState::Waiting);
    let resumed = change(
        &*store,
        packed(&[JobState::Paused], &[(one, "0-5")]),
        resuming(Some("deploy")),
    )
    .await;
    assert_eq!((resumed.changed, resumed.unchanged), (2, 4));
    let open = packed(
        &[JobState::Running, JobState::Paused],
        &[(one, "1-2"), (two, "0-3")],
    );
    assert_eq!(change(&*store, open.clone(), Change::Cancel).await.changed, 3);
    assert_eq!(state(&*store, job(one, 1)).await.0, JobState::Cancelled);
    assert_eq!(state(&*store, job(one, 2)).await.0, JobState::Waiting);
    assert_eq!(state(&*store, job(two, 2)).await.0, JobState::Cancelled);
    // Their states have changed since. A selection without states means any state.
    assert_eq!(change(&*store, open, Change::Retry).await.changed, 0);
    let any = packed(&[], &[(one, "0-5"), (two, "3")]);
    assert_eq!(change(&*store, any, Change::Retry).await.changed, 2);
    assert_eq!(state(&*store, job(two, 2)).await.0, JobState::Cancelled);
    let none = packed(&[], &[]);
    assert_eq!(change(&*store, none, Change::Cancel).await, Changed::default());
}

/// Dead and cancelled jobs run again when they are retried, with all of their attempts.
pub async fn ended_jobs_are_retried(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, once(5)).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 4).await.unwrap();
    let mut report = failed_at(&lease.slices[0], &positions("0-2"), &error());
    report.completed = completed_at(&lease.slices[0], &positions("3")).completed;
    exchange(&*store, worker, vec![report], None).await;
    change(&*store, job(id, 4), Change::Cancel).await;
    assert!(store.is_finished(id).await.unwrap());

    let named = Selection::Jobs(vec![job(id, 0), job(id, 3), job(id, 4)]);
    let changed = change(&*store, named, Change::Retry).await;
    assert_eq!((changed.changed, changed.unchanged), (2, 1));
    assert!(!store.is_finished(id).await.unwrap());
    let outcomes = store.outcomes(id).await.unwrap().unwrap();
    assert_eq!(
        outcomes
            .errors
            .iter()
            .map(|failure| failure.position)
            .collect::<Vec<_>>(),
        [1, 2]
    );
    assert_eq!(outcomes.ended(), 3);
    let filter = JobFilter {
        states: vec![JobState::Dead],
        ..JobFilter::default()
    };
    assert_eq!(change(&*store, filter, Change::Retry).await.changed, 2);
    let mut order = Vec::new();
    while let Some(lease) = claim(&*store, worker, 5).await {
        for slice in &lease.slices {
            assert_eq!(slice.attempt, 1);
            order.extend(slice.positions.iter());
            exchange(&*store, worker, vec![completed(slice)], None).await;
        }
    }
    order.sort_unstable();
    assert_eq!(order, [0, 1, 2, 4]);
    let details = store.job(job(id, 0)).await.unwrap().unwrap();
    assert_eq!(
        (details.row.state, details.row.error, details.failures.len()),
        (JobState::Completed, None, 1)
    );
    assert!(store.outcomes(id).await.unwrap().unwrap().errors.is_empty());
}

/// A retried job may die again. All of its failures are kept.
pub async fn failures_are_kept_through_retries(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, once(1)).await;
    let worker = worker(&*store).await;
    for round in 1..=3 {
        let lease = claim(&*store, worker, 1).await.unwrap();
        let failed = failed_at(&lease.slices[0], &positions("0"), &error());
        let receipts = exchange(&*store, worker, vec![failed], None).await.receipts;
        assert_eq!(receipts[0].dead, positions("0"));
        assert_eq!(
            store.job(job(id, 0)).await.unwrap().unwrap().failures.len(),
            round
        );
        assert_eq!(change(&*store, job(id, 0), Change::Retry).await.changed, 1);
    }
}

/// Jobs that nobody starts in time expire. Jobs that were started do not.
pub async fn jobs_expire(database: &dyn Database) {
    let store = database.open().await;
    let now = database.clock().now();
    let mut new = batch(4);
    new.options.expires_at = Some(now.plus_ms(100));
    new.options.retry = RetryPolicy {
        delay_ms: 0,
        delay_ms_max: 0,
        ..RetryPolicy::default()
    };
    let id = submit(&*store, new).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 3).await.unwrap();
    assert_eq!(store.expire().await.unwrap(), 0);
    assert_eq!(store.next_expiry().await.unwrap(), Some(now.plus_ms(100)));
    database.clock().advance_ms(100);
    assert_eq!(
        claim(&*store, worker, 4).await,
        None,
        "the job is too late, with or without housekeeping"
    );
    assert_eq!(store.expire().await.unwrap(), 1);
    assert_eq!(state(&*store, job(id, 3)).await, (JobState::Expired, 0));
    // Position 0 continues after a failure, position 1 was released, and position 2 ends in time.
    let mut report = failed_at(&lease.slices[0], &positions("0"), &error());
    report.released = positions("1");
    report.completed = completed_at(&lease.slices[0], &positions("2")).completed;
    exchange(&*store, worker, vec![report], None).await;
    assert_eq!(store.expire().await.unwrap(), 1);
    assert_eq!(state(&*store, job(id, 1)).await, (JobState::Expired, 0));
    assert_eq!(held(&claim(&*store, worker, 4).await), [format!("{id}:0")]);
    // A retry by hand overrides the expiry.
    assert_eq!(change(&*store, job(id, 3), Change::Retry).await.changed, 1);
    assert_eq!(store.expire().await.unwrap(), 0);
    assert_eq!(held(&claim(&*store, worker, 4).await), [format!("{id}:3")]);
}

/// A job that a dead worker may have started does not expire.
pub async fn rescued_jobs_do_not_expire(database: &dyn Database) {
    let store = database.open().await;
    let mut new = batch(1);
    new.options.expires_at = Some(database.clock().now().plus_ms(100));
    let id = submit(&*store, new).await;
    let first = worker(&*store).await;
    claim(&*store, first, 1).await.unwrap();
    database.clock().advance_ms(100);
    store.rescue(Timestamp(0), vec![first]).await.unwrap();
    assert_eq!(store.expire().await.unwrap(), 0);
    let second = worker(&*store).await;
    assert_eq!(held(&claim(&*store, second, 1).await), [format!("{id}:0")]);
}

/// A job that is tried again and again dies when its time is over. The time counts from the first attempt.
pub async fn jobs_complete_in_time_or_never(database: &dyn Database) {
    let store = database.open().await;
    let mut new = batch(2);
    new.options.complete_within_ms = Some(1_000);
    new.options.timeout_ms = Some(900);
    new.options.expires_at = Some(database.clock().now().plus_ms(300));
    new.options.retry = RetryPolicy {
        attempts_max: 100,
        delay_ms: 0,
        delay_ms_max: 0,
        ..RetryPolicy::default()
    };
    let id = submit(&*store, new).await;
    let first = worker(&*store).await;
    database.clock().advance_ms(200);
    let lease = claim(&*store, first, 2).await.unwrap();
    assert_eq!(lease.slices[0].timeout_ms, Some(900));
    let failed = failed_at(&lease.slices[0], &positions("0-1"), &error());
    let lease = exchange(&*store, first, vec![failed], Some(want(2)))
        .await
        .lease
        .unwrap();
    assert_eq!(lease.slices[0].attempt, 2);
    database.clock().advance_ms(600);
    // The jobs were started before their expiry.
    assert_eq!(store.expire().await.unwrap(), 0);
    let failed = failed_at(&lease.slices[0], &positions("0"), &error());
    let lease = exchange(&*store, first, vec![failed], Some(want(2)))
        .await
        .lease
        .unwrap();
    assert_eq!(
        (lease.slices[0].attempt, lease.slices[0].timeout_ms),
        (3, Some(400))
    );
    store.rescue(Timestamp(0), vec![first]).await.unwrap();
    database.clock().advance_ms(399);
    assert_eq!(store.expire().await.unwrap(), 0);
    database.clock().advance_ms(1);
    let second = worker(&*store).await;
    assert_eq!(claim(&*store, second, 9).await, None);
    assert_eq!(store.expire().await.unwrap(), 2);
    assert_eq!(state(&*store, job(id, 0)).await, (JobState::Dead, 2));
    assert_eq!(state(&*store, job(id, 1)).await, (JobState::Dead, 1));
    let details = store.job(job(id, 0)).await.unwrap().unwrap();
    assert_eq!(details.failures.len(), 3);
    assert!(details.row.error.unwrap().contains("within 1000 ms"));
    // A retry by hand starts a new time.
    change(&*store, job(id, 0), Change::Retry).await;
    let lease = claim(&*store, second, 9).await.unwrap();
    database.clock().advance_ms(5_000);
    exchange(&*store, second, vec![completed(&lease.slices[0])], None).await;
    assert_eq!(state(&*store, job(id, 0)).await, (JobState::Completed, 1));
}
