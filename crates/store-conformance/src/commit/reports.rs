//! Outcomes are committed exactly once, under the lease that holds the jobs.

use std::sync::Arc;

use gristmill_model::limits::RESCUES_MAX;
use gristmill_model::{
    Backoff, BatchId, Clock, Completed, JobError, JobLog, JobState, NewBatch, PackedArray, Report,
    RetryPolicy, Timestamp,
};
use gristmill_store::{Change, JobFilter, OutcomeWatch, Selection, Store, StoreError};

use crate::Database;
use crate::fixture::*;

fn with_policy(count: u32, attempts_max: u32, delay_ms: u64) -> NewBatch {
    let mut new = batch(count);
    new.options.retry = RetryPolicy {
        attempts_max,
        backoff: Backoff::Constant,
        delay_ms,
        delay_ms_max: delay_ms,
    };
    new
}

async fn state(store: &dyn Store, batch: BatchId, position: u32) -> (JobState, u32) {
    let row = store.job(job(batch, position)).await.unwrap().unwrap().row;
    (row.state, row.attempt)
}

/// The error of a job is that of its last attempt, also where another process ran the attempt before, at the same moment.
pub async fn the_last_error_is_shown(database: &dyn Database) {
    let (store, other) = (database.open().await, database.open().await);
    // The first handle takes lease ids before the second one, which fails first.
    let (first, second) = (worker(&*store).await, worker(&*other).await);
    submit(&*store, batch(1)).await;
    let lease = claim(&*store, first, 1).await.unwrap();
    exchange(&*store, first, vec![completed(&lease.slices[0])], None).await;
    let id = submit(&*store, with_policy(1, 2, 0)).await;
    for (store, worker, message) in [(&other, second, "before"), (&store, first, "last")] {
        let lease = claim(&**store, worker, 1).await.unwrap();
        let slice = &lease.slices[0];
        let failed = failed_at(slice, &slice.positions, &JobError::new("ValueError", message));
        exchange(&**store, worker, vec![failed], None).await;
    }
    let details = store.job(job(id, 0)).await.unwrap().unwrap();
    let told: Vec<&str> = details
        .failures
        .iter()
        .map(|failure| &*failure.error.message)
        .collect();
    assert_eq!(
        (told, details.row.error.as_deref()),
        (vec!["before", "last"], Some("last"))
    );
    let outcomes = store.outcomes(id).await.unwrap().unwrap();
    let last = outcomes.errors.last().unwrap();
    assert_eq!(last.error.message, "last");
    let dead = JobFilter {
        states: vec![JobState::Dead],
        ..JobFilter::default()
    };
    let listed = store.newest_jobs(&dead, 10).await.unwrap();
    assert_eq!(listed[0].error.as_deref(), Some("last"));
}

/// A repeated report, or another report of the same jobs, is refused and changes nothing.
pub async fn outcomes_are_committed_once(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, batch(4)).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 4).await.unwrap();
    let first = completed_at(&lease.slices[0], &positions("1-2"));
    let twice = exchange(&*store, worker, vec![first.clone(), first.clone()], None).await;
    assert_eq!(twice.receipts[0].accepted, positions("1-2"));
    assert_eq!(twice.receipts[1].refused, positions("1-2"));
    assert!(twice.receipts[1].accepted.is_empty());
    let stored = store.outcomes(id).await.unwrap();

    let failed = failed_at(&lease.slices[0], &positions("1-2"), &error());
    let receipt = &exchange(&*store, worker, vec![failed], None).await.receipts[0];
    assert_eq!(
        (&receipt.refused, receipt.dead.is_empty()),
        (&positions("1-2"), true)
    );
    assert_eq!(store.outcomes(id).await.unwrap(), stored);

    // The other jobs of an overlapping report count.
    let all = completed(&lease.slices[0]);
    let receipt = &exchange(&*store, worker, vec![all], None).await.receipts[0];
    assert_eq!(
        (receipt.accepted.to_string(), receipt.refused.to_string()),
        ("0,3".into(), "1-2".into())
    );
    let outcomes = store.outcomes(id).await.unwrap().unwrap();
    assert_eq!(outcomes.ended(), 4);
    assert_eq!(outcomes.reports[0].positions, positions("0,3"));
    assert_eq!(outcomes.reports[0].values.as_ref().unwrap().as_str(), "[0\n,3]");
    assert_eq!(outcomes.reports[0].durations_us, [0, 3]);
}

