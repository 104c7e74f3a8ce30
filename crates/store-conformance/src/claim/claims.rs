//! The choice and the order of claimed jobs.

use std::collections::BTreeSet;
use std::sync::Arc;

use gristmill_model::limits::{LEASE_JOBS_MAX, LEASE_SLICES_MAX};
use gristmill_model::{
    After, Clock, Control, Effect, JobState, LeaseId, NewBatch, PackedArray, Timestamp, WorkerId,
};
use gristmill_store::{Change, JobFilter, Page, Selection, Store, StoreError, Want, WorkSeen};

use crate::Database;
use crate::fixture::*;

/// Submits, claims, reports and reads a batch.
pub async fn a_batch_is_submitted_claimed_and_completed(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, batch(3)).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 10).await.unwrap();
    assert_eq!(lease.slices.len(), 1);
    let slice = &lease.slices[0];
    assert_eq!((slice.batch, &slice.positions), (id, &positions("0-2")));
    assert_eq!((slice.attempt, slice.rescues, &*slice.kind), (1, 0, KIND));
    assert_eq!(slice.payloads, payloads(3));
    assert!(!store.is_finished(id).await.unwrap());
    let exchanged = exchange(&*store, worker, vec![completed(slice)], Some(want(10))).await;
    assert_eq!(exchanged.receipts[0].accepted, positions("0-2"));
    assert!(exchanged.receipts[0].refused.is_empty() && exchanged.lease.is_none());
    assert!(store.is_finished(id).await.unwrap());
    let outcomes = store.outcomes(id).await.unwrap().unwrap();
    assert_eq!(outcomes.reports.len(), 1);
    let stored = &outcomes.reports[0];
    assert_eq!(stored.state, JobState::Completed);
    assert_eq!(stored.values, Some(payloads(3)));
    assert_eq!(stored.durations_us, [0, 1, 2]);
    assert_eq!(stored.worker.as_deref(), Some("tester"));
}

/// Jobs are claimed by priority, then by time, then by the order of their submits.
pub async fn claims_come_in_order(database: &dyn Database) {
    let store = database.open().await;
    let now = database.clock().now();
    let with = |priority: i16, run_at: i64| {
        let mut new = batch(1);
        new.options.priority = priority;
        new.options.run_at = Some(now.plus_ms(run_at));
        new
    };
    let ids = store
        .submit(
            vec![
                with(0, -5),
                with(5, 0),
                with(0, -9),
                with(-3, -99),
                with(5, 0),
                with(i16::MAX, -1),
                with(i16::MIN, -500),
                with(9, 50),
            ],
            None,
        )
        .await
        .unwrap();
    let worker = worker(&*store).await;
    let mut order = Vec::new();
    while let Some(lease) = claim(&*store, worker, 2).await {
        order.extend(lease.slices.iter().map(|slice| slice.batch));
    }
    let expected = [5, 1, 4, 2, 0, 3, 6].map(|index: usize| ids[index]);
    assert_eq!(order, expected);
}

/// The lanes of several kinds and queues have one common order.
pub async fn the_order_holds_across_kinds_and_queues(database: &dyn Database) {
    let store = database.open().await;
    let mut expected = Vec::new();
    for round in 0..10 {
        for (kind, queue) in [("a", "default"), ("b", "default"), ("a", "other")] {
            let mut new = batch_of(kind, 1 + round % 2);
            new.queue = queue.to_owned();
            expected.push(submit(&*store, new).await);
        }
        database.clock().advance_ms(i64::from(round % 3));
    }
    let worker = worker(&*store).await;
    let mut want = want(7);
    want.queues.push("other".into());
    let mut order = Vec::new();
    while let Some(lease) = exchange(&*store, worker, Vec::new(), Some(want.clone()))
        .await
        .lease
    {
        order.extend(lease.slices.iter().map(|slice| slice.batch));
    }
    order.dedup();
    assert_eq!(order, expected);
}

/// A claim gets only jobs of the wanted queues and kinds.
pub async fn queues_and_kinds_are_respected(database: &dyn Database) {
    let store = database.open().await;
    let resize = submit(&*store, batch_of("resize", 1)).await;
    let extract = submit(&*store, batch_of("extract", 1)).await;
    let mut far = batch_of("resize", 1);
    far.queue = "far".to_owned();
    let far = submit(&*store, far).await;
    let worker = worker(&*store).await;
    let mut only = want(10);
    only.kinds = vec!["extract".into(), "unheard-of".into()];
    let lease = exchange(&*store, worker, Vec::new(), Some(only)).await.lease;
    assert_eq!(held(&lease), [format!("{extract}:0")]);
    let mut nowhere = want(10);
    nowhere.queues = vec!["nowhere".into()];
    assert_eq!(
        exchange(&*store, worker, Vec::new(), Some(nowhere)).await.lease,
        None
    );
    assert_eq!(held(&claim(&*store, worker, 10).await), [format!("{resize}:0")]);
    let mut elsewhere = want(10);
    elsewhere.queues = vec!["far".into(), "far".into()];
    let lease = exchange(&*store, worker, Vec::new(), Some(elsewhere)).await.lease;
    assert_eq!(held(&lease), [format!("{far}:0")]);
}

