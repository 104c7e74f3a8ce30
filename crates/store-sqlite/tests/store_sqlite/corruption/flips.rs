//! Flips random bits in files. No file may give a wrong value, hang or panic.
//!
//! `GRISTMILL_FLIPPED_FILES` sets the number of files, and `GRISTMILL_FLIP_SEED` the seed of the first.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gristmill_model::{
    BatchId, JobState, KeyedBatch, LeasedSlice, NewBatch, PackedArray, PackedBuilder, Rng, SplitMix64,
    SystemClock, Tag, Unique, WorkerId,
};
use gristmill_store::{CheckPlace, JobFilter, Page, Store, StoreError};
use gristmill_store_conformance::fixture::{completed, error, failed_at, want, worker};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore, Synchronous};

/// Files that `make test` tries.
const FILES: u64 = 60;

/// Flips in each file.
const FLIPS: u64 = 3;

/// Batches of a file, and the jobs of each.
const BATCHES: i64 = 40;
const JOBS: u32 = 20;

/// The kinds of batches: the number of a batch modulo 8 selects its kind.
const KEYED: i64 = 2;
const TAGGED: i64 = 3;
const FAILING: i64 = 5;

/// How long an operation on such a small file may take. A longer one counts as a hang.
const HANG: Duration = Duration::from_secs(60);

/// The maximum number of claims of a worker from a file: ten times as many as the whole file needs.
const CLAIMS_MAX: u32 = 400;

fn payload(batch: i64, position: u32) -> String {
    let padding = "gristmill ".repeat(1 + position as usize % 12);
    format!("{{\"batch\":{batch},\"position\":{position},\"text\":\"{padding}\"}}")
}

fn kind(batch: i64) -> &'static str {
    ["resize", "mail", "index"][batch as usize % 3]
}

fn new_batch(number: i64) -> NewBatch {
    let mut payloads = PackedBuilder::new();
    for position in 0..JOBS {
        payloads.push(&payload(number, position)).unwrap();
    }
    let mut new = NewBatch::new(kind(number), payloads.finish());
    new.options.retry = gristmill_model::RetryPolicy::NEVER;
    if number % 8 == TAGGED {
        new.tags = vec![Tag::all("customer", "acme")];
    }
    if number % 8 == KEYED {
        new.options.unique = Some(Unique::default());
    }
    new
}

fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    let mut options = SqliteOptions::new(Arc::new(SystemClock), 1);
    options.synchronous = Synchronous::Normal;
    options.create = false;
    SqliteStore::open(path, options)
}

/// A worker's report of a slice.
fn report(slice: &LeasedSlice) -> gristmill_model::Report {
    if slice.batch.0 % 8 == FAILING {
        failed_at(slice, &slice.positions, &error())
    } else {
        completed(slice)
    }
}

/// A file with ended, running and waiting jobs.
async fn make(path: &Path) {
    let mut options = SqliteOptions::new(Arc::new(SystemClock), 1);
    options.synchronous = Synchronous::Normal;
    let store = SqliteStore::open(path, options).unwrap();
    for number in 1..=BATCHES {
        let batch = new_batch(number);
        if number % 8 == KEYED {
            let keys: Vec<String> = (0..JOBS).map(|job| format!("\"key {number} {job}\"")).collect();
            let keys = PackedArray::parse(&format!("[{}]", keys.join(","))).unwrap();
            store
                .submit_keyed(vec![KeyedBatch { batch, keys }])
                .await
                .unwrap();
        } else {
            store.submit(vec![batch], None).await.unwrap();
        }
    }
    let worker = worker(&store).await;
    let mut reports = Vec::new();
    for _ in 0..BATCHES / 2 {
        let exchanged = store
            .exchange(worker, reports, Some(want(JOBS - 3)))
            .await
            .unwrap();
        reports = exchanged.lease.unwrap().slices.iter().map(report).collect();
    }
    store.exchange(worker, reports, Some(want(5))).await.unwrap();
    assert!(store.compact(1).await.unwrap() > 0);
    store.close().await.unwrap();
    let connection = rusqlite::Connection::open(path).unwrap();
    let whole = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    assert_eq!(whole, Ok(0), "the file alone has everything");
}