/// A refused report does not affect other reports of the same exchange.
pub async fn a_refused_report_does_not_affect_others(database: &dyn Database) {
    let store = database.open().await;
    submit(&*store, batch(4)).await;
    let (one, other) = (worker(&*store).await, worker(&*store).await);
    let mine = claim(&*store, one, 2).await.unwrap();
    let theirs = claim(&*store, other, 2).await.unwrap();
    let reports = vec![completed(&theirs.slices[0]), completed(&mine.slices[0])];
    let receipts = exchange(&*store, one, reports, None).await.receipts;
    assert_eq!(
        receipts[0].refused,
        positions("2-3"),
        "another worker holds these jobs"
    );
    assert_eq!(receipts[1].accepted, positions("0-1"));
    let receipts = exchange(&*store, other, vec![completed(&theirs.slices[0])], None)
        .await
        .receipts;
    assert_eq!(receipts[0].accepted, positions("2-3"));
}

/// Failed jobs follow the retry policy of their batch, and are dead at its end.
pub async fn failed_jobs_are_tried_again(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, with_policy(3, 3, 500)).await;
    let worker = worker(&*store).await;
    for attempt in 1..=3 {
        let lease = claim(&*store, worker, 3).await.unwrap();
        assert_eq!(
            held(&Some(lease.clone())),
            [format!("{id}:0-2")],
            "jobs that fail together stay together"
        );
        assert_eq!(lease.slices[0].attempt, attempt);
        assert_eq!(state(&*store, id, 1).await, (JobState::Running, attempt));
        let failed = failed_at(
            &lease.slices[0],
            &positions("0-2"),
            &JobError::new("E", format!("{attempt}")),
        );
        let exchanged = exchange(&*store, worker, vec![failed], Some(want(3))).await;
        assert_eq!(exchanged.receipts[0].accepted, positions("0-2"));
        assert_eq!(exchanged.lease, None);
        if attempt < 3 {
            assert!(exchanged.receipts[0].dead.is_empty());
            assert_eq!(exchanged.next_run_at, Some(database.clock().now().plus_ms(500)));
            assert_eq!(state(&*store, id, 1).await, (JobState::Scheduled, attempt + 1));
            database.clock().advance_ms(500);
            assert_eq!(state(&*store, id, 1).await, (JobState::Waiting, attempt + 1));
        } else {
            assert_eq!(exchanged.receipts[0].dead, positions("0-2"));
        }
    }
    assert_eq!(state(&*store, id, 2).await, (JobState::Dead, 3));
    let failures = store.job(job(id, 2)).await.unwrap().unwrap().failures;
    assert_eq!(
        failures.iter().map(|failure| failure.attempt).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert_eq!(failures[1].worker.as_deref(), Some("tester"));
    assert_eq!(failures[1].duration_us, 2);
    let outcomes = store.outcomes(id).await.unwrap().unwrap();
    assert_eq!((outcomes.reports.len(), outcomes.ended()), (1, 3));
    let last = outcomes
        .errors
        .iter()
        .map(|failure| (failure.position, failure.error.message.as_str()));
    assert_eq!(last.collect::<Vec<_>>(), [(0, "3"), (1, "3"), (2, "3")]);
}

