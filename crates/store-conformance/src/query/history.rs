//! The history of ended jobs.

use gristmill_model::{Clock, RetryPolicy, Timestamp};
use gristmill_store::{Change, HistoryFilter, HistoryPeriod, HistoryRow, PruneOptions, Selection, Store};

use crate::Database;
use crate::fixture::*;

async fn history(store: &dyn Store, filter: &HistoryFilter) -> Vec<HistoryRow> {
    store.history(filter).await.unwrap()
}

/// The completed, dead, cancelled and expired jobs.
fn counts(row: &HistoryRow) -> (u64, u64, u64, u64) {
    (row.completed, row.dead, row.cancelled, row.expired)
}

/// Ends are counted by kind, however they are packed. The durations of completed jobs add up.
pub async fn ends_are_counted_by_kind(database: &dyn Database) {
    let store = database.open().await;
    assert!(history(&*store, &HistoryFilter::default()).await.is_empty());
    let mut first = batch(6);
    first.options.retry = RetryPolicy::NEVER;
    let id = submit(&*store, first).await;
    // A store may keep the durations of few jobs and of many jobs in different ways.
    let other = submit(&*store, batch_of("other", 30)).await;
    let worker = worker(&*store).await;
    change(&*store, job(id, 5), Change::Cancel).await;
    let lease = claim(&*store, worker, 40).await.unwrap();
    let mut report = failed_at(&lease.slices[0], &positions("0"), &error());
    report.completed = completed_at(&lease.slices[0], &positions("1-2")).completed;
    let reports = vec![report, completed(&lease.slices[1])];
    exchange(&*store, worker, reports, None).await;

    let rows = history(&*store, &HistoryFilter::default()).await;
    let kinds: Vec<&str> = rows.iter().map(|row| &*row.kind).collect();
    assert_eq!(kinds, ["other", KIND]);
    assert_eq!(
        (counts(&rows[0]), counts(&rows[1])),
        ((30, 0, 0, 0), (2, 1, 1, 0))
    );
    // The duration of a job in the fixture is its position in microseconds.
    let durations = &rows[0].durations;
    assert_eq!((durations.count(), durations.sum_us()), (30, 435));
    let durations = &rows[1].durations;
    assert_eq!((durations.count(), durations.sum_us()), (2, 3));
    assert_eq!(durations.quantile_us(1.0), Some(2));
    assert_eq!((&*rows[1].queue, rows[1].from), ("default", None));

    // A retried job has not ended.
    let dead = Selection::Jobs(vec![job(id, 0)]);
    change(&*store, dead, Change::Retry).await;
    let of_kind = HistoryFilter {
        kind: Some(KIND.to_owned()),
        ..HistoryFilter::default()
    };
    let rows = history(&*store, &of_kind).await;
    assert_eq!(rows.iter().map(counts).collect::<Vec<_>>(), [(2, 0, 1, 0)]);
    let elsewhere = HistoryFilter {
        queue: Some("elsewhere".to_owned()),
        ..HistoryFilter::default()
    };
    assert!(history(&*store, &elsewhere).await.is_empty());

    // A pruned job is forgotten.
    database.clock().advance_ms(1);
    let options = PruneOptions {
        finished_before: database.clock().now(),
        keep_batches: 0,
        dead_too: true,
        dry_run: false,
    };
    assert_eq!(store.prune(options).await.unwrap().batches, 1);
    assert!(store.job(job(other, 0)).await.unwrap().is_none());
    let rows = history(&*store, &HistoryFilter::default()).await;
    assert_eq!(rows.iter().map(|row| &*row.kind).collect::<Vec<_>>(), [KIND]);
}

/// Ends are counted by hours and days in UTC, the latest first, and only between two times.
pub async fn ends_are_counted_by_hour_and_day(database: &dyn Database) {
    const HOUR_MS: i64 = 3_600_000;
    let store = database.open().await;
    let worker = worker(&*store).await;
    let begun = database.clock().now();
    // Four jobs end, an hour and a half apart.
    for _ in 0..4 {
        submit(&*store, batch(1)).await;
        let lease = claim(&*store, worker, 1).await.unwrap();
        exchange(&*store, worker, vec![completed(&lease.slices[0])], None).await;
        database.clock().advance_ms(HOUR_MS * 3 / 2);
    }
    let by = |by| HistoryFilter {
        by,
        ..HistoryFilter::default()
    };
    for (period, length_ms) in [(HistoryPeriod::Hour, HOUR_MS), (HistoryPeriod::Day, 24 * HOUR_MS)] {
        let ends = (0..4).map(|number| begun.plus_ms(number * HOUR_MS * 3 / 2));
        let mut expected: Vec<(Timestamp, u64)> = Vec::new();
        for end in ends {
            let from = Timestamp(end.0.div_euclid(length_ms) * length_ms);
            match expected.last_mut() {
                Some((last, jobs)) if *last == from => *jobs += 1,
                _ => expected.push((from, 1)),
            }
        }
        expected.reverse();
        let rows = history(&*store, &by(period)).await;
        let found: Vec<_> = rows
            .iter()
            .map(|row| (row.from.unwrap(), row.completed))
            .collect();
        assert_eq!(found, expected, "{period:?}");
    }
    let between = HistoryFilter {
        since: Some(begun.plus_ms(1)),
        until: Some(begun.plus_ms(HOUR_MS * 3)),
        ..HistoryFilter::default()
    };
    let rows = history(&*store, &between).await;
    assert_eq!(rows.iter().map(counts).collect::<Vec<_>>(), [(1, 0, 0, 0)]);
}
