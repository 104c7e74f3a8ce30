//! Changes from outside while workers claim and commit, through several handles at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gristmill_model::{
    Backoff, BatchId, JobState, LeasedSlice, NewBatch, Positions, Report, RetryPolicy, Rng, SplitMix64,
    SystemClock, Timestamp,
};
use gristmill_private_postgres::shared;
use gristmill_store::{Change, JobFilter, PruneOptions, Selection, Store};
use gristmill_store_conformance::fixture::*;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::{Client, NoTls};

const BATCHES: u32 = 12;
const JOBS_PER_BATCH: u32 = 60;
const CHANGERS: u64 = 3;
/// Each changer makes this many changes, and submits a batch before each.
const CHANGES: u32 = 60;

/// Jobs that are tried twice, at once.
fn new_batch() -> NewBatch {
    let mut new = batch(JOBS_PER_BATCH);
    new.options.retry = RetryPolicy {
        attempts_max: 2,
        backoff: Backoff::Constant,
        delay_ms: 0,
        delay_ms_max: 0,
    };
    new
}

async fn open(url: &str, seed: u64) -> Arc<PostgresStore> {
    let options = PostgresOptions::new(Arc::new(SystemClock), seed);
    Arc::new(PostgresStore::open(url, options).await.unwrap())
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    // An error of the connection shows in the client's next call.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    client
}

/// Completes some jobs of a slice, fails others and releases the rest.
fn report_some(slice: &LeasedSlice, rng: &mut SplitMix64) -> Report {
    let mut fates: [Positions; 3] = Default::default();
    for position in slice.positions.iter() {
        fates[[0, 0, 0, 0, 1, 2][rng.below(6) as usize]].insert(position);
    }
    let [done, failed, released] = fates;
    let mut report = Report {
        failed: failed_at(slice, &failed, &error()).failed,
        released,
        ..report(slice)
    };
    if !done.is_empty() {
        report.completed = completed_at(slice, &done).completed;
    }
    report
}

/// Claims and commits until no jobs are left and nobody changes anything any more. Counts the accepted completed jobs.
async fn work(store: Arc<PostgresStore>, seed: u64, changers: Arc<AtomicU64>, accepted: Arc<AtomicU64>) {
    let mut rng = SplitMix64::new(seed);
    let id = worker(&*store).await;
    let mut reports: Vec<Report> = Vec::new();
    loop {
        let quiet = changers.load(Ordering::Acquire) == 0;
        let sent = std::mem::take(&mut reports);
        let exchanged = exchange(&*store, id, sent.clone(), Some(want(1 + rng.below(80) as u32))).await;
        for (report, receipt) in sent.iter().zip(&exchanged.receipts) {
            if let Some(completed) = &report.completed {
                let taken = completed.positions.intersection(&receipt.accepted);
                accepted.fetch_add(u64::from(taken.len()), Ordering::Relaxed);
            }
        }
        match exchanged.lease {
            Some(lease) => reports.extend(lease.slices.iter().map(|slice| report_some(slice, &mut rng))),
            None if quiet && sent.is_empty() && is_over(&store).await => break,
            None => {}
        }
        if rng.below(20) == 0 {
            store.heartbeat(id, Default::default()).await.unwrap();
        }
    }
    store.leave(id, Default::default()).await.unwrap();
}

async fn is_over(store: &PostgresStore) -> bool {
    let counts = store.counts(&JobFilter::default()).await.unwrap();
    counts.ended() == counts.total()
}

/// Submits, cancels and retries in all possible ways.
async fn change_at_random(
    store: Arc<PostgresStore>,
    client: Client,
    seed: u64,
    mut batches: Vec<BatchId>,
    changers: Arc<AtomicU64>,
) {
    let mut rng = SplitMix64::new(seed);
    for _ in 0..CHANGES {
        // The latest are still open.
        batches.push(submit(&*store, new_batch()).await);
        batches.drain(..batches.len() - BATCHES as usize);
        let named: Vec<_> = (0..30)
            .map(|_| {
                job(
                    batches[rng.below(batches.len() as u64) as usize],
                    rng.below(u64::from(JOBS_PER_BATCH)) as u32,
                )
            })
            .collect();
        let ids: Vec<String> = named.iter().map(|job| job.to_string()).collect();
        let one = Selection::Filter(JobFilter {
            batch: Some(batches[rng.below(batches.len() as u64) as usize]),
            ..JobFilter::default()
        });
        let all = Selection::Filter(JobFilter {
            states: vec![JobState::Dead, JobState::Waiting],
            ..JobFilter::default()
        });
        match rng.below(7) {
            0 => drop(
                client
                    .query_one("SELECT gristmill.cancel($1::text[])", &[&ids])
                    .await
                    .unwrap(),
            ),
            1 => drop(
                client
                    .query_one("SELECT gristmill.retry($1::text[])", &[&ids])
                    .await
                    .unwrap(),
            ),
            2 => drop(change(&*store, named, Change::Cancel).await),
            3 => drop(change(&*store, named, Change::Retry).await),
            4 => drop(change(&*store, one, Change::Cancel).await),
            5 => drop(change(&*store, one, Change::Retry).await),
            _ => drop(change(&*store, all, Change::Retry).await),
        }
    }
    changers.fetch_sub(1, Ordering::Release);
}