/// An error can forbid a retry, or set its time.
pub async fn errors_override_the_retry_policy(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, with_policy(3, 5, 500)).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 3).await.unwrap();
    let slice = &lease.slices[0];
    let mut report = failed_at(slice, &positions("0"), &error().permanent());
    report
        .failed
        .extend(failed_at(slice, &positions("1"), &error().retry_after_ms(7_000)).failed);
    report
        .failed
        .extend(failed_at(slice, &positions("2"), &error()).failed);
    let exchanged = exchange(&*store, worker, vec![report], None).await;
    assert_eq!(exchanged.receipts[0].dead, positions("0"));
    assert_eq!(state(&*store, id, 0).await, (JobState::Dead, 1));
    database.clock().advance_ms(500);
    assert_eq!(held(&claim(&*store, worker, 3).await), [format!("{id}:2")]);
    database.clock().advance_ms(6_499);
    assert_eq!(claim(&*store, worker, 3).await, None);
    database.clock().advance_ms(1);
    assert_eq!(held(&claim(&*store, worker, 3).await), [format!("{id}:1")]);
}

/// Without a retry delay, a job may fail and run again under one lease. One report carries all of its attempts.
pub async fn one_report_carries_all_attempts_in_a_slot(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, with_policy(6, 4, 0)).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 6).await.unwrap();
    let slice = &lease.slices[0];
    assert_eq!(slice.retry.attempts_max, 4, "the worker gets the policy");
    let attempts = |details: &gristmill_store::JobDetails| -> Vec<(u32, String)> {
        let failures = details.failures.iter();
        failures
            .map(|failure| (failure.attempt, failure.error.message.clone()))
            .collect()
    };
    let reports = vec![
        completed_at(slice, &positions("0")),
        repeated(completed_at(slice, &positions("1-2")), 2),
        repeated(failed_at(slice, &positions("3"), &error()), 3),
        repeated(failed_at(slice, &positions("4"), &error()), 1),
    ];
    change(&*store, job(id, 2), Change::Cancel).await;
    let exchanged = exchange(&*store, worker, reports, None).await;
    assert_eq!(exchanged.receipts[1].accepted, positions("1"));
    assert_eq!(exchanged.receipts[1].refused, positions("2"));
    assert_eq!(exchanged.receipts[2].dead, positions("3"));
    assert!(exchanged.receipts[3].dead.is_empty());
    assert_eq!(state(&*store, id, 0).await, (JobState::Completed, 1));
    assert_eq!(state(&*store, id, 1).await, (JobState::Completed, 3));
    let details = store.job(job(id, 1)).await.unwrap().unwrap();
    assert_eq!(
        attempts(&details),
        [(1, "attempt 1".to_owned()), (2, "attempt 2".to_owned())]
    );
    let failure = &details.failures[1];
    assert_eq!(
        (
            failure.duration_us,
            failure.log.as_deref(),
            failure.worker.as_deref()
        ),
        (2, Some("tried 2"), Some("tester"))
    );
    let cancelled = store.job(job(id, 2)).await.unwrap().unwrap();
    assert!(
        cancelled.failures.is_empty(),
        "a refused outcome leaves no failure"
    );
    assert_eq!(state(&*store, id, 3).await, (JobState::Dead, 4));
    let dead = store.job(job(id, 3)).await.unwrap().unwrap();
    assert_eq!(dead.failures.len(), 4);
    assert_eq!(dead.row.error.as_deref(), Some("no"), "the last failure counts");
    let outcomes = store.outcomes(id).await.unwrap().unwrap();
    assert_eq!((outcomes.errors.len(), outcomes.errors[0].attempt), (1, 4));
    assert_eq!(state(&*store, id, 4).await, (JobState::Waiting, 3));

    // Attempts that are lost before their report count as a rescue of the claimed attempt.
    let rescued = store.rescue(Timestamp(0), vec![worker]).await.unwrap();
    assert_eq!((rescued.jobs, rescued.dead), (1, 0));
    assert_eq!(state(&*store, id, 5).await, (JobState::Waiting, 1));
    let late = repeated(completed_at(slice, &positions("5")), 1);
    let late = exchange(&*store, worker, vec![late], None).await;
    assert_eq!(late.receipts[0].refused, positions("5"));
}

