//! What limits and aging cost a claim, beside the same work without: `cargo bench -p gristmill-store --bench limits`.
//!
//! No-op jobs on a SQLite store, claimed and committed by one worker. Each figure is the median of several rounds on a
//! fresh file, with its ratio to the first of its group. `GRISTMILL_BENCH_FOLDER` says where the files lie (it should be
//! on a disk); `ROUNDS` how many rounds there are.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use gristmill_model::{Completed, Control, Effect, NewBatch, PackedBuilder, Report, Scope};
use gristmill_store::{NewWorker, SqliteOptions, SqliteStore, Store, Synchronous, Want};

const KIND: &str = "noop";

/// What is submitted, and claimed by how many.
struct Work {
    groups: u32,
    jobs_per_group: u32,
    priorities: i16,
    claim_jobs: u32,
    claims: u32,
}

const GROUPS: Work = Work {
    groups: 100,
    jobs_per_group: 2_000,
    priorities: 1,
    claim_jobs: 1_000,
    claims: 200,
};

const MILLION: Work = Work {
    groups: 1,
    jobs_per_group: 1_000_000,
    priorities: 10,
    claim_jobs: 100,
    claims: 500,
};

fn main() {
    let rounds: usize =
        std::env::var("ROUNDS").map_or(3, |rounds| rounds.parse().expect("ROUNDS is a number"));
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
    let measurements = [
        ("100 groups, no limits", &GROUPS, vec![]),
        (
            "100 groups with limits, none saturated",
            &GROUPS,
            each_group(1_000),
        ),
        ("100 groups with limits, all saturated", &GROUPS, each_group(10)),
        ("1,000,000 waiting, no aging", &MILLION, vec![]),
        ("1,000,000 waiting, aging", &MILLION, vec![aging]),
    ];
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("threads start");
    println!("{:<45} {:>14} {:>8}", "measurement", "jobs/s", "ratio");
    let mut base: f64 = 0.0;
    for (name, work, controls) in measurements {
        let parent = std::env::var_os("GRISTMILL_BENCH_FOLDER").map_or_else(std::env::temp_dir, Into::into);
        let mut rates = Vec::new();
        for round in 0..=rounds {
            let folder = parent.join(format!("gristmill-limits-{}-{round}", std::process::id()));
            std::fs::create_dir_all(&folder).expect("a folder is made");
            let rate = runtime.block_on(measure(&folder.join("store.db"), work, &controls));
            std::fs::remove_dir_all(&folder).expect("the folder goes");
            // The first round does not count.
            rates.extend((round > 0).then_some(rate));
        }
        rates.sort_by(f64::total_cmp);
        let median = rates[rates.len() / 2];
        if controls.is_empty() {
            base = median;
        }
        println!("{name:<45} {median:>14.0} {:>8.2}", median / base);
    }
}

/// Jobs claimed and committed in a second.
async fn measure(path: &Path, work: &Work, controls: &[Control]) -> f64 {
    let options = SqliteOptions {
        synchronous: Synchronous::Normal,
        ..SqliteOptions::default()
    };
    let store = SqliteStore::open(path, options).expect("the store opens");
    let mut payloads = PackedBuilder::new();
    for number in 0..1_000 {
        payloads.push(&number.to_string()).expect("a number is JSON");
    }
    let payloads = payloads.finish();
    for group in 0..work.groups {
        let batches = (0..work.jobs_per_group / 1_000).map(|index| {
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
        let lease = exchanged.lease.expect("there is more");
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
