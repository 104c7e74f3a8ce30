//! Measures what the storage settings of the PostgreSQL store cost and save: `cargo bench -p gristmill-store-postgres
//! --bench storage`.
//!
//! It prints two tables. The first compares ways to store the long columns (payloads, values): their sizes on disk, and
//! the speed of submits and of whole jobs. The second compares how much space pages of `slice` and `held` leave for
//! updates, and how soon they are vacuumed: sizes and dead rows after each slice was claimed in ten parts, and the
//! speed. Each figure is the median of several rounds, in which the settings take turns, after a warm-up. The server is
//! private, with fsync on, below `TMPDIR`; `ROUNDS` sets the number of rounds.

use std::time::{Duration, Instant};

use gristmill_model::{Completed, NewBatch, PackedArray, PackedBuilder, Report, Rng, SplitMix64, WorkerId};
use gristmill_private_postgres::PrivatePostgres;
use gristmill_store::{NewWorker, Store, StoreStats, Want};
use gristmill_store_postgres::{PostgresOptions, PostgresStore};

const JOBS_PER_BATCH: u32 = 1_000;
/// Batches of the comparison of storage.
const BATCHES: u32 = 300;
/// Batches of the comparison of pages, each claimed in parts.
const BATCHES_IN_PARTS: u32 = 200;
const PARTS: u32 = 10;

const STORAGE: [(&str, &str); 4] = [
    (
        "pglz, out of line",
        "SET STORAGE EXTENDED, ALTER COLUMN {} SET COMPRESSION pglz",
    ),
    (
        "lz4, out of line",
        "SET STORAGE EXTENDED, ALTER COLUMN {} SET COMPRESSION lz4",
    ),
    ("plain, out of line", "SET STORAGE EXTERNAL"),
    (
        "lz4, in line where it fits",
        "SET STORAGE MAIN, ALTER COLUMN {} SET COMPRESSION lz4",
    ),
];

const PAGES: [(&str, &str); 4] = [
    ("PostgreSQL's defaults", ""),
    ("fillfactor 80, default vacuum", "fillfactor = 80"),
    (
        "fillfactor 80, early vacuum",
        "fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0",
    ),
    (
        "fillfactor 50, early vacuum",
        "fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0",
    ),
];

/// The results of one setting in one round.
struct Measured {
    submit: Duration,
    work: Duration,
    stats: StoreStats,
}

fn main() {
    let rounds: usize =
        std::env::var("ROUNDS").map_or(5, |rounds| rounds.parse().expect("ROUNDS is a number"));
    // Vacuum looks every second instead of every minute, because the rounds are short.
    let server = PrivatePostgres::start(&[
        ("fsync", "on"),
        ("autovacuum_naptime", "1s"),
        ("shared_buffers", "512MB"),
    ])
    .expect("PostgreSQL starts");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the runtime starts");
    println!(
        "{:<28} {:>14} {:>14} {:>10} {:>10}",
        "long columns", "submit jobs/s", "drain jobs/s", "batch MB", "report MB"
    );
    let all = take_turns(rounds, STORAGE.len(), |setting| {
        runtime.block_on(measure(
            &server,
            BATCHES,
            JOBS_PER_BATCH,
            &storage_sql(STORAGE[setting].1),
        ))
    });
    for ((name, _), measured) in STORAGE.iter().zip(&all) {
        let jobs = f64::from(BATCHES * JOBS_PER_BATCH);
        println!(
            "{name:<28} {:>14.0} {:>14.0} {:>10.1} {:>10.1}",
            median(measured, |one| jobs / one.submit.as_secs_f64()),
            median(measured, |one| jobs / one.work.as_secs_f64()),
            median(measured, |one| megabytes(&one.stats, "batch")),
            median(measured, |one| megabytes(&one.stats, "report")),
        );
    }
    println!(
        "\n{:<32} {:>14} {:>10} {:>10} {:>10}",
        "pages of slice and held", "drain jobs/s", "slice MB", "held MB", "dead rows"
    );
    let all = take_turns(rounds, PAGES.len(), |setting| {
        runtime.block_on(measure(
            &server,
            BATCHES_IN_PARTS,
            JOBS_PER_BATCH / PARTS,
            &pages_sql(PAGES[setting].1),
        ))
    });
    for ((name, _), measured) in PAGES.iter().zip(&all) {
        let jobs = f64::from(BATCHES_IN_PARTS * JOBS_PER_BATCH);
        let dead = |stats: &StoreStats| {
            let hot = stats
                .tables
                .iter()
                .filter(|size| ["slice", "held"].contains(&&*size.table));
            hot.map(|size| size.rows_dead).sum::<u64>() as f64
        };
        println!(
            "{name:<32} {:>14.0} {:>10.2} {:>10.2} {:>10.0}",
            median(measured, |one| jobs / one.work.as_secs_f64()),
            median(measured, |one| megabytes(&one.stats, "slice")),
            median(measured, |one| megabytes(&one.stats, "held")),
            median(measured, |one| dead(&one.stats)),
        );
    }
}

