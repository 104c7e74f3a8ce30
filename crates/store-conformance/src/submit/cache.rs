//! Cached values for jobs of the same queue, kind and group with the same payload.

use std::sync::Arc;

use gristmill_model::{
    After, BatchId, JobState, KeyedBatch, NewBatch, PackedArray, Prerequisite, Rejected, Unique,
};
use gristmill_store::{Change, HistoryFilter, Store, Want};

use crate::Database;
use crate::fixture::*;

fn cached(kind: &str, payloads: &str, cached_ms: u64) -> NewBatch {
    let mut new = NewBatch::new(kind, PackedArray::parse(payloads).unwrap());
    new.options.cached_ms = Some(cached_ms);
    new
}

async fn value(store: &dyn Store, batch: BatchId, position: u32) -> String {
    let details = store.job(job(batch, position)).await.unwrap().unwrap();
    details.value.unwrap().get().to_owned()
}

/// A handle that neither submitted nor claimed anything stores the values of its reports in the cache.
pub async fn a_handle_that_only_reports_keeps_values(database: &dyn Database) {
    let store = database.open().await;
    submit(&*store, cached(KIND, "[1]", 1_000)).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 9).await.unwrap();
    let reporting = database.open().await;
    exchange(&*reporting, worker, vec![completed(&lease.slices[0])], None).await;
    let again = submit(&*store, cached(KIND, "[1]", 1_000)).await;
    assert_eq!(states(&*store, again).await, [JobState::Completed]);
}

