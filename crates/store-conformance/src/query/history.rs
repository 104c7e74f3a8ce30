//! The history of ended jobs.

use gristmill_model::{Clock, RetryPolicy, Timestamp};
use gristmill_store::{
    Change, HistoryFilter, HistoryPeriod, HistoryRow, JobFilter, PruneOptions, Selection, Store,
};

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

/// The completed jobs of a kind, and the number and sum of their durations.
async fn ended_of(store: &dyn Store, kind: &str) -> (u64, u64, u64) {
    let filter = HistoryFilter {
        kind: Some(kind.to_owned()),
        ..HistoryFilter::default()
    };
    let rows = history(store, &filter).await;
    let total = rows.first().map_or((0, 0, 0), |row| {
        (row.completed, row.durations.count(), row.durations.sum_us())
    });
    let jobs = JobFilter {
        kind: Some(kind.to_owned()),
        ..JobFilter::default()
    };
    let counts = store.counts(&jobs).await.unwrap();
    assert_eq!(
        total.0, counts.completed,
        "the history and the counts of `{kind}` agree"
    );
    let kinds = store.kind_counts(false).await.unwrap();
    let of_kind: u64 = kinds
        .iter()
        .filter(|row| &*row.kind == kind)
        .map(|row| row.counts.completed)
        .sum();
    assert_eq!(of_kind, counts.completed);
    total
}

/// Reports count once, whether they are of a whole batch, of many or of few jobs of it, compacted, or beside others of all kinds.
pub async fn ends_are_counted_in_reports_of_all_sizes(database: &dyn Database) {
    const JOBS: u32 = 40;
    // How many jobs each report has, by kind; those of the last one stay open.
    let kinds: [(&str, &[u32]); 6] = [
        ("whole", &[40]),
        ("halves", &[20, 20]),
        ("mixed", &[30, 4, 6]),
        ("few", &[4; 10]),
        ("whole too", &[40]),
        ("open", &[25]),
    ];
    let store = database.open().await;
    let worker = worker(&*store).await;
    let mut reports = 0;
    for (kind, sizes) in kinds {
        submit(&*store, batch_of(kind, JOBS)).await;
        for size in sizes {
            let slice = only(claim(&*store, worker, *size).await);
            exchange(&*store, worker, vec![completed(&slice)], None).await;
            reports += 1;
        }
        // The next kind is claimed before the rest of this one.
        let rest = JobFilter {
            kind: Some(kind.to_owned()),
            ..JobFilter::default()
        };
        change(&*store, Selection::Filter(rest), pausing("later", None)).await;
    }
    assert_eq!(store.stats().await.unwrap().reports, reports);
    let sum = |jobs: u64| jobs * (jobs - 1) / 2;
    for is_compacted in [false, true] {
        for (kind, sizes) in kinds {
            let jobs = u64::from(sizes.iter().sum::<u32>());
            assert_eq!(
                ended_of(&*store, kind).await,
                (jobs, jobs, sum(jobs)),
                "`{kind}`, {is_compacted}"
            );
        }
        if !is_compacted {
            assert_eq!(
                store.compact(4).await.unwrap(),
                9,
                "the reports of `few` become one"
            );
            reports -= 9;
        }
        let stats = store.stats().await.unwrap();
        assert_eq!((stats.reports, stats.batches), (reports, kinds.len() as u64));
    }
    no_damage(&*store).await;
}

/// Totals are those of the batches that are left, whether they were submitted before or after housekeeping.
pub async fn totals_survive_deletions(database: &dyn Database) {
    let store = database.open().await;
    let worker = worker(&*store).await;
    let end = async |kind: &str, jobs| {
        submit(&*store, batch_of(kind, jobs)).await;
        let slice = only(claim(&*store, worker, jobs).await);
        exchange(&*store, worker, vec![completed(&slice)], None).await;
    };
    end("first", 20).await;
    end("second", 30).await;
    store.compact(4).await.unwrap();
    end("first", 3).await;
    assert_eq!(ended_of(&*store, "first").await.0, 23);
    database.clock().advance_ms(1);
    let before = database.clock().now();
    end("second", 5).await;
    store.compact(4).await.unwrap();
    let options = PruneOptions {
        finished_before: before,
        keep_batches: 0,
        dead_too: true,
        dry_run: false,
    };
    assert_eq!(store.prune(options).await.unwrap().batches, 3);
    assert_eq!(ended_of(&*store, "first").await.0, 0);
    assert_eq!(ended_of(&*store, "second").await.0, 5);
    store.compact(4).await.unwrap();
    end("first", 7).await;
    assert_eq!(ended_of(&*store, "first").await.0, 7);
    let stats = store.stats().await.unwrap();
    assert_eq!((stats.batches, stats.reports), (2, 2));
    no_damage(&*store).await;
    // Another handle sees the same.
    let other = database.open().await;
    assert_eq!(ended_of(&*other, "first").await.0, 7);
}