/// One report can complete, fail, kill and release jobs.
pub async fn one_report_has_every_kind_of_outcome(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, with_policy(6, 2, 0)).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 5).await.unwrap();
    let slice = &lease.slices[0];
    let report = Report {
        completed: completed_at(slice, &positions("0,4")).completed,
        failed: [
            failed_at(slice, &positions("1"), &error()).failed,
            failed_at(slice, &positions("3"), &error().permanent()).failed,
        ]
        .concat(),
        released: positions("2"),
        logs: vec![
            JobLog {
                position: 1,
                text: "trying".to_owned(),
            },
            JobLog {
                position: 4,
                text: "done".to_owned(),
            },
        ],
        ..report(slice)
    };
    database.clock().advance_ms(1);
    let receipt = &exchange(&*store, worker, vec![report], None).await.receipts[0];
    assert_eq!(
        (receipt.accepted.to_string(), receipt.dead.to_string()),
        ("0-4".into(), "3".into())
    );
    assert!(receipt.refused.is_empty());
    assert_eq!(state(&*store, id, 0).await, (JobState::Completed, 1));
    assert_eq!(state(&*store, id, 1).await, (JobState::Waiting, 2));
    assert_eq!(state(&*store, id, 2).await, (JobState::Waiting, 1));
    assert_eq!(state(&*store, id, 3).await, (JobState::Dead, 1));
    let last = store.job(job(id, 4)).await.unwrap().unwrap();
    assert_eq!(
        (last.value.unwrap().get(), last.duration_us, last.log.as_deref()),
        ("4", Some(4), Some("done"))
    );
    let failed = store.job(job(id, 1)).await.unwrap().unwrap();
    assert_eq!(
        (failed.log, failed.failures[0].log.as_deref()),
        (None, Some("trying"))
    );
    // The released job is in its old place, before the jobs that failed meanwhile.
    let lease = claim(&*store, worker, 1).await;
    assert_eq!(held(&lease), [format!("{id}:2")]);
    assert_eq!(lease.unwrap().slices[0].attempt, 1);
}

/// A report with another attempt than the lease's is refused.
pub async fn another_attempt_is_refused(database: &dyn Database) {
    let store = database.open().await;
    submit(&*store, with_policy(1, 3, 0)).await;
    let worker = worker(&*store).await;
    let first = claim(&*store, worker, 1).await.unwrap();
    let failed = failed_at(&first.slices[0], &positions("0"), &error());
    let second = exchange(&*store, worker, vec![failed], Some(want(1)))
        .await
        .lease
        .unwrap();
    let mut wrong = completed(&second.slices[0]);
    wrong.attempt = 1;
    let late = completed(&first.slices[0]);
    let receipts = exchange(&*store, worker, vec![wrong, late], None).await.receipts;
    assert!(
        receipts.iter().all(|receipt| receipt.refused == positions("0")),
        "{receipts:?}"
    );
    let receipts = exchange(&*store, worker, vec![completed(&second.slices[0])], None)
        .await
        .receipts;
    assert_eq!(receipts[0].accepted, positions("0"));
}

/// A report that contradicts itself is refused as a whole, with everything in its exchange.
pub async fn wrong_reports_are_refused(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, batch(3)).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 3).await.unwrap();
    let slice = &lease.slices[0];
    let right = completed_at(slice, &positions("0"));
    let few_values = Report {
        completed: Some(Completed {
            positions: positions("1-2"),
            values: PackedArray::repeat("1", 1).unwrap(),
            durations_us: vec![1, 1],
        }),
        ..report(slice)
    };
    let few_durations = Report {
        completed: Some(Completed {
            positions: positions("1-2"),
            values: PackedArray::repeat("1", 2).unwrap(),
            durations_us: vec![1],
        }),
        ..report(slice)
    };
    let twice = Report {
        released: positions("1"),
        ..failed_at(slice, &positions("1"), &error())
    };
    let unexplained = Report {
        repeats: 2,
        ..repeated(right.clone(), 1)
    };
    let too_often = repeated(right.clone(), gristmill_model::limits::REPEATS_MAX + 1);
    let given_back = Report {
        completed: None,
        released: right.positions(),
        ..repeated(right.clone(), 1)
    };
    for wrong in [
        few_values,
        few_durations,
        twice,
        unexplained,
        too_often,
        given_back,
    ] {
        let refused = store.exchange(worker, vec![right.clone(), wrong], None).await;
        assert!(matches!(refused, Err(StoreError::InvalidInput(_))), "{refused:?}");
    }
    assert_eq!(store.outcomes(id).await.unwrap().unwrap().ended(), 0);
    let receipts = exchange(&*store, worker, vec![completed(slice)], None)
        .await
        .receipts;
    assert_eq!(receipts[0].accepted, positions("0-2"));
}