/// A job with the payload of a completed one has its value at once. The other jobs run.
pub async fn jobs_with_cached_payloads_do_not_run(database: &dyn Database) {
    let store = database.open().await;
    let first = submit(&*store, cached(KIND, r#"[1,{"a":2},3]"#, 1_000)).await;
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 9).await.unwrap();
    assert_eq!(held(&Some(lease.clone())), [format!("{first}:0-2")]);
    let mut report = completed_at(&lease.slices[0], &positions("0-1"));
    report.failed = failed_at(&lease.slices[0], &positions("2"), &error().permanent()).failed;
    exchange(&*store, worker, vec![report], None).await;

    // Another process submits later. Jobs that failed, have another kind or payload, or no cache option are run.
    database.clock().advance_ms(999);
    let second = database.open().await;
    let id = submit(&*second, cached(KIND, r#"[3,{"a":2},4,1]"#, 1_000)).await;
    let other = submit(&*second, cached("other", "[1]", 1_000)).await;
    let plain = submit(&*second, NewBatch::new(KIND, PackedArray::parse("[1]").unwrap())).await;
    assert_eq!(
        states(&*store, id).await,
        [
            JobState::Waiting,
            JobState::Completed,
            JobState::Waiting,
            JobState::Completed
        ]
    );
    assert_eq!(value(&*store, id, 1).await, r#"{"a":2}"#);
    assert_eq!(value(&*store, id, 3).await, "1");
    let row = store.job(job(id, 3)).await.unwrap().unwrap().row;
    assert_eq!((row.attempt, row.finished_at.is_some()), (0, true));
    let lease = claim(&*second, worker, 9).await;
    let mut claimed = held(&lease);
    claimed.sort();
    let mut expected = vec![format!("{id}:0,2"), format!("{other}:0"), format!("{plain}:0")];
    expected.sort();
    assert_eq!(claimed, expected);
    let reports = lease.unwrap().slices.iter().map(completed).collect();
    exchange(&*second, worker, reports, None).await;
    assert!(store.is_finished(id).await.unwrap());
    let outcomes = store.outcomes(id).await.unwrap().unwrap();
    assert_eq!((outcomes.count, outcomes.ended()), (4, 4));
    let history = store.history(&HistoryFilter::default()).await.unwrap();
    let of_kind = history.iter().find(|row| &*row.kind == KIND).unwrap();
    assert_eq!((of_kind.completed, of_kind.dead), (7, 1));

    // A whole batch and single jobs are cached.
    let whole = submit(&*store, cached(KIND, "[4,3,4]", 1_000)).await;
    assert!(store.is_finished(whole).await.unwrap());
    let single = store.submit_one(cached(KIND, "[4]", 1_000)).await.unwrap();
    assert_eq!(value(&*store, single.batch, single.position).await, "4");
    assert_eq!(claim(&*store, worker, 9).await, None);
}

/// A value serves only jobs of its own queue and group. Tenants neither read nor forge the values of others.
pub async fn values_stay_in_their_queue_and_group(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let elsewhere = |queue: &str, group: Option<&str>| {
        let mut new = cached(KIND, "[1]", 1_000);
        new.queue = queue.to_owned();
        new.options.group = group.map(str::to_owned);
        new
    };
    // Some lanes would look alike if their names were only joined.
    let lanes = [
        ("default", None),
        ("default", Some("a")),
        ("default", Some("b")),
        ("other", None),
        ("other", Some("a")),
        ("defaulta", None),
    ];
    let all_queues = Want {
        queues: lanes.iter().map(|(queue, _)| Arc::from(*queue)).collect(),
        ..want(1)
    };
    for (number, (queue, group)) in lanes.iter().enumerate() {
        let first = submit(&*store, elsewhere(queue, *group)).await;
        assert_eq!(
            states(&*store, first).await,
            [JobState::Waiting],
            "{queue} {group:?}: the value of another lane"
        );
        let lease = exchange(&*store, worker, Vec::new(), Some(all_queues.clone()))
            .await
            .lease;
        let mut report = completed(&lease.unwrap().slices[0]);
        let own = format!("[{number}]");
        report.completed.as_mut().unwrap().values = PackedArray::parse(&own).unwrap();
        exchange(&*store, worker, vec![report], None).await;
    }
    for (number, (queue, group)) in lanes.iter().enumerate() {
        let again = submit(&*store, elsewhere(queue, *group)).await;
        assert_eq!(states(&*store, again).await, [JobState::Completed]);
        assert_eq!(value(&*store, again, 0).await, number.to_string());
    }
}

/// A value is used for as long as the new job allows, and kept for as long as the old one asked.
pub async fn cached_values_have_a_period(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    submit(&*store, cached(KIND, "[1]", 500)).await;
    let lease = claim(&*store, worker, 9).await.unwrap();
    exchange(&*store, worker, vec![completed(&lease.slices[0])], None).await;
    database.clock().advance_ms(100);
    let short = submit(&*store, cached(KIND, "[1]", 100)).await;
    assert_eq!(states(&*store, short).await, [JobState::Waiting]);
    let long = submit(&*store, cached(KIND, "[1]", 101)).await;
    assert_eq!(states(&*store, long).await, [JobState::Completed]);
    change(&*store, job(short, 0), Change::Cancel).await;
    database.clock().advance_ms(400);
    store.expire().await.unwrap();
    let later = submit(&*store, cached(KIND, "[1]", 10_000)).await;
    assert_eq!(states(&*store, later).await, [JobState::Waiting]);
    // The latest value counts.
    let lease = claim(&*store, worker, 9).await.unwrap();
    let mut report = completed(&lease.slices[0]);
    report.completed.as_mut().unwrap().values = PackedArray::parse("[\"new\"]").unwrap();
    exchange(&*store, worker, vec![report], None).await;
    let last = submit(&*store, cached(KIND, "[1]", 1)).await;
    assert_eq!(value(&*store, last, 0).await, "\"new\"");
}

/// Jobs that wait for cached jobs can be claimed at once. Rejected jobs stay dead. Cached jobs cannot have keys or
/// prerequisites.
pub async fn cached_values_count_as_completions(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    submit(&*store, cached(KIND, "[1,2]", 1_000)).await;
    let lease = claim(&*store, worker, 9).await.unwrap();
    exchange(&*store, worker, vec![completed(&lease.slices[0])], None).await;
    let mut known = cached(KIND, "[1,2]", 1_000);
    known.rejected = vec![Rejected {
        position: 1,
        error: error(),
    }];
    let mut after = batch(1);
    after.after = vec![After {
        prerequisite: Prerequisite::Earlier(0),
        positions: Some(positions("0")),
        on_failure: Default::default(),
    }];
    let ids = store.submit(vec![known, after], None).await.unwrap();
    assert_eq!(
        states(&*store, ids[0]).await,
        [JobState::Completed, JobState::Dead]
    );
    assert_eq!(held(&claim(&*store, worker, 9).await), [format!("{}:0", ids[1])]);
    let mut waiting = cached(KIND, "[1]", 1_000);
    waiting.after = vec![After::batch(ids[0])];
    assert!(store.submit(vec![waiting], None).await.is_err());
    assert!(store.submit(vec![cached(KIND, "[1]", 0)], None).await.is_err());
    let keys = PackedArray::parse("[\"a\"]").unwrap();
    let keyed = KeyedBatch::new(cached(KIND, "[1]", 1_000), keys, Unique::default());
    assert!(store.submit_keyed(vec![keyed]).await.is_err());
}
