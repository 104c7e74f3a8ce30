//! Measures what limits and aging cost a claim, next to the same work without them: `cargo bench -p
//! gristmill-store-postgres --bench limits`.
//!
//! No-op jobs, claimed and committed by one worker, on both stores, with each commit synced. Each figure is the median of
//! several rounds on a fresh store, with its ratio to the first of its group; the rounds of a group take turns.
//! `GRISTMILL_BENCH_FOLDER` says where the files lie (it should be on a disk); `ROUNDS` how many rounds there are, `ONLY`
//! a part of a measurement's name.

use std::sync::Arc;
use std::time::Instant;

use gristmill_model::{Completed, Control, Effect, NewBatch, PackedBuilder, Report, Scope};
use gristmill_private_postgres::PrivatePostgres;
use gristmill_store::{NewWorker, Store, Want};
use gristmill_store_postgres::{PostgresOptions, PostgresStore};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};

const KIND: &str = "noop";

/// The jobs to submit, and how they are claimed.
struct Work {
    name: &'static str,
    groups: u32,
    jobs_per_group: u32,
    batch_jobs: u32,
    priorities: i16,
    claim_jobs: u32,
    claims: u32,
    controls: Vec<(&'static str, Vec<Control>)>,
    postgres: bool,
}

fn works() -> Vec<Work> {
    let each_group = |jobs_max| {
        let scope = Scope {
            kind: Some(KIND.to_owned()),
            each_group: true,
            ..Scope::default()
        };
        let effect = Effect::Concurrency { jobs_max };
        vec![Control { scope, effect }]
    };
    let aging = Control {
        scope: Scope::default(),
        effect: Effect::Aging {
            grace_ms: 0,
            step_ms: 1_000,
        },
    };
    let groups = |name, jobs_per_group, batch_jobs, postgres| Work {
        name,
        groups: 100,
        jobs_per_group,
        batch_jobs,
        priorities: 1,
        claim_jobs: 10_000,
        claims: u32::MAX,
        controls: vec![
            ("no limits", vec![]),
            ("limits, none saturated", each_group(1_000_000)),
            ("limits, all saturated", each_group(10)),
        ],
        postgres,
    };
    vec![
        groups("100 groups, batches of 1,000, SQLite", 4_000, 1_000, false),
        groups("100 groups, batches of 10, SQLite", 1_000, 10, false),
        groups("100 groups, batches of 1,000, PostgreSQL", 2_000, 1_000, true),
        groups("100 groups, batches of 10, PostgreSQL", 500, 10, true),
        Work {
            name: "1,000,000 waiting, SQLite",
            groups: 1,
            jobs_per_group: 1_000_000,
            batch_jobs: 1_000,
            priorities: 10,
            claim_jobs: 100,
            claims: 500,
            controls: vec![("no aging", vec![]), ("aging", vec![aging])],
            postgres: false,
        },
    ]
}

fn main() {
    let rounds: usize =
        std::env::var("ROUNDS").map_or(3, |rounds| rounds.parse().expect("ROUNDS is a number"));
    let only = std::env::var("ONLY").unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("threads start");
    println!("{:<70} {:>14} {:>8}", "measurement", "jobs/s", "ratio");
    let settings = [
        ("fsync", "on"),
        ("shared_buffers", "1GB"),
        ("max_wal_size", "8GB"),
    ];
    let mut server = None;
    for work in works().iter().filter(|work| work.name.contains(&only)) {
        let parent = std::env::var_os("GRISTMILL_BENCH_FOLDER").map_or_else(std::env::temp_dir, Into::into);
        let mut rates = vec![Vec::new(); work.controls.len()];
        for round in 0..=rounds {
            for ((_, controls), rates) in work.controls.iter().zip(&mut rates) {
                let folder = parent.join(format!("gristmill-limits-{}-{round}", std::process::id()));
                std::fs::create_dir_all(&folder).expect("a folder is made");
                let server = work.postgres.then(|| {
                    &*server.get_or_insert_with(|| PrivatePostgres::start(&settings).expect("a server"))
                });
                let rate = runtime.block_on(async {
                    let store: Arc<dyn Store> = match server {
                        None => Arc::new(
                            SqliteStore::open(folder.join("store.db"), SqliteOptions::default())
                                .expect("the store opens"),
                        ),
                        Some(server) => {
                            let url = server.create_database().expect("a database");
                            let store = PostgresStore::open(&url, PostgresOptions::default()).await;
                            Arc::new(store.expect("the store opens"))
                        }
                    };
                    measure(&*store, work, controls).await
                });
                std::fs::remove_dir_all(&folder).expect("the folder goes");
                // The first round is a warm-up.
                rates.extend((round > 0).then_some(rate));
            }
        }
        let medians = rates.into_iter().map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        });
        let medians: Vec<f64> = medians.collect();
        for ((name, _), median) in work.controls.iter().zip(&medians) {
            let name = format!("{}, {name}", work.name);
            println!("{name:<70} {median:>14.0} {:>8.2}", median / medians[0]);
        }
    }
}

/// Returns how many jobs are claimed and committed in a second.
async fn measure(store: &dyn Store, work: &Work, controls: &[Control]) -> f64 {
    let mut payloads = PackedBuilder::new();
    for number in 0..work.batch_jobs {
        payloads.push(&number.to_string()).expect("a number is JSON");
    }
    let payloads = payloads.finish();
    for index in 0..work.jobs_per_group / work.batch_jobs {
        let batches = (0..work.groups).map(|group| {
            let mut batch = NewBatch::new(KIND, payloads.clone());
            batch.options.group = (work.groups > 1).then(|| format!("group {group}"));
            batch.options.priority = (index % u32::from(work.priorities.unsigned_abs())) as i16;
            batch
        });
        store
            .submit(batches.collect(), None)
            .await
            .expect("they are submitted");
    }
    store.put_controls(controls.to_vec()).await.expect("they are set");
    let worker = NewWorker {
        name: "bench".to_owned(),
        host: "here".to_owned(),
        process_id: 1,
        process_started: String::new(),
        queues: Vec::new(),
        kinds: Vec::new(),
    };
    let worker = store.register_worker(worker).await.expect("it registers");
    let want = Want {
        jobs_max: work.claim_jobs,
        queues: vec![Arc::from("default")],
        kinds: vec![Arc::from(KIND)],
        priority_min: None,
    };
    let (mut jobs, mut reports) = (0, Vec::new());
    let began = Instant::now();
    for _ in 0..work.claims {
        let exchanged = store
            .exchange(worker, std::mem::take(&mut reports), Some(want.clone()))
            .await
            .expect("they are exchanged");
        let Some(lease) = exchanged.lease else { break };
        jobs += lease.jobs();
        reports = lease
            .slices
            .into_iter()
            .map(|slice| Report {
                completed: Some(Completed {
                    durations_us: vec![1; slice.len() as usize],
                    values: slice.payloads,
                    positions: slice.positions,
                }),
                ..Report::new(slice.lease, slice.batch, slice.attempt)
            })
            .collect();
    }
    let took = began.elapsed();
    store.close().await.expect("it closes");
    f64::from(jobs) / took.as_secs_f64()
}