/// Whatever happens concurrently, each job is in one place at each moment, and has one outcome in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_job_is_in_one_place() {
    let url = shared().create_database().unwrap();
    let stores = [open(&url, 1).await, open(&url, 2).await];
    let mut batches = Vec::new();
    for _ in 0..BATCHES {
        batches.push(submit(&*stores[0], new_batch()).await);
    }
    let changers = Arc::new(AtomicU64::new(CHANGERS));
    let accepted = Arc::new(AtomicU64::new(0));
    let watching = Arc::new(AtomicBool::new(true));
    let mut tasks = Vec::new();
    for seed in 0..4 {
        let store = stores[seed as usize % 2].clone();
        tasks.push(tokio::spawn(work(
            store,
            seed,
            changers.clone(),
            accepted.clone(),
        )));
    }
    for seed in 0..CHANGERS {
        let store = stores[seed as usize % 2].clone();
        let client = connect(&url).await;
        tasks.push(tokio::spawn(change_at_random(
            store,
            client,
            10 + seed,
            batches.clone(),
            changers.clone(),
        )));
    }
    let client = connect(&url).await;
    let watcher = tokio::spawn({
        let watching = watching.clone();
        async move {
            let mut looks = 0;
            while watching.load(Ordering::Acquire) || looks == 0 {
                assert_consistent(&client).await;
                looks += 1;
            }
            looks
        }
    });
    for task in tasks {
        task.await.unwrap();
    }
    watching.store(false, Ordering::Release);
    let looks = watcher.await.unwrap();
    let client = connect(&url).await;
    assert_consistent(&client).await;
    let counts = stores[0].counts(&JobFilter::default()).await.unwrap();
    let failures = stores[0].stats().await.unwrap().failures;
    let submitted = u64::from(BATCHES) + CHANGERS * u64::from(CHANGES);
    assert_eq!(counts.total(), submitted * u64::from(JOBS_PER_BATCH));
    assert!(
        counts.dead > 0 && counts.cancelled > 0 && counts.completed > 0,
        "{counts:?}"
    );
    assert_eq!(
        (counts.ended(), counts.completed),
        (counts.total(), accepted.load(Ordering::Relaxed))
    );
    let deadlocks: i64 = client
        .query_one(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    println!("{counts:?}; {failures} failures; {looks} snapshots were consistent");
    assert_eq!(deadlocks, 0, "rows are locked in one order");
}

/// On one snapshot, the positions of each batch's slices, leases and reports are all of its jobs, each once.
async fn assert_consistent(client: &Client) {
    let wrong = client
        .query(
            "SELECT b.id, array_agg(p.place ORDER BY p.place) FROM gristmill.batch b
             CROSS JOIN LATERAL (
                 SELECT 'slice ' || positions::text AS place, positions, count FROM gristmill.slice WHERE batch_id = b.id
                 UNION ALL SELECT 'held ' || positions::text, positions, count FROM gristmill.held WHERE batch_id = b.id
                 UNION ALL SELECT 'report ' || positions::text, positions, count FROM gristmill.report WHERE batch_id = b.id
                     AND first_position = lower(positions)
             ) p CROSS JOIN LATERAL unnest(p.positions) range
             GROUP BY b.id
             HAVING range_agg(range) <> int4multirange(int4range(0, b.count)) OR sum(upper(range) - lower(range)) <> b.count
                 OR bool_or(gristmill.count(p.positions) <> p.count)",
            &[],
        )
        .await
        .unwrap();
    let wrong: Vec<(i64, Vec<String>)> = wrong.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A batch that is pruned while its jobs are retried is either gone or there as a whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pruning_beside_retries() {
    let url = shared().create_database().unwrap();
    let stores = [open(&url, 1).await, open(&url, 2).await];
    let mut batches = Vec::new();
    for _ in 0..200 {
        batches.push(submit(&*stores[0], batch(3)).await);
    }
    change(&*stores[0], JobFilter::default(), Change::Cancel).await;
    let options = PruneOptions {
        finished_before: Timestamp(i64::MAX),
        keep_batches: 0,
        dead_too: true,
        dry_run: false,
    };
    let pruner = tokio::spawn({
        let store = stores[0].clone();
        async move { store.prune(options).await.unwrap() }
    });
    let mut retried = 0;
    for batch in batches.iter().rev() {
        let changed = change(&*stores[1], job(*batch, 1), Change::Retry).await;
        retried += changed.changed;
    }
    let pruned = pruner.await.unwrap();
    let client = connect(&url).await;
    assert_consistent(&client).await;
    let counts = stores[0].counts(&JobFilter::default()).await.unwrap();
    assert_eq!((counts.waiting, counts.total()), (retried, 3 * retried));
    assert_eq!(pruned.batches + retried, 200, "each batch was pruned or retried");
    let orphans: i64 = client
        .query_one(
            "SELECT count(*) FROM (SELECT batch_id FROM gristmill.slice UNION SELECT batch_id FROM gristmill.report) rest
             WHERE NOT EXISTS (SELECT FROM gristmill.batch WHERE id = rest.batch_id)",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert_eq!(orphans, 0);
}