fn storage_sql(setting: &str) -> String {
    let columns = [
        ("batch", "payloads"),
        ("report", "\"values\""),
        ("report", "durations"),
    ];
    let statements = columns.map(|(table, column)| {
        format!(
            "ALTER TABLE gristmill.{table} ALTER COLUMN {column} {};",
            setting.replace("{}", column)
        )
    });
    statements.concat()
}

fn pages_sql(setting: &str) -> String {
    let names = "fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay";
    let statements = ["slice", "held"].map(|table| {
        let set = match setting {
            "" => String::new(),
            _ => format!("ALTER TABLE gristmill.{table} SET ({setting});"),
        };
        format!("ALTER TABLE gristmill.{table} RESET ({names});{set}")
    });
    statements.concat()
}

/// Measures each setting once a round; the first round is a warm-up.
fn take_turns(
    rounds: usize,
    settings: usize,
    mut measure: impl FnMut(usize) -> Measured,
) -> Vec<Vec<Measured>> {
    let mut all: Vec<Vec<Measured>> = (0..settings).map(|_| Vec::new()).collect();
    for round in 0..=rounds {
        for (setting, measured) in all.iter_mut().enumerate() {
            let one = measure(setting);
            if round > 0 {
                measured.push(one);
            }
        }
    }
    all
}

fn median(measured: &[Measured], figure: impl Fn(&Measured) -> f64) -> f64 {
    let mut figures: Vec<f64> = measured.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn megabytes(stats: &StoreStats, table: &str) -> f64 {
    let sizes = stats.tables.iter().filter(|size| size.table == table);
    sizes.map(|size| size.row_bytes + size.index_bytes).sum::<u64>() as f64 / 1e6
}

/// Submits batches to a fresh store with a setting. Then one worker takes and answers `jobs_per_claim` jobs at a time
/// until none are left.
async fn measure(server: &PrivatePostgres, batches: u32, jobs_per_claim: u32, setting: &str) -> Measured {
    let url = server.create_database().expect("a database is made");
    let store = PostgresStore::open(&url, PostgresOptions::default())
        .await
        .expect("the store opens");
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .expect("it connects");
    let connection = tokio::spawn(connection);
    client.batch_execute(setting).await.expect("the setting is one");
    let mut rng = SplitMix64::new(1);
    let packed: Vec<PackedArray> = (0..batches).map(|_| payloads(&mut rng)).collect();
    let began = Instant::now();
    for payloads in packed {
        store
            .submit(vec![NewBatch::new("work", payloads)], None)
            .await
            .expect("it is stored");
    }
    let submit = began.elapsed();
    let worker = register(&store).await;
    let began = Instant::now();
    work(&store, worker, jobs_per_claim).await;
    let work = began.elapsed();
    let stats = store.stats().await.expect("there are totals");
    store.close().await.expect("it closes");
    drop(client);
    connection
        .await
        .expect("the connection ends")
        .expect("without an error");
    let database = url
        .trim_start_matches("postgresql:///")
        .split('?')
        .next()
        .unwrap_or_default();
    server
        .psql("postgres", &format!("DROP DATABASE {database} WITH (FORCE)"))
        .expect("the database is dropped");
    Measured { submit, work, stats }
}

/// Payloads of about 100 bytes, of which half is noise.
fn payloads(rng: &mut SplitMix64) -> PackedArray {
    let mut builder = PackedBuilder::new();
    for _ in 0..JOBS_PER_BATCH {
        let text = format!(
            "{{\"url\":\"https://example.org/pictures/{:016x}{:016x}.png\",\"width\":{},\"tags\":[\"new\"]}}",
            rng.next_u64(),
            rng.next_u64(),
            rng.below(4_000)
        );
        builder.push(&text).expect("the payload is JSON");
    }
    builder.finish()
}

async fn register(store: &PostgresStore) -> WorkerId {
    let worker = NewWorker {
        name: "bench".to_owned(),
        host: "here".to_owned(),
        process_id: std::process::id(),
        process_started: String::new(),
        queues: Vec::new(),
        kinds: Vec::new(),
    };
    store.register_worker(worker).await.expect("it is registered")
}

async fn work(store: &PostgresStore, worker: WorkerId, jobs_max: u32) {
    let want = Want {
        jobs_max,
        queues: vec!["default".into()],
        kinds: Vec::new(),
        priority_min: None,
    };
    let mut reports = Vec::new();
    loop {
        let exchanged = store
            .exchange(worker, std::mem::take(&mut reports), Some(want.clone()))
            .await
            .expect("it is committed and claimed");
        let Some(lease) = exchanged.lease else { break };
        reports.extend(lease.slices.into_iter().map(|slice| {
            let durations_us = vec![100; slice.positions.len() as usize];
            Report {
                completed: Some(Completed {
                    positions: slice.positions,
                    values: slice.payloads,
                    durations_us,
                }),
                ..Report::new(slice.lease, slice.batch, slice.attempt)
            }
        }));
    }
}