/// A claim takes as many jobs of a slice as it has room for. The rest stays.
pub async fn slices_are_split(database: &dyn Database) {
    let store = database.open().await;
    let first = submit(&*store, batch(5)).await;
    let second = submit(&*store, batch(5)).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 3).await;
    assert_eq!(held(&lease), [format!("{first}:0-2")]);
    assert_eq!(lease.as_ref().unwrap().slices[0].payloads.as_str(), "[0\n,1\n,2]");
    let next = claim(&*store, worker, 4).await;
    assert_eq!(held(&next), [format!("{first}:3-4"), format!("{second}:0-1")]);
    assert_eq!(next.as_ref().unwrap().slices[1].payloads.as_str(), "[0\n,1]");
    assert_ne!(lease.unwrap().id, next.unwrap().id);
    assert_eq!(
        held(&claim(&*store, worker, 100).await),
        [format!("{second}:2-4")]
    );
    assert_eq!(claim(&*store, worker, 100).await, None);
}

/// A lease ends at its limits of jobs, slices and bytes.
pub async fn a_lease_has_limits(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let singles = vec![batch(1); LEASE_SLICES_MAX as usize + 5];
    store.submit(singles, None).await.unwrap();
    let lease = claim(&*store, worker, u32::MAX).await.unwrap();
    assert_eq!(lease.slices.len(), LEASE_SLICES_MAX as usize);
    assert_eq!(claim(&*store, worker, u32::MAX).await.unwrap().jobs(), 5);

    store
        .submit(vec![batch(6_000), batch(6_000)], None)
        .await
        .unwrap();
    assert_eq!(
        claim(&*store, worker, u32::MAX).await.unwrap().jobs(),
        LEASE_JOBS_MAX
    );
    assert_eq!(claim(&*store, worker, u32::MAX).await.unwrap().jobs(), 2_000);

    let large = PackedArray::repeat(&format!("\"{}\"", "x".repeat(1 << 20)), 3).unwrap();
    let large = NewBatch::new(KIND, large);
    store.submit(vec![large.clone(), large], None).await.unwrap();
    let lease = claim(&*store, worker, u32::MAX).await.unwrap();
    assert_eq!(lease.jobs(), 4, "the lease ends after four megabytes");
    assert_eq!(claim(&*store, worker, u32::MAX).await.unwrap().jobs(), 2);
}

/// Delayed jobs are not claimed before their time. An idle worker learns this time.
pub async fn delayed_jobs_wait(database: &dyn Database) {
    let store = database.open().await;
    let now = database.clock().now();
    let at = |priority: i16, run_at: i64| {
        let mut new = batch(1);
        new.options.priority = priority;
        new.options.run_at = Some(now.plus_ms(run_at));
        new
    };
    let later = submit(&*store, at(0, 1_000)).await;
    let soon = submit(&*store, at(-5, 400)).await;
    let worker = worker(&*store).await;
    let exchanged = exchange(&*store, worker, Vec::new(), Some(want(5))).await;
    assert_eq!(
        (exchanged.lease, exchanged.next_run_at),
        (None, Some(now.plus_ms(400)))
    );
    database.clock().advance_ms(399);
    assert_eq!(claim(&*store, worker, 5).await, None);
    database.clock().advance_ms(1);
    let exchanged = exchange(&*store, worker, Vec::new(), Some(want(5))).await;
    assert_eq!(held(&exchanged.lease), [format!("{soon}:0")]);
    assert_eq!(exchanged.next_run_at, Some(now.plus_ms(1_000)));
    database.clock().advance_ms(600);
    assert_eq!(held(&claim(&*store, worker, 5).await), [format!("{later}:0")]);
    let exchanged = exchange(&*store, worker, Vec::new(), Some(want(5))).await;
    assert_eq!((exchanged.lease, exchanged.next_run_at), (None, None));
}

/// Delayed jobs of a high priority do not block other jobs.
pub async fn delayed_jobs_do_not_block(database: &dyn Database) {
    let store = database.open().await;
    let mut delayed = batch(1);
    delayed.options.priority = 9;
    delayed.options.run_at = Some(database.clock().now().plus_ms(60_000));
    store.submit(vec![delayed; 500], None).await.unwrap();
    let ready = submit(&*store, batch(1)).await;
    let worker = worker(&*store).await;
    assert_eq!(held(&claim(&*store, worker, 10).await), [format!("{ready}:0")]);
}