/// Full jitter stays below the delay of the policy.
pub async fn jitter_stays_in_bounds(database: &dyn Database) {
    let store = database.open().await;
    let mut new = batch(200);
    new.options.retry = RetryPolicy {
        attempts_max: 2,
        backoff: Backoff::Jitter,
        delay_ms: 1_000,
        delay_ms_max: 1_000,
    };
    let id = submit(&*store, new).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 200).await.unwrap();
    let failed = failed_at(&lease.slices[0], &lease.slices[0].positions, &error());
    exchange(&*store, worker, vec![failed], None).await;
    let filter = JobFilter {
        batch: Some(id),
        ..JobFilter::default()
    };
    let page = gristmill_store::Page {
        after: None,
        limit: 1_000,
    };
    let rows = store.jobs(&filter, page).await.unwrap();
    let now = database.clock().now();
    let delays: Vec<i64> = rows.iter().map(|row| row.run_at.unwrap().since_ms(now)).collect();
    assert!(
        delays.iter().all(|delay| (0..=1_000).contains(delay)),
        "{delays:?}"
    );
    assert!(delays.iter().any(|delay| *delay < 300) && delays.iter().any(|delay| *delay > 700));
}

/// The jobs of silent workers go to others. Each outcome of a late report is refused.
pub async fn reports_under_lost_leases_are_refused(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, batch(4)).await;
    let (slow, quick) = (worker(&*store).await, worker(&*store).await);
    let lost = claim(&*store, slow, 4).await.unwrap();
    let part = completed_at(&lost.slices[0], &positions("0"));
    exchange(&*store, slow, vec![part], None).await;
    database.clock().advance_ms(20_000);
    store.heartbeat(quick, Default::default()).await.unwrap();
    let rescued = store
        .rescue(database.clock().now().plus_ms(-15_000), Vec::new())
        .await
        .unwrap();
    assert_eq!((rescued.workers, rescued.jobs, rescued.dead), (vec![slow], 3, 0));
    assert!(!store.heartbeat(slow, Default::default()).await.unwrap().known);
    let refused = store
        .exchange(slow, vec![completed(&lost.slices[0])], Some(want(1)))
        .await;
    assert!(
        matches!(refused, Err(StoreError::WorkerUnknown(_))),
        "{refused:?}"
    );

    let taken = claim(&*store, quick, 2).await.unwrap();
    assert_eq!(held(&Some(taken.clone())), [format!("{id}:1-2")]);
    assert_eq!(
        (taken.slices[0].attempt, taken.slices[0].rescues),
        (1, 1),
        "no job is charged for the death of a worker"
    );
    let late = exchange(&*store, slow, vec![completed(&lost.slices[0])], None).await;
    assert_eq!(late.receipts[0].refused, positions("0-3"));
    let receipts = exchange(&*store, quick, vec![completed(&taken.slices[0])], None)
        .await
        .receipts;
    assert_eq!(receipts[0].accepted, positions("1-2"));
    assert_eq!(store.outcomes(id).await.unwrap().unwrap().ended(), 3);
}

