//! Measures the speed of the PostgreSQL store: `cargo bench -p gristmill-store-postgres --bench postgres`.
//!
//! It starts a private server with fsync on, below `TMPDIR`. Each figure stands next to a floor that the same run
//! measured: the plainest SQL that moves the same bytes with as many syncs. The figures are medians of `ROUNDS` rounds,
//! after a warm-up. `ONLY` names a part: submit, drain, single, sql, latency, depth or lanes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_model::{Completed, LeasedSlice, NewBatch, PackedArray, Positions, Report, WorkerId};
use gristmill_private_postgres::PrivatePostgres;
use gristmill_store::{JobFilter, NewWorker, Store, Want, WorkSeen};
use gristmill_store_postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::{Client, NoTls};

const JOBS_PER_BATCH: u32 = 1_000;
const ROUNDS: usize = 5;

fn main() {
    let settings = [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("shared_buffers", "1GB"),
        ("max_wal_size", "8GB"),
    ];
    let server = PrivatePostgres::start(&settings).expect("a private server");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let only = std::env::var("ONLY").ok();
        let is_wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
        if is_wanted("submit") {
            bulk_submit(&server).await;
        }
        if is_wanted("drain") {
            drain(&server).await;
        }
        if is_wanted("single") {
            single_submits(&server, 1, 1_000).await;
            single_submits(&server, 50, 200).await;
        }
        if is_wanted("sql") {
            small_exchanges(&server).await;
        }
        if is_wanted("latency") {
            latencies(&server).await;
        }
        if is_wanted("depth") {
            depth(&server).await;
        }
        if is_wanted("lanes") {
            lanes(&server).await;
        }
    });
}

async fn open(url: &str) -> Arc<PostgresStore> {
    let store = PostgresStore::open(url, PostgresOptions::default()).await;
    Arc::new(store.expect("a store"))
}