/// A busy worker can ask for urgent jobs only. It learns that there are others.
pub async fn a_claim_can_ask_for_urgent_jobs_only(database: &dyn Database) {
    let store = database.open().await;
    let with_priority = |priority| {
        let mut new = batch(2);
        new.options.priority = priority;
        new
    };
    let mut ids = Vec::new();
    for priority in [-5, 0, 10, 20] {
        ids.push(submit(&*store, with_priority(priority)).await);
    }
    let urgent = |priority_min| {
        Some(Want {
            priority_min: Some(priority_min),
            ..want(3)
        })
    };
    let worker = worker(&*store).await;
    let first = exchange(&*store, worker, Vec::new(), urgent(10)).await;
    assert_eq!(
        held(&first.lease),
        [format!("{}:0-1", ids[3]), format!("{}:0", ids[2])]
    );
    let second = exchange(&*store, worker, Vec::new(), urgent(10)).await;
    assert_eq!(held(&second.lease), [format!("{}:1", ids[2])]);
    assert!(second.limited, "others wait");
    let none = exchange(&*store, worker, Vec::new(), urgent(10)).await;
    assert_eq!((none.lease, none.limited), (None, true));

    // The same holds with controls.
    let limit = Control {
        scope: Default::default(),
        effect: Effect::Concurrency { jobs_max: 100 },
    };
    store.put_controls(vec![limit]).await.unwrap();
    let none = exchange(&*store, worker, Vec::new(), urgent(1)).await;
    assert_eq!((none.lease, none.limited), (None, true));
    let third = exchange(&*store, worker, Vec::new(), urgent(0)).await;
    assert_eq!(held(&third.lease), [format!("{}:0-1", ids[1])]);
    let last = exchange(&*store, worker, Vec::new(), urgent(-5)).await;
    assert_eq!(held(&last.lease), [format!("{}:0-1", ids[0])]);
    assert!(!last.limited, "no jobs are left");
}

/// Two handles of one database never hold the same job.
pub async fn handles_claim_apart(database: &dyn Database) {
    let (left, right) = (database.open().await, database.open().await);
    for store in [&left, &right] {
        store.submit(vec![batch(50); 20], None).await.unwrap();
    }
    let drain = async |store: &Arc<dyn Store>| {
        let worker = worker(&**store).await;
        let mut jobs = Vec::new();
        while let Some(lease) = claim(&**store, worker, 7).await {
            for slice in &lease.slices {
                jobs.extend(slice.positions.iter().map(|position| job(slice.batch, position)));
                let receipts = exchange(&**store, worker, vec![completed(slice)], None)
                    .await
                    .receipts;
                assert_eq!(receipts[0].accepted, slice.positions);
            }
        }
        jobs
    };
    let (mut jobs, others) = futures::join!(drain(&left), drain(&right));
    jobs.extend(others);
    assert_eq!(jobs.len(), 2_000);
    assert_eq!(jobs.iter().collect::<BTreeSet<_>>().len(), 2_000);
    let counts = left.counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.completed, counts.total()), (2_000, 2_000));
}

/// Only registered workers can claim. Reports without a claim are also answered.
pub async fn only_registered_workers_claim(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, batch(1)).await;
    let stranger = WorkerId(77);
    let refused = store.exchange(stranger, Vec::new(), Some(want(1))).await;
    assert!(
        matches!(refused, Err(StoreError::WorkerUnknown(WorkerId(77)))),
        "{refused:?}"
    );
    let report = gristmill_model::Report {
        released: positions("0"),
        ..gristmill_model::Report::new(LeaseId(1), id, 1)
    };
    let answer = exchange(&*store, stranger, vec![report], None).await;
    assert_eq!(answer.receipts[0].refused, positions("0"));
    let worker = worker(&*store).await;
    assert_eq!(claim(&*store, worker, 0).await, None);
    assert_eq!(held(&claim(&*store, worker, 1).await), [format!("{id}:0")]);
}

/// A submit wakes waiting callers, even if none waited at that moment.
pub async fn a_submit_wakes_a_waiting_caller(database: &dyn Database) {
    let store = database.open().await;
    submit(&*store, batch(1)).await;
    let seen = WorkSeen::default();
    store.wait_for_work(&seen).await;
    let (worker, waiting) = (worker(&*store).await, store.wait_for_work(&seen));
    let lease = claim(&*store, worker, 1).await.unwrap();
    let release = async {
        let report = released_at(&lease.slices[0], &positions("0"));
        exchange(&*store, worker, vec![report], None).await;
    };
    futures::join!(waiting, release);
}

