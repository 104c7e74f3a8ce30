//! The numbers for monitoring.

use gristmill_batching::BatchStats;
use gristmill_model::{After, Clock, NewBatch, Report};
use gristmill_store::metrics::{DURATION_BOUNDS_SECONDS, EndedJobs};
use gristmill_store::{Change, LaneMetrics, PruneOptions, Store};

use crate::Database;
use crate::fixture::*;

async fn lanes(store: &dyn Store) -> Vec<LaneMetrics> {
    store.metrics().await.unwrap().lanes
}

/// A store without jobs has no lanes, but all other numbers.
pub async fn an_empty_store_has_metrics(database: &dyn Database) {
    let store = database.open().await;
    let metrics = store.metrics().await.unwrap();
    assert_eq!((metrics.lanes, metrics.workers), (Vec::new(), 0));
    assert!(metrics.size_bytes > 0);
}

/// Open jobs are counted by the condition that they wait for. The oldest due job shows the time since when it is due.
pub async fn open_jobs_are_measured(database: &dyn Database) {
    let store = database.open().await;
    let now = database.clock().now();
    let first = submit(&*store, batch(3)).await;
    let mut delayed = batch(2);
    delayed.options.run_at = Some(now.plus_ms(60_000));
    submit(&*store, delayed).await;
    let blocked = NewBatch {
        after: vec![After::batch(first)],
        ..batch(4)
    };
    submit(&*store, blocked).await;
    let mut grouped = batch(1);
    grouped.options.group = Some("acme".to_owned());
    submit(&*store, grouped).await;
    submit(&*store, batch_of("other", 1)).await;
    let worker = worker(&*store).await;
    database.clock().advance_ms(500);
    claim(&*store, worker, 1).await.unwrap();
    let expected = LaneMetrics {
        kind: KIND.into(),
        queue: "default".into(),
        waiting: 9,
        due: 3,
        running: 1,
        pieces: 5,
        oldest_due_at: Some(now),
        ended: EndedJobs::default(),
    };
    let other = LaneMetrics {
        kind: "other".into(),
        waiting: 1,
        due: 1,
        running: 0,
        pieces: 1,
        ..expected.clone()
    };
    let found = lanes(&*store).await;
    assert_eq!(found, [expected, other], "the groups of a kind are added up");
    assert_eq!(store.open_lanes().await.unwrap(), found);
    assert_eq!(store.metrics().await.unwrap().workers, 1);
}

/// Ended jobs are counted once. All handles see them after a heartbeat, and a prune removes none.
pub async fn ended_jobs_are_measured(database: &dyn Database) {
    let (one, other) = (database.open().await, database.open().await);
    let id = submit(&*one, once(6)).await;
    let worker = worker(&*one).await;
    let slice = only(claim(&*one, worker, 6).await);
    change(&*one, job(id, 5), Change::Cancel).await;
    let mut first = completed_at(&slice, &positions("0-2,5"));
    let durations_us = vec![900, 1_100, 2_000_000, 7];
    first.completed.as_mut().unwrap().durations_us = durations_us;
    let first: Report = first;
    let dead = failed_at(&slice, &positions("3"), &error());
    exchange(&*one, worker, vec![first.clone(), dead], None).await;
    // A refused report counts nothing.
    exchange(&*one, worker, vec![first], None).await;
    let mut expected = EndedJobs {
        completed: 3,
        dead: 1,
        duration_sum_us: 2_002_000,
        ..EndedJobs::default()
    };
    let second = DURATION_BOUNDS_SECONDS
        .iter()
        .position(|bound| *bound >= 2.0)
        .unwrap();
    for bucket in [0, 1, second] {
        expected.duration_counts[bucket] = 1;
    }
    assert_eq!(
        lanes(&*one).await[0].ended,
        expected,
        "a handle knows its own counts"
    );
    exchange(&*one, worker, vec![completed_at(&slice, &positions("4"))], None).await;
    one.heartbeat(worker, BatchStats::default()).await.unwrap();
    let elsewhere = lanes(&*other).await[0].ended.clone();
    assert_eq!((elsewhere.completed, elsewhere.dead), (4, 1));
    database.clock().advance_ms(1_000);
    let options = PruneOptions {
        finished_before: database.clock().now(),
        keep_batches: 0,
        dead_too: true,
        dry_run: false,
    };
    assert_eq!(one.prune(options).await.unwrap().batches, 1);
    assert_eq!(lanes(&*other).await[0].ended, elsewhere);
    let mut again = Vec::new();
    for handle in [&one, &other] {
        let worker = crate::fixture::worker(&**handle).await;
        submit(&**handle, once(1)).await;
        let slice = only(claim(&**handle, worker, 1).await);
        exchange(&**handle, worker, vec![completed(&slice)], None).await;
        again.push(handle.record(BatchStats::default()));
    }
    for recorded in futures::future::join_all(again).await {
        recorded.unwrap();
    }
    assert_eq!(
        lanes(&*one).await[0].ended.completed,
        6,
        "two handles lose no count"
    );
}
