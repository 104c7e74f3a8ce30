//! Measures the speed of the SQLite store, next to bare rows in the same run: `cargo bench -p gristmill-store-sqlite
//! --bench sqlite`.
//!
//! The jobs are no-ops with 100-byte payloads. Each figure is the median of several rounds on a fresh file, after a
//! warm-up. `GRISTMILL_BENCH_FOLDER` sets the folder of the files (it should be on a disk); `ROUNDS` and a part of a
//! measurement's name as the argument narrow the run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_model::{Completed, NewBatch, PackedArray, PackedBuilder, Report, SystemClock};
use gristmill_store::{NewWorker, Store, Want, WorkSeen};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore, Synchronous};
use rusqlite::{Connection, params};

const JOBS_PER_BATCH: u32 = 1_000;
const BULK_BATCHES: u32 = 500;
/// The number of concurrent submits.
const SUBMITS_IN_FLIGHT: u32 = 8;

/// Works on a new file; returns the number of jobs and the time they took.
type Measure = fn(&Path) -> (u64, Duration);

fn main() {
    let rounds: usize =
        std::env::var("ROUNDS").map_or(5, |rounds| rounds.parse().expect("ROUNDS is a number"));
    let wanted = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with("--"));
    let measurements: [(&str, Measure); 16] = [
        ("bare rows: submit in batches, FULL", bare_submit),
        ("submit in batches, 1 in flight, FULL", |path| submit(path, 1)),
        ("submit in batches, 8 in flight, FULL", |path| {
            submit(path, SUBMITS_IN_FLIGHT)
        }),
        ("bare rows: claim + commit in batches, FULL", bare_claim),
        ("claim + commit of whole batches, FULL", |path| {
            claim(path, JOBS_PER_BATCH)
        }),
        ("claim + commit by 100, FULL", |path| claim(path, 100)),
        ("bare rows: submit one, 1 caller, NORMAL", bare_single),
        ("submit one, 1 caller, NORMAL", |path| {
            singles(path, 1, 20_000, Synchronous::Normal)
        }),
        ("submit one, 64 callers, NORMAL", |path| {
            singles(path, 64, 200_000, Synchronous::Normal)
        }),
        ("submit one, 64 callers, FULL", |path| {
            singles(path, 64, 200_000, Synchronous::Full)
        }),
        ("exchange that claims 1 job of 1 slice, NORMAL", exchange_one),
        ("lanes: submit 1 job in each of 1,000, NORMAL", |path| {
            submit_lanes(path, 1_000)
        }),
        ("lanes: submit 1 job in each of 100,000, NORMAL", |path| {
            submit_lanes(path, 100_000)
        }),
        ("lanes: claim + commit by 1,000, 1,000 lanes, NORMAL", |path| {
            claim_lanes(path, 1_000)
        }),
        ("lanes: claim + commit by 1,000, 10,000 lanes, NORMAL", |path| {
            claim_lanes(path, 10_000)
        }),
        ("lanes: claim + commit by 1,000, 100,000 lanes, NORMAL", |path| {
            claim_lanes(path, 100_000)
        }),
    ];
    println!("{:<50} {:>14} {:>12}", "measurement", "jobs/s", "us/job");
    for (name, measure) in measurements {
        if wanted
            .as_ref()
            .is_some_and(|wanted| !name.contains(wanted.as_str()))
        {
            continue;
        }
        let folder = Folder::new();
        let mut rates: Vec<f64> = (0..=rounds)
            .map(|round| {
                let (jobs, took) = measure(&folder.0.join(format!("{round}.db")));
                jobs as f64 / took.as_secs_f64()
            })
            .skip(1)
            .collect();
        rates.sort_by(f64::total_cmp);
        let median = rates[rates.len() / 2];
        println!("{name:<50} {median:>14.0} {:>12.2}", 1e6 / median);
    }
    latencies(wanted.as_deref());
}

/// Jobs in one measurement of latency, fifty a second; the first ones are a warm-up.
const LATENCY_JOBS: u32 = 220;
const LATENCY_WARM_UP_JOBS: usize = 20;

