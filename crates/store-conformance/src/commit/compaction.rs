//! Compaction: many small reports of an ended batch become few rows, and every answer stays the same.

use gristmill_model::{
    BatchId, Clock, Completed, FailedJob, JobError, JobLog, PackedBuilder, Positions, Report, Timestamp,
};
use gristmill_store::{
    BatchOutcomes, Change, EventPage, HistoryFilter, HistoryPeriod, HistoryRow, JobCounts, JobFilter, Page,
    PruneOptions, Selection, Store,
};

use crate::Database;
use crate::fixture::*;

const JOBS: u32 = 60;

/// The answers to all questions about a batch.
#[derive(Debug, PartialEq)]
struct Asked {
    outcomes: Option<BatchOutcomes>,
    details: Vec<String>,
    rows: Vec<gristmill_store::JobRow>,
    counts: JobCounts,
    histories: Vec<Vec<HistoryRow>>,
    finished: bool,
    events: EventPage,
}

async fn ask(store: &dyn Store, batch: BatchId, moments: &[Timestamp]) -> Asked {
    let mut details = Vec::new();
    for position in 0..JOBS {
        let details_of_one = store.job(job(batch, position)).await.unwrap().unwrap();
        details.push(format!("{details_of_one:?}"));
    }
    let mut histories = Vec::new();
    for by in [HistoryPeriod::All, HistoryPeriod::Hour] {
        for since in moments {
            for until in moments {
                let filter = HistoryFilter {
                    since: Some(*since),
                    until: Some(*until),
                    by,
                    ..HistoryFilter::default()
                };
                histories.push(store.history(&filter).await.unwrap());
            }
        }
    }
    let page = Page {
        after: Some(job(batch, 6)),
        limit: 40,
    };
    Asked {
        outcomes: store.outcomes(batch).await.unwrap(),
        details,
        rows: store.jobs(&JobFilter::default(), page).await.unwrap(),
        counts: store.counts(&JobFilter::default()).await.unwrap(),
        histories,
        finished: store.is_finished(batch).await.unwrap(),
        events: store.events(None, 1_000).await.unwrap(),
    }
}

/// Ends the waiting jobs with many small reports of two workers within two hours: with values of all kinds, logs, a
/// retried job and a dead job. Returns the times between the reports.
async fn end_in_parts(database: &dyn Database, store: &dyn Store) -> Vec<Timestamp> {
    let workers = [worker(store).await, worker(store).await];
    let mut moments = vec![database.clock().now()];
    let mut number = 0_usize;
    loop {
        let Some(lease) = claim(store, workers[number % 2], 1 + number as u32 % 3).await else {
            break;
        };
        for slice in &lease.slices {
            let mut report = Report::new(slice.lease, slice.batch, slice.attempt);
            let mut completed = slice.positions.clone();
            for position in slice.positions.iter() {
                if position == 13 || (position == 20 && slice.attempt == 1) {
                    completed = completed.difference(&Positions::from(position..position + 1));
                    let error = JobError::new("Oops", "no \"luck\"");
                    let error = if position == 13 { error.permanent() } else { error };
                    report.failed.push(FailedJob {
                        position,
                        error,
                        duration_us: 9,
                    });
                }
            }
            let mut values = PackedBuilder::new();
            for position in completed.iter() {
                let value = match position % 4 {
                    0 => format!("[{position}, \"a\\u0000b\", null]"),
                    1 => format!("{{\"p\": {position}.50}}"),
                    2 => "null".to_owned(),
                    _ => format!("\"\\\"{position}\""),
                };
                values.push(&value).unwrap();
            }
            if !completed.is_empty() {
                report.completed = Some(Completed {
                    durations_us: completed.iter().map(|position| position * 100 + 7).collect(),
                    values: values.finish(),
                    positions: completed.clone(),
                });
                report.logs = completed
                    .iter()
                    .filter(|position| position % 5 == 0)
                    .map(|position| JobLog {
                        position,
                        text: format!("said \"{position}\"\n"),
                    })
                    .collect();
            }
            exchange(store, workers[number % 2], vec![report], None).await;
        }
        number += 1;
        database.clock().advance_ms(300_000);
        moments.push(database.clock().now());
    }
    assert!(number > 20);
    // A part of the times is enough.
    moments.into_iter().step_by(7).collect()
}

/// Every question has the same answer before and after compaction.
pub async fn compaction_changes_no_answer(database: &dyn Database) {
    let store = database.open().await;
    store.listen().await.unwrap();
    let mut new = batch(JOBS);
    new.options.retry.attempts_max = 2;
    new.options.retry.delay_ms = 0;
    let id = submit(&*store, new).await;
    let moments = end_in_parts(database, &*store).await;
    let open = submit(&*store, batch_of("other", 1)).await;
    let before = ask(&*store, id, &moments).await;
    let reports = store.stats().await.unwrap().reports;
    assert_eq!(
        store.compact(1_000).await.unwrap(),
        0,
        "the batch has fewer reports"
    );
    let gone = store.compact(4).await.unwrap();
    assert!(gone > 20, "{gone}");
    assert_eq!(ask(&*store, id, &moments).await, before);
    assert_eq!(store.compact(4).await.unwrap(), 0, "a batch is compacted once");
    let left = store.stats().await.unwrap().reports;
    assert_eq!(reports - left, gone);
    assert!(left <= 4, "{left}");
    // Another handle gives the same answers.
    let other = database.open().await;
    assert_eq!(other.outcomes(id).await.unwrap(), before.outcomes);
    assert!(!other.is_finished(open).await.unwrap());
    // The dead job is discarded, retried and completed after the compaction.
    let dead = Selection::Jobs(vec![job(id, 13)]);
    assert_eq!(change(&*store, dead.clone(), Change::Discard).await.changed, 1);
    assert_eq!(change(&*store, dead, Change::Retry).await.changed, 1);
    assert!(!store.is_finished(id).await.unwrap());
    let worker = worker(&*store).await;
    let lease = claim(&*store, worker, 10).await.unwrap();
    let reports = lease.slices.iter().map(completed).collect();
    exchange(&*store, worker, reports, None).await;
    let outcomes = store.outcomes(id).await.unwrap().unwrap();
    assert_eq!(outcomes.ended(), JOBS);
    assert_eq!(outcomes.reports.len(), before.outcomes.unwrap().reports.len());
    database.clock().advance_ms(1);
    let options = PruneOptions {
        finished_before: database.clock().now(),
        keep_batches: 0,
        dead_too: true,
        dry_run: false,
    };
    let pruned = store.prune(options).await.unwrap();
    assert_eq!((pruned.batches, pruned.jobs), (2, u64::from(JOBS) + 1));
    assert_eq!(store.stats().await.unwrap().reports, 0);
}

/// A batch with open jobs is not compacted.
pub async fn open_batches_are_not_compacted(database: &dyn Database) {
    let store = database.open().await;
    let id = submit(&*store, batch(12)).await;
    let worker = worker(&*store).await;
    for _ in 0..11 {
        let slice = only(claim(&*store, worker, 1).await);
        exchange(&*store, worker, vec![completed(&slice)], None).await;
    }
    assert_eq!(store.compact(1).await.unwrap(), 0);
    let slice = only(claim(&*store, worker, 1).await);
    assert_eq!(store.compact(1).await.unwrap(), 0, "a worker holds one job");
    exchange(&*store, worker, vec![completed(&slice)], None).await;
    let before = store.outcomes(id).await.unwrap();
    assert_eq!(store.compact(1).await.unwrap(), 11);
    assert_eq!(store.outcomes(id).await.unwrap(), before);
}