/// The results for a file.
#[derive(Debug, Default)]
struct Told {
    /// Errors and findings, each of which says that something is wrong.
    signs: Vec<String>,
    /// Wrong values, hangs and panics, which fail the test.
    failures: Vec<String>,
}

impl Told {
    /// The answer; `None` if the store reports that it cannot answer.
    async fn of<T>(&mut self, what: &str, answer: impl Future<Output = Result<T, StoreError>>) -> Option<T> {
        match tokio::time::timeout(HANG, answer).await {
            Err(_) => self.failures.push(format!("{what} hangs")),
            Ok(Err(StoreError::Panicked(text))) => self.failures.push(format!("{what} panics: {text}")),
            Ok(Err(error)) => {
                let text = error.to_string();
                if text.len() < 10 {
                    self.failures
                        .push(format!("{what} fails without a reason: {text}"))
                } else {
                    self.signs.push(format!("{what}: {text}"))
                }
            }
            Ok(Ok(answer)) => return Some(answer),
        }
        None
    }

    fn check_slice(&mut self, slice: &LeasedSlice) {
        let batch = slice.batch.0;
        if !(1..=BATCHES).contains(&batch) || &*slice.kind != kind(batch) {
            self.failures
                .push(format!("batch {batch} is claimed as {}", slice.kind));
        }
        for (position, item) in slice.positions.iter().zip(slice.payloads.items()) {
            if item != payload(batch, position) {
                self.failures
                    .push(format!("job {batch}:{position} gets the payload {item}"));
            }
        }
        if slice.payloads.count() != slice.positions.len() {
            self.failures
                .push(format!("a slice of batch {batch} lacks payloads"));
        }
    }

    /// Reads the outcomes of a batch. Returns how many jobs have ended.
    async fn check_outcomes(&mut self, store: &SqliteStore, batch: BatchId) -> u32 {
        let outcomes = self.of("outcomes", store.outcomes(batch)).await;
        let Some(outcomes) = outcomes.flatten() else {
            return 0;
        };
        for report in &outcomes.reports {
            let values = report.values.iter().flat_map(PackedArray::items);
            for (position, value) in report.positions.iter().zip(values) {
                if value != payload(batch.0, position) {
                    self.failures
                        .push(format!("job {batch}:{position} has the value {value}"));
                }
            }
            let expected = if batch.0 % 8 == FAILING {
                JobState::Dead
            } else {
                JobState::Completed
            };
            if report.state != expected {
                self.failures.push(format!("batch {batch} is {}", report.state));
            }
        }
        for failure in &outcomes.errors {
            if failure.error != error() {
                self.failures.push(format!(
                    "job {batch}:{} has the error {:?}",
                    failure.position, failure.error
                ));
            }
        }
        outcomes.ended()
    }

    async fn list(&mut self, store: &SqliteStore) {
        let mut page = Page {
            after: None,
            limit: 500,
        };
        for _ in 0..=BATCHES * i64::from(JOBS) / 500 {
            let rows = self.of("jobs", store.jobs(&JobFilter::default(), page)).await;
            page.after = rows.and_then(|rows| rows.last().map(|row| row.job));
            if page.after.is_none() {
                return;
            }
        }
    }

    async fn drain(&mut self, store: &SqliteStore) {
        let new = gristmill_store::NewWorker {
            name: "drains".to_owned(),
            host: "here".to_owned(),
            process_id: 1,
            process_started: "boot:1".to_owned(),
            queues: Vec::new(),
            kinds: Vec::new(),
        };
        // First releases the jobs of the worker in the file.
        let later = gristmill_model::Clock::now(&SystemClock).plus_ms(1_000_000);
        self.of("rescue", store.rescue(later, vec![WorkerId(1)])).await;
        let Some(worker) = self.of("register_worker", store.register_worker(new)).await else {
            return;
        };
        let mut reports = Vec::new();
        for _ in 0..CLAIMS_MAX {
            let exchange = store.exchange(worker, std::mem::take(&mut reports), Some(want(50)));
            let Some(exchanged) = self.of("exchange", exchange).await else {
                return;
            };
            let Some(lease) = exchanged.lease else {
                return;
            };
            for slice in &lease.slices {
                self.check_slice(slice);
                reports.push(report(slice));
            }
        }
        self.failures
            .push(format!("a worker claims over {CLAIMS_MAX} times"));
    }