/// Measures the time from a submit to its job's start, by a worker of the same process that is woken, or gets the job
/// from the submit. Takes turns with a bare row that is synced. FULL.
fn latencies(wanted: Option<&str>) {
    type Latency = fn(&Path) -> Vec<Duration>;
    let measurements: [(&str, Latency); 3] = [
        ("latency: a bare row that is synced, FULL", bare_latency),
        ("latency: submit to start, woken, FULL", |path| {
            latency(path, false)
        }),
        ("latency: submit to start, handed over, FULL", |path| {
            latency(path, true)
        }),
    ];
    let folder = Folder::new();
    let mut all: Vec<Vec<Duration>> = vec![Vec::new(); measurements.len()];
    for round in 0..3 {
        for (number, (name, measure)) in measurements.iter().enumerate() {
            if wanted.is_none_or(|wanted| name.contains(wanted)) {
                let found = measure(&folder.0.join(format!("latency-{round}-{number}.db")));
                all[number].extend_from_slice(&found[LATENCY_WARM_UP_JOBS..]);
            }
        }
    }
    for ((name, _), mut found) in measurements
        .iter()
        .zip(all)
        .filter(|(_, found)| !found.is_empty())
    {
        found.sort_unstable();
        let percentile = |percent: usize| found[found.len() * percent / 100].as_secs_f64() * 1e3;
        println!(
            "{name:<50} p50 {:>7.3} ms p99 {:>7.3} ms",
            percentile(50),
            percentile(99)
        );
    }
}

fn latency(path: &Path, handed_over: bool) -> Vec<Duration> {
    latency_runtime().block_on(async {
        let store = open(path, Synchronous::Full);
        let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
        let working = store.clone();
        let work = tokio::spawn(async move {
            let worker = register(&working).await;
            let (seen, mut reports, mut handed) = (WorkSeen::default(), Vec::new(), None);
            loop {
                let lease = match handed.take() {
                    Some(lease) => Some(lease),
                    None => {
                        let reports = std::mem::take(&mut reports);
                        let exchanged = working.exchange(worker, reports, Some(want(100))).await;
                        exchanged.expect("the exchange holds").lease
                    }
                };
                if let Some(lease) = lease {
                    for slice in lease.slices {
                        if started.send(Instant::now()).is_err() {
                            return;
                        }
                        reports.push(completed(slice));
                    }
                } else if handed_over {
                    let exchanged = working.wait_for_claim(worker, want(100), &seen).await;
                    handed = exchanged.and_then(|exchanged| exchanged.lease);
                } else {
                    working.wait_for_work(&seen).await;
                }
            }
        });
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        let mut latencies = Vec::new();
        for _ in 0..LATENCY_JOBS {
            ticks.tick().await;
            let began = Instant::now();
            let job = NewBatch::new("no-op", payloads(1));
            store.submit_one(job).await.expect("the submit holds");
            let start = starts.recv().await.expect("a start");
            latencies.push(start.duration_since(began));
        }
        work.abort();
        latencies
    })
}

fn bare_latency(path: &Path) -> Vec<Duration> {
    let mut connection = open_bare(path, "FULL");
    latency_runtime().block_on(async {
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        let mut latencies = Vec::new();
        for _ in 0..LATENCY_JOBS {
            ticks.tick().await;
            let began = Instant::now();
            bare_insert(&mut connection, 1, 1);
            latencies.push(began.elapsed());
        }
        latencies
    })
}

fn latency_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("the runtime starts")
}