/// The jobs of a worker that is known to be dead are rescued at once.
pub async fn dead_workers_are_rescued_at_once(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, batch(1)).await;
    let (dead, alive) = (worker(&*store).await, worker(&*store).await);
    claim(&*store, dead, 1).await.unwrap();
    let nobody = store.rescue(Timestamp(0), Vec::new()).await.unwrap();
    assert_eq!((nobody.workers.len(), nobody.jobs), (0, 0));
    let rescued = store.rescue(Timestamp(0), vec![dead]).await.unwrap();
    assert_eq!((rescued.workers, rescued.jobs), (vec![dead], 1));
    assert_eq!(held(&claim(&*store, alive, 1).await), [format!("{id}:0")]);
    let workers = store.workers().await.unwrap();
    assert_eq!(workers.iter().map(|row| row.id).collect::<Vec<_>>(), [alive]);
}

/// A job that kills its worker each time becomes dead.
pub async fn rescues_are_bounded(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, batch(2)).await;
    for round in 0..=RESCUES_MAX {
        let worker = worker(&*store).await;
        let lease = claim(&*store, worker, 2).await.unwrap();
        assert_eq!((lease.slices[0].rescues, lease.slices[0].attempt), (round, 1));
        let rescued = store.rescue(Timestamp(0), vec![worker]).await.unwrap();
        let is_last = round == RESCUES_MAX;
        assert_eq!(
            (rescued.jobs, rescued.dead),
            if is_last { (0, 2) } else { (2, 0) }
        );
    }
    assert_eq!(state(&*store, id, 1).await, (JobState::Dead, 1));
    let failures = store.job(job(id, 1)).await.unwrap().unwrap().failures;
    assert_eq!(
        (failures.len(), failures[0].error.error_type.as_str()),
        (1, "rescues")
    );
    // A retry by hand allows all rescues again.
    assert_eq!(change(&*store, job(id, 1), Change::Retry).await.changed, 1);
    let worker = worker(&*store).await;
    assert_eq!(claim(&*store, worker, 2).await.unwrap().slices[0].rescues, 0);
}

/// A healthy worker with a job of an hour is not taken for dead.
pub async fn long_jobs_are_left_alone(database: &dyn Database) {
    let store = database.open().await;
    submit(&*store, batch(1)).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 1).await.unwrap();
    for _ in 0..900 {
        database.clock().advance_ms(4_000);
        assert!(store.heartbeat(worker, Default::default()).await.unwrap().known);
        let silent_before = database.clock().now().plus_ms(-15_000);
        let rescued = store.rescue(silent_before, Vec::new()).await.unwrap();
        assert!(rescued.workers.is_empty());
    }
    let receipts = exchange(&*store, worker, vec![completed(&lease.slices[0])], None)
        .await
        .receipts;
    assert_eq!(receipts[0].accepted, positions("0"));
}

/// A leaving worker gives its jobs back without charge. Its later reports are refused.
pub async fn a_leaving_worker_gives_its_jobs_back(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, batch(3)).await;
    let (leaving, staying) = (worker(&*store).await, worker(&*store).await);
    let lease = claim(&*store, leaving, 3).await.unwrap();
    let part = completed_at(&lease.slices[0], &positions("1"));
    exchange(&*store, leaving, vec![part], None).await;
    store.leave(leaving, Default::default()).await.unwrap();
    assert_eq!(store.workers().await.unwrap().len(), 1);
    let again = claim(&*store, staying, 3).await.unwrap();
    assert_eq!(held(&Some(again.clone())), [format!("{id}:0,2")]);
    assert_eq!((again.slices[0].attempt, again.slices[0].rescues), (1, 0));
    let late = exchange(&*store, leaving, vec![completed(&lease.slices[0])], None).await;
    assert_eq!(late.receipts[0].refused, positions("0-2"));
}