    async fn check(&mut self, store: &SqliteStore) {
        let mut place = Some(CheckPlace::default());
        while let Some(next) = place {
            let Some(page) = self.of("check", store.check(next)).await else {
                return;
            };
            self.signs
                .extend(page.findings.iter().map(|finding| format!("{finding:?}")));
            place = page.next;
        }
    }

    /// Opens a file, lists, drains and checks it.
    async fn all_of(path: &Path) -> Told {
        let mut told = Told::default();
        let store = match open(path) {
            Ok(store) => store,
            Err(error) => {
                told.signs.push(format!("open: {error}"));
                return told;
            }
        };
        told.list(&store).await;
        told.drain(&store).await;
        let mut ended = BTreeMap::new();
        for number in 1..=BATCHES {
            ended.insert(number, told.check_outcomes(&store, BatchId(number)).await);
            if let Some(Some(job)) = told
                .of(
                    "job",
                    store.job(gristmill_model::JobId {
                        batch: BatchId(number),
                        position: 7,
                    }),
                )
                .await
                && job.payload.get() != payload(number, 7)
            {
                told.failures
                    .push(format!("job {number}:7 shows the payload {}", job.payload));
            }
        }
        told.check(&store).await;
        ended.retain(|_, ended| *ended != JOBS);
        if told.signs.is_empty() && !ended.is_empty() {
            told.failures
                .push(format!("jobs are lost without a sign: {ended:?}"));
        }
        told.of("close", store.close()).await;
        told
    }
}

fn number_of(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is {text}")),
        Err(_) => default,
    }
}

#[test]
fn flipped_bits_give_no_wrong_values() {
    let panics = Arc::new(AtomicU64::new(0));
    let (counted, hook) = (panics.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        // Another test of this process may panic at the same time, with its own file.
        if panic
            .location()
            .is_none_or(|place| !place.file().contains("/tests/"))
        {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        hook(panic);
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (whole, flipped) = (folder.path().join("whole.db"), folder.path().join("flipped.db"));
    runtime.block_on(make(&whole));
    let bytes = std::fs::read(&whole).unwrap();
    std::fs::write(&flipped, &bytes).unwrap();
    let told = runtime.block_on(Told::all_of(&flipped));
    assert_eq!(
        (told.signs, told.failures),
        (Vec::new(), Vec::new()),
        "the whole file"
    );

    let files = number_of("GRISTMILL_FLIPPED_FILES", FILES);
    let first = number_of("GRISTMILL_FLIP_SEED", 1);
    let (mut refused, mut found, mut harmless, mut failed) = (0, 0, 0, Vec::new());
    for seed in first..first + files {
        let mut rng = SplitMix64::new(seed);
        let mut copy = bytes.clone();
        for _ in 0..FLIPS {
            let bit = rng.below(copy.len() as u64 * 8);
            copy[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        for ending in ["-wal", "-shm"] {
            drop(std::fs::remove_file(
                folder.path().join(format!("flipped.db{ending}")),
            ));
        }
        std::fs::write(&flipped, copy).unwrap();
        let before = panics.load(Ordering::Relaxed);
        let mut told = runtime.block_on(Told::all_of(&flipped));
        if panics.load(Ordering::Relaxed) > before {
            told.failures.push("a thread panics".to_owned());
        }
        match told {
            Told { failures, signs } if !failures.is_empty() => {
                failed.push(format!("seed {seed}: {failures:#?}, {signs:#?}"));
            }
            Told { signs, .. } if signs.is_empty() => harmless += 1,
            Told { signs, .. } if signs[0].starts_with("open") => refused += 1,
            Told { .. } => found += 1,
        }
    }
    println!(
        "{files} files of {} bytes with {FLIPS} flipped bits: {found} found damaged, {refused} refused when opened, {harmless} \
         gave every value, {} failed",
        bytes.len(),
        failed.len()
    );
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(files < 50 || found > files / 4, "flips are found as a rule");
}