/// A folder that is deleted with its contents.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let parent =
            std::env::var_os("GRISTMILL_BENCH_FOLDER").map_or_else(std::env::temp_dir, PathBuf::from);
        let folder = parent.join(format!("gristmill-store-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the bench's folder can be made");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn payload(number: u32) -> String {
    format!("{{\"number\":{number:>8},\"text\":\"{:-<70}\"}}", "no-op")
}

fn payloads(count: u32) -> PackedArray {
    let mut builder = PackedBuilder::new();
    for number in 0..count {
        builder.push(&payload(number)).expect("the payload is JSON");
    }
    builder.finish()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .expect("the runtime starts")
}

fn open(path: &Path, synchronous: Synchronous) -> Arc<SqliteStore> {
    let mut options = SqliteOptions::new(Arc::new(SystemClock), 1);
    options.synchronous = synchronous;
    Arc::new(SqliteStore::open(path, options).expect("the store opens"))
}

async fn submit_all(store: &Arc<SqliteStore>, in_flight: u32) {
    let payloads = payloads(JOBS_PER_BATCH);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..in_flight {
        let (store, payloads) = (store.clone(), payloads.clone());
        tasks.spawn(async move {
            for _ in 0..BULK_BATCHES / in_flight {
                let batch = NewBatch::new("no-op", payloads.clone());
                store.submit(vec![batch], None).await.expect("the submit holds");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no task panics");
    }
}

fn submit(path: &Path, in_flight: u32) -> (u64, Duration) {
    runtime().block_on(async {
        let store = open(path, Synchronous::Full);
        let started = Instant::now();
        submit_all(&store, in_flight).await;
        let jobs = u64::from(BULK_BATCHES / in_flight * in_flight * JOBS_PER_BATCH);
        (jobs, started.elapsed())
    })
}

fn claim(path: &Path, jobs_max: u32) -> (u64, Duration) {
    runtime().block_on(async {
        let store = open(path, Synchronous::Full);
        submit_all(&store, SUBMITS_IN_FLIGHT).await;
        drain(&store, jobs_max).await
    })
}

/// One worker commits one lease and claims the next in the same exchange.
async fn drain(store: &SqliteStore, jobs_max: u32) -> (u64, Duration) {
    let worker = register(store).await;
    let started = Instant::now();
    let mut reports = Vec::new();
    let mut jobs = 0;
    loop {
        let exchanged = store
            .exchange(worker, reports, Some(want(jobs_max)))
            .await
            .expect("the exchange holds");
        let Some(lease) = exchanged.lease else { break };
        jobs += u64::from(lease.jobs());
        reports = lease.slices.into_iter().map(completed).collect();
    }
    (jobs, started.elapsed())
}

/// Submits a job in each of this many groups, a thousand per submit.
async fn fill_lanes(store: &SqliteStore, lanes: u32) {
    let payload = payloads(1);
    for first in (0..lanes).step_by(1_000) {
        let batches = (first..lanes.min(first + 1_000)).map(|lane| {
            let mut batch = NewBatch::new("no-op", payload.clone());
            batch.options.group = Some(format!("tenant {lane}"));
            batch
        });
        store
            .submit(batches.collect(), None)
            .await
            .expect("the submit holds");
    }
}

fn submit_lanes(path: &Path, lanes: u32) -> (u64, Duration) {
    runtime().block_on(async {
        let store = open(path, Synchronous::Normal);
        let started = Instant::now();
        fill_lanes(&store, lanes).await;
        (u64::from(lanes), started.elapsed())
    })
}

/// Claims in another process than the submitting one, which first reads the lanes.
fn claim_lanes(path: &Path, lanes: u32) -> (u64, Duration) {
    runtime().block_on(async {
        fill_lanes(&open(path, Synchronous::Normal), lanes).await;
        drain(&open(path, Synchronous::Normal), 1_000).await
    })
}

fn completed(slice: gristmill_model::LeasedSlice) -> Report {
    let count = slice.len();
    Report {
        completed: Some(Completed {
            positions: slice.positions,
            values: PackedArray::repeat("null", count).expect("null is JSON"),
            durations_us: vec![1; count as usize],
        }),
        ..Report::new(slice.lease, slice.batch, slice.attempt)
    }
}

async fn register(store: &SqliteStore) -> gristmill_model::WorkerId {
    let worker = NewWorker {
        name: "bench".to_owned(),
        host: "here".to_owned(),
        process_id: 1,
        process_started: String::new(),
        queues: Vec::new(),
        kinds: Vec::new(),
    };
    store.register_worker(worker).await.expect("the worker registers")
}

fn want(jobs_max: u32) -> Want {
    Want {
        jobs_max,
        queues: vec![Arc::from("default")],
        kinds: Vec::new(),
        priority_min: None,
    }
}

fn singles(path: &Path, callers: u32, jobs: u32, synchronous: Synchronous) -> (u64, Duration) {
    runtime().block_on(async {
        let store = open(path, synchronous);
        let payload = payloads(1);
        let started = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..callers {
            let (store, payload) = (store.clone(), payload.clone());
            tasks.spawn(async move {
                for _ in 0..jobs / callers {
                    let job = NewBatch::new("no-op", payload.clone());
                    store.submit_one(job).await.expect("the submit holds");
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("no task panics");
        }
        (u64::from(jobs / callers * callers), started.elapsed())
    })
}

fn exchange_one(path: &Path) -> (u64, Duration) {
    const JOBS: u32 = 5_000;
    singles(path, 1, JOBS, Synchronous::Normal);
    runtime().block_on(async {
        let store = open(path, Synchronous::Normal);
        let worker = register(&store).await;
        let started = Instant::now();
        for _ in 0..JOBS {
            let exchanged = store.exchange(worker, Vec::new(), Some(want(1))).await;
            assert_eq!(
                exchanged
                    .expect("the exchange holds")
                    .lease
                    .map_or(0, |lease| lease.jobs()),
                1
            );
        }
        (u64::from(JOBS), started.elapsed())
    })
}

// --- a row a job, as plain as it can be, on the same disk ---

fn open_bare(path: &Path, synchronous: &str) -> Connection {
    let connection = Connection::open(path).expect("the database opens");
    connection
        .pragma_update(None, "journal_mode", "WAL")
        .expect("the pragma holds");
    connection
        .pragma_update(None, "synchronous", synchronous)
        .expect("the pragma holds");
    connection
        .execute_batch(
            "CREATE TABLE job (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, run_at INTEGER NOT NULL, \
             payload TEXT NOT NULL, value TEXT); CREATE INDEX job_ready ON job (run_at, id) WHERE state = 0",
        )
        .expect("the table is made");
    connection
}

fn bare_insert(connection: &mut Connection, jobs: u32, jobs_per_transaction: u32) {
    for _ in 0..jobs / jobs_per_transaction {
        let transaction = connection.transaction().expect("the transaction begins");
        {
            let mut insert = transaction
                .prepare_cached("INSERT INTO job (state, run_at, payload) VALUES (0, ?1, ?2)")
                .expect("the statement is right");
            for number in 0..jobs_per_transaction {
                insert
                    .execute(params![1, payload(number)])
                    .expect("the row is inserted");
            }
        }
        transaction.commit().expect("the transaction commits");
    }
}

const BARE_JOBS: u32 = 200_000;

fn bare_submit(path: &Path) -> (u64, Duration) {
    let mut connection = open_bare(path, "FULL");
    let started = Instant::now();
    bare_insert(&mut connection, BARE_JOBS, JOBS_PER_BATCH);
    (u64::from(BARE_JOBS), started.elapsed())
}

fn bare_single(path: &Path) -> (u64, Duration) {
    let mut connection = open_bare(path, "NORMAL");
    let started = Instant::now();
    bare_insert(&mut connection, 20_000, 1);
    (20_000, started.elapsed())
}

fn bare_claim(path: &Path) -> (u64, Duration) {
    let mut connection = open_bare(path, "FULL");
    bare_insert(&mut connection, BARE_JOBS, JOBS_PER_BATCH);
    let started = Instant::now();
    let mut claimed = 0;
    while claimed < u64::from(BARE_JOBS) {
        let claim = connection.transaction().expect("the transaction begins");
        let ids: Vec<i64> = {
            let mut statement = claim
                .prepare_cached(
                    "UPDATE job SET state = 1 WHERE id IN (SELECT id FROM job WHERE state = 0 AND run_at <= 1 \
                     ORDER BY run_at, id LIMIT 1000) RETURNING id, payload",
                )
                .expect("the statement is right");
            let rows = statement.query_map([], |row| {
                row.get::<_, String>(1)?;
                row.get(0)
            });
            rows.expect("the query runs")
                .map(|id| id.expect("the row is read"))
                .collect()
        };
        claim.commit().expect("the transaction commits");
        let commit = connection.transaction().expect("the transaction begins");
        {
            let mut statement = commit
                .prepare_cached("UPDATE job SET state = 2, value = 'null' WHERE id = ?1")
                .expect("the statement is right");
            for id in &ids {
                statement.execute([id]).expect("the row is changed");
            }
        }
        commit.commit().expect("the transaction commits");
        claimed += ids.len() as u64;
    }
    (claimed, started.elapsed())
}