async fn raw(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// `count` different payloads of a hundred bytes.
fn payloads(count: u32, seed: u32) -> PackedArray {
    let items: Vec<String> = (0..count)
        .map(|number| format!("\"{:0>98}\"", u64::from(seed) * 1_000_003 + u64::from(number)))
        .collect();
    PackedArray::parse(&format!("[{}]", items.join(","))).expect("JSON")
}

fn want(jobs_max: u32) -> Want {
    Want {
        jobs_max,
        queues: vec![Arc::from("default")],
        kinds: Vec::new(),
        priority_min: None,
    }
}

async fn register(store: &dyn Store) -> WorkerId {
    let worker = NewWorker {
        name: "bench".to_owned(),
        host: "here".to_owned(),
        process_id: 1,
        process_started: "boot:1".to_owned(),
        queues: Vec::new(),
        kinds: Vec::new(),
    };
    store.register_worker(worker).await.expect("a worker")
}

fn completed(slice: &LeasedSlice) -> Report {
    Report {
        completed: Some(Completed {
            positions: slice.positions.clone(),
            values: slice.payloads.clone(),
            durations_us: vec![0; slice.len() as usize],
        }),
        ..Report::new(slice.lease, slice.batch, slice.attempt)
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let index = (sorted.len() * percent / 100).min(sorted.len() - 1);
    sorted[index].as_secs_f64() * 1e3
}

fn show(what: &str, figure: f64, unit: &str, floor: f64) {
    println!(
        "{what:<44} {figure:>12.0} {unit:<8} floor {floor:>12.0}   ratio {:.2}",
        figure / floor
    );
}

/// Four callers submit batches of a thousand.
async fn bulk_submit(server: &PrivatePostgres) {
    const CALLERS: u32 = 4;
    const BATCHES: u32 = 60;
    let url = server.create_database().expect("a database");
    let store = open(&url).await;
    let client = raw(&url).await;
    client
        .batch_execute("CREATE TABLE raw (id bigserial PRIMARY KEY, payloads text COMPRESSION lz4)")
        .await
        .expect("a table");
    let packs: Vec<PackedArray> = (0..8).map(|seed| payloads(JOBS_PER_BATCH, seed)).collect();
    let jobs = f64::from(CALLERS * BATCHES * JOBS_PER_BATCH);
    let (mut figures, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..=ROUNDS {
        let began = Instant::now();
        let callers = (0..CALLERS).map(|_| {
            let (store, packs) = (store.clone(), packs.clone());
            tokio::spawn(async move {
                for number in 0..BATCHES as usize {
                    let new = NewBatch::new("work", packs[number % packs.len()].clone());
                    store.submit(vec![new], None).await.expect("submitted");
                }
            })
        });
        futures::future::join_all(callers.collect::<Vec<_>>()).await;
        figures.push(jobs / began.elapsed().as_secs_f64());

        let began = Instant::now();
        let mut clients = Vec::new();
        for _ in 0..CALLERS {
            clients.push(raw(&url).await);
        }
        let callers = clients.into_iter().map(|client| {
            let packs = packs.clone();
            tokio::spawn(async move {
                let statement = client
                    .prepare("INSERT INTO raw (payloads) VALUES ($1)")
                    .await
                    .expect("prepared");
                for number in 0..BATCHES as usize {
                    let pack = packs[number % packs.len()].as_str();
                    client.execute(&statement, &[&pack]).await.expect("inserted");
                }
            })
        });
        futures::future::join_all(callers.collect::<Vec<_>>()).await;
        floors.push(jobs / began.elapsed().as_secs_f64());
    }
    show(
        "bulk submit, 4 callers, 1,000 a batch",
        median(figures.split_off(1)),
        "jobs/s",
        median(floors.split_off(1)),
    );
}

/// One worker drains the store, and sends the next exchange while the last outcomes are made.
async fn drain(server: &PrivatePostgres) {
    const BATCHES: u32 = 300;
    let url = server.create_database().expect("a database");
    let store = open(&url).await;
    let client = raw(&url).await;
    client
        .batch_execute("CREATE TABLE raw (id bigserial PRIMARY KEY, \"values\" text COMPRESSION lz4)")
        .await
        .expect("a table");
    let worker = register(&*store).await;
    let packs: Vec<PackedArray> = (0..8).map(|seed| payloads(JOBS_PER_BATCH, seed)).collect();
    let jobs = f64::from(BATCHES * JOBS_PER_BATCH);
    let (mut figures, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..=ROUNDS {
        let batches =
            (0..BATCHES as usize).map(|number| NewBatch::new("work", packs[number % packs.len()].clone()));
        for part in batches.collect::<Vec<_>>().chunks(30) {
            store.submit(part.to_vec(), None).await.expect("submitted");
        }
        // Usually another process claims, which does not have the payloads in memory.
        let store = open(&url).await;
        let began = Instant::now();
        let (mut reports, mut done) = (Vec::new(), 0);
        let mut under_way = Box::pin(exchange(store.clone(), worker, Vec::new(), 4_000));
        while f64::from(done) < jobs {
            // One exchange carries reports while the jobs of the other run.
            let claimed = under_way.await;
            under_way = Box::pin(exchange(
                store.clone(),
                worker,
                std::mem::take(&mut reports),
                4_000,
            ));
            futures::future::poll_immediate(&mut under_way).await;
            for slice in &claimed {
                done += slice.len();
                reports.push(completed(slice));
            }
        }
        under_way.await;
        exchange(store.clone(), worker, reports, 0).await;
        figures.push(jobs / began.elapsed().as_secs_f64());
        let counts = store.counts(&JobFilter::default()).await.expect("counts");
        assert_eq!(counts.waiting + counts.running, 0);

        let statement = client
            .prepare("INSERT INTO raw (\"values\") SELECT unnest($1::text[])")
            .await
            .expect("prepared");
        let began = Instant::now();
        for number in 0..(BATCHES / 4) as usize {
            let texts: Vec<&str> = (0..4)
                .map(|part| packs[(number + part) % packs.len()].as_str())
                .collect();
            client.execute(&statement, &[&texts]).await.expect("inserted");
        }
        floors.push(jobs / began.elapsed().as_secs_f64());
    }
    show(
        "drain, one worker, 4,000 a claim",
        median(figures.split_off(1)),
        "jobs/s",
        median(floors.split_off(1)),
    );
}

async fn exchange(
    store: Arc<PostgresStore>,
    worker: WorkerId,
    reports: Vec<Report>,
    jobs: u32,
) -> Vec<LeasedSlice> {
    let count = reports.len();
    let exchanged = store
        .exchange(worker, reports, Some(want(jobs)))
        .await
        .expect("exchanged");
    assert_eq!(
        exchanged
            .receipts
            .iter()
            .filter(|receipt| receipt.refused.is_empty())
            .count(),
        count
    );
    exchanged.lease.map(|lease| lease.slices).unwrap_or_default()
}

/// Callers submit one job after the other.
async fn single_submits(server: &PrivatePostgres, callers: u32, each: u32) {
    let url = server.create_database().expect("a database");
    let store = open(&url).await;
    let client = raw(&url).await;
    client
        .batch_execute("CREATE TABLE raw (id bigserial PRIMARY KEY, payload text)")
        .await
        .expect("a table");
    let single = NewBatch::new("work", payloads(1, 7));
    let jobs = f64::from(callers * each);
    let (mut figures, mut floors) = (Vec::new(), Vec::new());
    let mut clients = Vec::new();
    for _ in 0..callers {
        clients.push(Arc::new(raw(&url).await));
    }
    for _ in 0..=ROUNDS {
        let began = Instant::now();
        let all = (0..callers).map(|_| {
            let (store, single) = (store.clone(), single.clone());
            tokio::spawn(async move {
                for _ in 0..each {
                    store.submit_one(single.clone()).await.expect("submitted");
                }
            })
        });
        futures::future::join_all(all.collect::<Vec<_>>()).await;
        figures.push(jobs / began.elapsed().as_secs_f64());
        let began = Instant::now();
        let all = clients.iter().map(|client| {
            let (client, single) = (client.clone(), single.clone());
            tokio::spawn(async move {
                let statement = client
                    .prepare("INSERT INTO raw (payload) VALUES ($1)")
                    .await
                    .expect("prepared");
                for _ in 0..each {
                    client
                        .execute(&statement, &[&single.payloads.as_str()])
                        .await
                        .expect("inserted");
                }
            })
        });
        futures::future::join_all(all.collect::<Vec<_>>()).await;
        floors.push(jobs / began.elapsed().as_secs_f64());
    }
    let what = format!("single submits, {callers} callers");
    show(
        &what,
        median(figures.split_off(1)),
        "jobs/s",
        median(floors.split_off(1)),
    );
}

/// Measures a claim of 100 jobs and a commit of 50, each alone.
async fn small_exchanges(server: &PrivatePostgres) {
    let url = server.create_database().expect("a database");
    let store = open(&url).await;
    let worker = register(&*store).await;
    let client = raw(&url).await;
    client
        .batch_execute("CREATE TABLE raw (id bigserial PRIMARY KEY, \"values\" text)")
        .await
        .expect("a table");
    for seed in 0..100 {
        store
            .submit(vec![NewBatch::new("work", payloads(JOBS_PER_BATCH, seed))], None)
            .await
            .expect("submitted");
    }
    let (mut claims, mut commits, mut floors) = (Vec::new(), Vec::new(), Vec::new());
    let statement = client
        .prepare("INSERT INTO raw (\"values\") VALUES ($1)")
        .await
        .expect("prepared");
    let text = payloads(50, 1);
    for _ in 0..500 {
        let began = Instant::now();
        let lease = store
            .exchange(worker, Vec::new(), Some(want(100)))
            .await
            .expect("claimed")
            .lease
            .expect("jobs");
        claims.push(began.elapsed());
        let slice = &lease.slices[0];
        let mut second = slice.positions.clone();
        let first = second.take_first(50);
        for (positions, places) in [(first, 0..50), (second, 50..100)] {
            let part = LeasedSlice {
                payloads: slice.payloads.select(&Positions::from(places)),
                positions,
                ..slice.clone()
            };
            let report = completed(&part);
            let began = Instant::now();
            store
                .exchange(worker, vec![report], None)
                .await
                .expect("committed");
            commits.push(began.elapsed());
        }
        let began = Instant::now();
        client
            .execute(&statement, &[&text.as_str()])
            .await
            .expect("inserted");
        floors.push(began.elapsed());
    }
    for (what, figures) in [
        ("claim of 100", &mut claims),
        ("commit of 50", &mut commits),
        ("floor: one raw INSERT", &mut floors),
    ] {
        figures.drain(..figures.len() / 5);
        figures.sort_unstable();
        println!(
            "{what:<44} p50 {:>7.3} ms   p99 {:>7.3} ms",
            percentile(figures, 50),
            percentile(figures, 99)
        );
    }
}

/// How a worker learns of a submit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Its own handle wakes it.
    Woken,
    /// The submit claims for it.
    HandedOver,
    /// Another handle submits.
    Notified,
}

/// Measures the time from a submit to its job's start, fifty times a second, in turn with the insert of a bare row.
async fn latencies(server: &PrivatePostgres) {
    let measurements = [
        ("submit to start, another handle", Told::Notified),
        ("submit to start, the same handle, woken", Told::Woken),
        ("submit to start, the same handle, handed over", Told::HandedOver),
    ];
    let mut all: Vec<Vec<Duration>> = vec![Vec::new(); measurements.len() + 1];
    for _ in 0..3 {
        for (number, (_, told)) in measurements.iter().enumerate() {
            all[number].extend(latency(server, *told).await);
        }
        all[measurements.len()].extend(bare_latency(server).await);
    }
    let names = measurements.iter().map(|(name, _)| *name);
    for (name, mut found) in names.chain(["floor: one raw INSERT"]).zip(all) {
        found.sort_unstable();
        println!(
            "{name:<46} p50 {:>7.3} ms   p99 {:>7.3} ms",
            percentile(&found, 50),
            percentile(&found, 99)
        );
    }
}

/// Jobs in one measurement of latency; the first ones are a warm-up.
const LATENCY_JOBS: u32 = 220;
const LATENCY_WARM_UP_JOBS: usize = 20;

async fn latency(server: &PrivatePostgres, told: Told) -> Vec<Duration> {
    let url = server.create_database().expect("a database");
    let store = open(&url).await;
    let working = match told {
        Told::Notified => open(&url).await,
        Told::Woken | Told::HandedOver => store.clone(),
    };
    let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let work = tokio::spawn(async move {
        let worker = register(&*working).await;
        let (seen, mut reports, mut handed) = (WorkSeen::default(), Vec::new(), None);
        loop {
            let slices = match handed.take() {
                Some(slices) => slices,
                None => exchange(working.clone(), worker, std::mem::take(&mut reports), 100).await,
            };
            for slice in &slices {
                if started.send(Instant::now()).is_err() {
                    return;
                }
                reports.push(completed(slice));
            }
            if slices.is_empty() && told == Told::HandedOver {
                let exchanged = working.wait_for_claim(worker, want(100), &seen).await;
                let lease = exchanged.and_then(|exchanged| exchanged.lease);
                handed = lease.map(|lease| lease.slices);
            } else if slices.is_empty() {
                working.wait_for_work(&seen).await;
            }
        }
    });
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let mut latencies = Vec::new();
    for number in 0..LATENCY_JOBS {
        ticks.tick().await;
        let began = Instant::now();
        store
            .submit_one(NewBatch::new("work", payloads(1, number)))
            .await
            .expect("submitted");
        let start = starts.recv().await.expect("a start");
        latencies.push(start.duration_since(began));
    }
    work.abort();
    latencies.split_off(LATENCY_WARM_UP_JOBS)
}

async fn bare_latency(server: &PrivatePostgres) -> Vec<Duration> {
    let url = server.create_database().expect("a database");
    let client = raw(&url).await;
    let table = "CREATE TABLE raw (id bigserial PRIMARY KEY, payload text)";
    client.batch_execute(table).await.expect("a table");
    let statement = client
        .prepare("INSERT INTO raw (payload) VALUES ($1)")
        .await
        .expect("prepared");
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let mut latencies = Vec::new();
    for number in 0..LATENCY_JOBS {
        ticks.tick().await;
        let began = Instant::now();
        let payload = payloads(1, number);
        client
            .execute(&statement, &[&payload.as_str()])
            .await
            .expect("inserted");
        latencies.push(began.elapsed());
    }
    latencies.split_off(LATENCY_WARM_UP_JOBS)
}

/// Measures claims of 100 jobs while few and while many wait, in turn: first after the checkpoint and the vacuum that
/// loading causes, then with dead rows at the head.
async fn depth(server: &PrivatePostgres) {
    let little = filled(server, 10, 1_000).await;
    for (what, batches, jobs) in [
        ("10,000,000 waiting, batches of 1,000", 10_000, 1_000),
        ("1,000,000 waiting, one job each", 1_000_000, 1),
    ] {
        let much = filled(server, batches, jobs).await;
        let few = match jobs {
            1 => filled(server, 10_000, 1).await,
            _ => little.clone(),
        };
        for url in [&few, &much] {
            settle(url).await;
        }
        // Handles that have not submitted do not have the payloads in memory.
        let (few, much) = (open(&few).await, open(&much).await);
        let workers = (register(&*few).await, register(&*much).await);
        let (mut of_few, mut of_much) = (Vec::new(), Vec::new());
        for _ in 0..90 {
            of_few.push(timed_claim(&few, workers.0).await);
            of_much.push(timed_claim(&much, workers.1).await);
        }
        for claims in [&mut of_few, &mut of_much] {
            claims.drain(..10);
            claims.sort_unstable();
        }
        println!(
            "claim of 100: {what:<36} p50 {:>7.3} ms   p99 {:>7.3} ms   with 10,000 p50 {:>7.3} ms   ratio {:.2}",
            percentile(&of_much, 50),
            percentile(&of_much, 99),
            percentile(&of_few, 50),
            percentile(&of_much, 50) / percentile(&of_few, 50),
        );
        // Nothing vacuums, so dead rows of all claimed jobs lie before the waiting ones.
        for _ in 0..20 {
            much.exchange(workers.1, Vec::new(), Some(want(10_000)))
                .await
                .expect("claimed");
        }
        let mut claims = Vec::new();
        for _ in 0..90 {
            claims.push(timed_claim(&much, workers.1).await);
        }
        claims.drain(..10);
        claims.sort_unstable();
        println!(
            "  the same with dead rows at the head              p50 {:>7.3} ms   p99 {:>7.3} ms",
            percentile(&claims, 50),
            percentile(&claims, 99)
        );
    }
}

/// Batches of one job, spread over the lanes where there are fewer lanes.
const LANE_BATCHES: usize = 12_000;

/// Measures claims of 100 jobs while all lanes have jobs, and while one of them has. Then drains the rest, 1,000 jobs a
/// claim.
async fn lanes(server: &PrivatePostgres) {
    let mut few = None;
    for lanes in [10, 1_000, 10_000, 100_000] {
        for are_busy in [true, false] {
            let url = server.create_database().expect("a database");
            let batches = if are_busy {
                lanes.max(LANE_BATCHES)
            } else {
                LANE_BATCHES
            };
            let began = Instant::now();
            fill_lanes(&url, batches, if are_busy { lanes } else { 0 }).await;
            let filled = batches as f64 / began.elapsed().as_secs_f64();
            if !are_busy {
                let add = format!(
                    "INSERT INTO gristmill.lane (id, queue, kind, job_group) \
                     SELECT 1 + g, 'default', 'work', 'tenant ' || g FROM generate_series(1, {lanes}) g"
                );
                raw(&url).await.batch_execute(&add).await.expect("lanes");
            }
            settle(&url).await;
            let store = open(&url).await;
            let worker = register(&*store).await;
            let mut claims = Vec::new();
            for _ in 0..90 {
                claims.push(timed_claim(&store, worker).await);
            }
            claims.drain(..10);
            claims.sort_unstable();
            let (began, mut drained, mut reports) = (Instant::now(), 0, Vec::new());
            loop {
                let claimed = exchange(store.clone(), worker, reports, 1_000).await;
                if claimed.is_empty() {
                    break;
                }
                drained += claimed.len();
                reports = claimed.iter().map(completed).collect();
            }
            let drain = drained as f64 / began.elapsed().as_secs_f64();
            let few = *few.get_or_insert_with(|| percentile(&claims, 50));
            println!(
                "claim of 100: {lanes:>7} lanes, jobs in {}  p50 {:>8.3} ms  p99 {:>8.3} ms  ratio to 10 {:>5.2}  \
                 submit {filled:>6.0} jobs/s  drain {drain:>6.0} jobs/s",
                if are_busy { "all" } else { "one" },
                percentile(&claims, 50),
                percentile(&claims, 99),
                percentile(&claims, 50) / few,
            );
        }
    }
}

/// Stores batches of one job, in turn in `groups` groups, or in none where that is 0.
async fn fill_lanes(url: &str, batches: usize, groups: usize) {
    let store = open(url).await;
    let pack = payloads(1, 1);
    for first in (0..batches).step_by(2_000) {
        let part = (first..batches.min(first + 2_000)).map(|number| {
            let mut batch = NewBatch::new("work", pack.clone());
            batch.options.group = (groups > 0).then(|| format!("tenant {}", number % groups));
            batch
        });
        store.submit(part.collect(), None).await.expect("submitted");
    }
    store.close().await.expect("closed");
}

/// Makes a database in which this many batches wait.
async fn filled(server: &PrivatePostgres, batches: usize, jobs: u32) -> String {
    let url = server.create_database().expect("a database");
    let store = open(&url).await;
    let pack = payloads(jobs, 1);
    let batches_per_submit = if jobs == 1 { 2_000 } else { 50 }.min(batches);
    for _ in 0..batches / batches_per_submit {
        let part = vec![NewBatch::new("work", pack.clone()); batches_per_submit];
        store.submit(part, None).await.expect("submitted");
    }
    store.close().await.expect("closed");
    url
}

/// Runs the vacuum and the checkpoint, which the server otherwise does in its own time after many writes.
async fn settle(url: &str) {
    let client = raw(url).await;
    for command in ["VACUUM (ANALYZE)", "CHECKPOINT"] {
        client.batch_execute(command).await.expect(command);
    }
    let vacuums = "SELECT count(*) FROM pg_stat_progress_vacuum";
    let under_way = async || -> i64 {
        let row = client.query_one(vacuums, &[]).await.expect("counted");
        row.get(0)
    };
    while under_way().await > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn timed_claim(store: &PostgresStore, worker: WorkerId) -> Duration {
    let began = Instant::now();
    let exchanged = store
        .exchange(worker, Vec::new(), Some(want(100)))
        .await
        .expect("claimed");
    let took = began.elapsed();
    assert_eq!(exchanged.lease.expect("jobs").jobs(), 100);
    took
}
