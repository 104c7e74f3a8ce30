//! Histories and counts of a SQLite store read few rows of batches that have ended.

use std::sync::Arc;

use gristmill_model::{Clock, ManualClock, Timestamp};
use gristmill_store::{HistoryFilter, HistoryPeriod, HistoryRow, KindCounts, PruneOptions, Store};
use gristmill_store_conformance::fixture::*;
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;

struct Case {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    store: SqliteStore,
}

/// A store with two batches that have ended, one in one report and one in two.
async fn case() -> Case {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(Timestamp(1_700_000_000_000)));
    let options = SqliteOptions::new(clock.clone(), 1);
    let store = SqliteStore::open(folder.path().join("totals.db"), options).unwrap();
    let case = Case { folder, clock, store };
    let worker = worker(&case.store).await;
    submit(&case.store, batch(40)).await;
    submit(&case.store, batch_of("other", 60)).await;
    for jobs in [40, 30, 30] {
        let slice = only(claim(&case.store, worker, jobs).await);
        exchange(&case.store, worker, vec![completed(&slice)], None).await;
    }
    case
}

impl Case {
    /// Runs statements as another program does.
    fn sql(&self, statements: &str) {
        let connection = Connection::open(self.folder.path().join("totals.db")).unwrap();
        connection.execute_batch(statements).unwrap();
    }

    async fn history(&self, by: HistoryPeriod) -> Vec<HistoryRow> {
        let filter = HistoryFilter {
            by,
            ..HistoryFilter::default()
        };
        self.store.history(&filter).await.unwrap()
    }

    async fn kinds(&self) -> Vec<KindCounts> {
        self.store.kind_counts(false).await.unwrap()
    }

    async fn damaged_tables(&self) -> Vec<String> {
        let mut tables: Vec<String> = findings(&self.store)
            .await
            .iter()
            .map(|found| found.table.to_string())
            .collect();
        tables.dedup();
        tables
    }
}

/// The rows with the durations are enough for a history of batches that ended in reports of many jobs.
#[tokio::test]
async fn a_history_reads_neither_batches_nor_reports_that_its_rows_cover() {
    let case = case().await;
    let [all, by_hour] = [
        case.history(HistoryPeriod::All).await,
        case.history(HistoryPeriod::Hour).await,
    ];
    assert_eq!(all.iter().map(|row| row.completed).collect::<Vec<_>>(), [60, 40]);
    no_damage(&case.store).await;
    case.sql("DELETE FROM report; DELETE FROM batch");
    assert_eq!(case.history(HistoryPeriod::All).await, all);
    assert_eq!(case.history(HistoryPeriod::Hour).await, by_hour);
    assert_eq!(case.store.stats().await.unwrap().reports, 3);
    assert!(
        case.damaged_tables()
            .await
            .contains(&"report_durations".to_owned())
    );
}

/// After housekeeping, a count reads no batch. A check compares the totals with the batches.
#[tokio::test]
async fn counts_read_totals_in_place_of_batches() {
    let case = case().await;
    let kinds = case.kinds().await;
    case.store.compact(64).await.unwrap();
    assert_eq!(case.kinds().await, kinds);
    no_damage(&case.store).await;
    case.sql("UPDATE batch SET count = count + 1");
    assert_eq!(case.kinds().await, kinds);
    assert!(case.damaged_tables().await.contains(&"lane_total".to_owned()));
}

/// The remedy that a check names for wrong totals.
#[tokio::test]
async fn a_check_says_how_wrong_totals_are_counted_anew() {
    let case = case().await;
    let kinds = case.kinds().await;
    case.store.compact(64).await.unwrap();
    case.sql("UPDATE lane_total SET jobs = jobs + 7");
    assert_ne!(case.kinds().await, kinds);
    let found = findings(&case.store).await;
    let statements = found[0].what.split('`').nth(1).unwrap();
    case.sql(&format!("BEGIN; {statements}; COMMIT"));
    assert_eq!(case.kinds().await, kinds);
    case.store.compact(64).await.unwrap();
    assert_eq!(case.kinds().await, kinds);
    no_damage(&case.store).await;
}

/// A deletion that finds the totals too low makes housekeeping count them anew, and is carried out.
#[tokio::test]
async fn damaged_totals_are_counted_anew() {
    let case = case().await;
    case.store.compact(64).await.unwrap();
    case.sql("UPDATE lane_total SET batches = 0, jobs = 0");
    case.clock.advance_ms(1);
    let worker = worker(&case.store).await;
    submit(&case.store, batch(25)).await;
    let slice = only(claim(&case.store, worker, 25).await);
    exchange(&case.store, worker, vec![completed(&slice)], None).await;
    let options = PruneOptions {
        finished_before: case.clock.now(),
        keep_batches: 0,
        dead_too: true,
        dry_run: false,
    };
    assert_eq!(case.store.prune(options).await.unwrap().batches, 2);
    for _ in 0..2 {
        let completed: Vec<u64> = case
            .kinds()
            .await
            .iter()
            .map(|kind| kind.counts.completed)
            .collect();
        assert_eq!(completed, [25]);
        case.store.compact(64).await.unwrap();
        no_damage(&case.store).await;
    }
}