/// Workers are listed with their registration and their held jobs.
pub async fn workers_are_listed(database: &dyn Database) {
    let store = database.open().await;
    submit(&*store, batch(3)).await;
    let registered_at = database.clock().now();
    let worker = worker(&*store).await;
    claim(&*store, worker, 2).await.unwrap();
    database.clock().advance_ms(5);
    store.heartbeat(worker, Default::default()).await.unwrap();
    let rows = store.workers().await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].id, rows[0].jobs_held), (worker, 2));
    assert_eq!(
        (
            rows[0].worker.name.as_str(),
            rows[0].worker.process_started.as_str()
        ),
        ("tester", "boot:1")
    );
    let served = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect::<Vec<String>>();
    assert_eq!(served(&rows[0].worker.queues), ["default"]);
    assert_eq!(served(&rows[0].worker.kinds), ["add", "mail, \"all\""]);
    assert_eq!(
        (rows[0].started_at, rows[0].heartbeat_at),
        (registered_at, registered_at.plus_ms(5))
    );
}

/// A worker that is asked to drain learns of it from each of its heartbeats, through any handle. Others do not.
pub async fn a_worker_is_asked_to_drain(database: &dyn Database) {
    let (store, other) = (database.open().await, database.open().await);
    let (drained, staying) = (worker(&*store).await, worker(&*store).await);
    let is_asked = async |worker| {
        let heartbeat = store.heartbeat(worker, Default::default()).await.unwrap();
        assert!(heartbeat.known);
        heartbeat.drain
    };
    assert!(!is_asked(drained).await);
    let asked_at = database.clock().now();
    assert!(other.drain_worker(drained).await.unwrap());
    database.clock().advance_ms(5);
    assert!(other.drain_worker(drained).await.unwrap());
    assert!(is_asked(drained).await && is_asked(drained).await);
    assert!(!is_asked(staying).await);
    let rows = store.workers().await.unwrap();
    let asked: Vec<_> = rows.iter().map(|row| row.drain_at).collect();
    assert_eq!(asked, [Some(asked_at), None]);
    store.leave(drained, Default::default()).await.unwrap();
    assert!(!other.drain_worker(drained).await.unwrap());
    let gone = store.heartbeat(drained, Default::default()).await.unwrap();
    assert!(!gone.known && !gone.drain);
}

/// The counts of workers are added up.
pub async fn hops_are_added_up(database: &dyn Database) {
    use gristmill_batching::{BatchStats, EndReason};
    let store = database.open().await;
    let worker = worker(&*store).await;
    let (mut first, mut second) = (BatchStats::default(), BatchStats::default());
    first.record("claim", 1_000, EndReason::Full);
    first.record("run", 10, EndReason::Deadline);
    second.record("claim", 7, EndReason::Drained);
    store.heartbeat(worker, first.clone()).await.unwrap();
    store.leave(worker, second.clone()).await.unwrap();
    first.merge(&second);
    assert_eq!(store.stats().await.unwrap().hops, first);
}

/// Another handle, like another process, ends the jobs of a batch in every possible way. Callers that await its
/// outcomes are notified.
pub async fn ends_reach_watchers_of_other_handles(database: &dyn Database) {
    let there = database.open().await;
    let worker = worker(&*there).await;
    for cancelled in [false, true] {
        let here = database.open().await;
        let id = submit(&*there, batch(1)).await;
        let slice = only(claim(&*there, worker, 1).await);
        let mut watch = here.watch_outcomes(id);
        // A new watch resolves once, because it may have missed earlier news.
        told(&mut watch).await;
        assert!(!here.is_finished(id).await.unwrap());
        if cancelled {
            let selection = Selection::Jobs(vec![job(id, 0)]);
            assert_eq!(change(&*there, selection, Change::Cancel).await.changed, 1);
        } else {
            exchange(&*there, worker, vec![completed(&slice)], None).await;
        }
        while !here.is_finished(id).await.unwrap() {
            told(&mut watch).await;
        }
    }
}

async fn told(watch: &mut OutcomeWatch) {
    let patience = std::time::Duration::from_secs(30);
    tokio::time::timeout(patience, watch.changed())
        .await
        .expect("callers that await outcomes are notified");
}