/// Several callers of one handle wait. Each of them is woken.
pub async fn a_submit_wakes_all_waiting_callers(database: &dyn Database) {
    let store = database.open().await;
    let (left, right) = (WorkSeen::default(), WorkSeen::default());
    submit(&*store, batch(1)).await;
    // One caller has learned of the submit before the other asks.
    store.wait_for_work(&left).await;
    store.wait_for_work(&right).await;
    let waiting = futures::future::join(store.wait_for_work(&left), store.wait_for_work(&right));
    futures::join!(waiting, submit(&*store, batch(1)));
}

/// Jobs show their group. Workers take the jobs of all groups in one order.
pub async fn groups_are_kept_apart(database: &dyn Database) {
    let store = database.open().await;
    let of = |group: Option<&str>, count: u32| {
        let mut new = batch(count);
        new.options.group = group.map(str::to_owned);
        new
    };
    let news = vec![
        of(Some("acme"), 2),
        of(None, 1),
        of(Some("öl"), 3),
        of(Some("acme"), 1),
    ];
    let ids = store.submit(news, None).await.unwrap();
    let single = store.submit_one(of(Some("acme"), 1)).await.unwrap();
    let acme = JobFilter {
        group: Some("acme".to_owned()),
        ..JobFilter::default()
    };
    assert_eq!(store.counts(&acme).await.unwrap().waiting, 4);
    let page = Page {
        after: None,
        limit: 10,
    };
    let rows = store.jobs(&acme, page).await.unwrap();
    let found: Vec<_> = rows.iter().map(|row| row.job).collect();
    assert_eq!(found, [job(ids[0], 0), job(ids[0], 1), job(ids[3], 0), single]);
    assert!(rows.iter().all(|row| row.group.as_deref() == Some("acme")));
    let details = store.job(job(ids[2], 1)).await.unwrap().unwrap();
    assert_eq!(details.row.group.as_deref(), Some("öl"));
    assert_eq!(details.options, of(Some("öl"), 1).options);
    // The statistics count one kind on one queue, whatever the group.
    let stats = store.stats().await.unwrap();
    assert_eq!(stats.kinds.len(), 1);
    assert_eq!(stats.kinds[0].counts.waiting, 8);
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 10).await;
    let order: Vec<_> = lease
        .iter()
        .flat_map(|lease| &lease.slices)
        .map(|slice| slice.batch)
        .collect();
    assert_eq!(order, [&ids[..], &[single.batch]].concat());
    let changed = change(&*store, acme, Change::Cancel).await;
    assert_eq!(changed.changed, 4);
    for wrong in ["", "a\nb", &"x".repeat(201)] {
        let error = store.submit(vec![of(Some(wrong), 1)], None).await.unwrap_err();
        assert!(matches!(error, StoreError::InvalidBatch(_)), "{error}");
        assert!(error.to_string().contains("group"), "{error}");
    }
}

/// A due job stays due when the clock is set back. Only jobs that asked for a later time wait.
pub async fn due_jobs_stay_due_when_the_clock_is_set_back(database: &dyn Database) {
    const FAST_MS: i64 = 600_000;
    let store = database.open().await;
    let worker = worker(&*store).await;
    let silent_before = Timestamp(0);
    let dead = submit(&*store, once(1)).await;
    let slice = only(claim(&*store, worker, 1).await);
    let failed = failed_at(&slice, &slice.positions, &error());
    exchange(&*store, worker, vec![failed], None).await;
    database.clock().advance_ms(FAST_MS);
    store.rescue(silent_before, Vec::new()).await.unwrap();
    let retry = Selection::Jobs(vec![job(dead, 0)]);
    store.change(retry, Change::Retry).await.unwrap();
    let held_back = submit(&*store, batch(1)).await;
    let first = submit(&*store, batch(1)).await;
    let after = NewBatch {
        after: vec![After::batch(first)],
        ..batch(1)
    };
    let after = submit(&*store, after).await;
    let mut later = batch(1);
    later.options.run_at = Some(database.clock().now().plus_ms(FAST_MS));
    submit(&*store, later).await;
    let paused = Selection::Jobs(vec![job(held_back, 0)]);
    let pause = pausing("test", None);
    store.change(paused.clone(), pause).await.unwrap();
    database.clock().advance_ms(-FAST_MS);
    let resumed = resuming(Some("test"));
    store.rescue(silent_before, Vec::new()).await.unwrap();
    store.change(paused, resumed).await.unwrap();
    let lease = claim(&*store, worker, 10).await.expect("due jobs");
    let claimed: BTreeSet<_> = lease.slices.iter().map(|slice| slice.batch).collect();
    assert_eq!(claimed, BTreeSet::from([dead, held_back, first]));
    let reports = lease.slices.iter().map(completed).collect();
    exchange(&*store, worker, reports, None).await;
    assert_eq!(held(&claim(&*store, worker, 10).await), [format!("{after}:0")]);
    no_damage(&*store).await;
}
