//! Measures the cost of a stream of jobs that take time: the duration of a recall while a job blocks, the duration of
//! many short asynchronous jobs beside their bound, and the processor time of processes with sleeping jobs.
//!
//!     cargo bench -p gristmill-runtime --bench stream [recall|asynchronous|sleeping]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gristmill_model::{BatchId, LeaseId, LeasedSlice, PackedArray, Positions, Timestamp};
use gristmill_runtime::{DetectOptions, RuntimeOptions, Script, ScriptHandler};
use gristmill_worker::{Handler, MicroBatch, OutcomeSink, Outcomes};
use tokio::sync::Notify;

const PYTHON: &str = "import time\ndef main(seconds):\n    time.sleep(seconds)\n";
const JAVASCRIPT: &str = "const word = new Int32Array(new SharedArrayBuffer(4));\n\
    export function main(seconds) { Atomics.wait(word, 0, 0, seconds * 1000); }\n";
const PYTHON_ASYNC: &str = "import asyncio\nasync def main(seconds):\n    await asyncio.sleep(seconds)\n";
const JAVASCRIPT_ASYNC: &str = "export async function main(seconds) {\n\
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000)); }\n";

const RECALLS: usize = 50;
const ASYNC_JOBS: u32 = 10_000;
const SLEEPING_PROCESSES: usize = 64;
const SLEEP_SECONDS: u64 = 10;

/// Counts answers, and reports when a job comes back.
#[derive(Default)]
struct Sink {
    answered: AtomicU64,
    returned_at: Mutex<Option<Instant>>,
    changed: Notify,
}

impl OutcomeSink for Sink {
    fn answer(&self, outcomes: Outcomes) {
        assert!(outcomes.failed.is_empty(), "{outcomes:?}");
        if !outcomes.returned.is_empty() {
            *self.returned_at.lock().expect("a lock") = Some(Instant::now());
        }
        self.answered
            .fetch_add(u64::from(outcomes.positions().len()), Ordering::SeqCst);
        self.changed.notify_one();
    }
    fn is_draining(&self) -> bool {
        false
    }
    fn cancelled(&self) -> Positions {
        Positions::new()
    }
}

fn micro_batch(seconds: &str, count: u32) -> MicroBatch {
    let payloads = PackedArray::repeat(seconds, count).expect("JSON");
    MicroBatch::new(vec![LeasedSlice {
        lease: LeaseId(1),
        batch: BatchId(1),
        kind: "script:stream".into(),
        queue: "default".into(),
        group: None,
        positions: Positions::from(0..count),
        payloads,
        attempt: 1,
        rescues: 0,
        timeout_ms: None,
        priority: 0,
        retry: gristmill_model::RetryPolicy::default(),
        submitted_at: Timestamp(0),
        memos: None,
        deadline: None,
        labels: None,
        traceparent: None,
    }])
}

async fn handler(folder: &Path, name: &str, text: &str, processes: usize) -> Arc<ScriptHandler> {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file");
    let script = Script::detect(&path, &DetectOptions::default()).expect("a script");
    let options = RuntimeOptions {
        processes,
        ..RuntimeOptions::default()
    };
    let handler = ScriptHandler::new(script, &options).expect("a handler");
    handler.check().await.expect("a script that can be imported");
    Arc::new(handler)
}

async fn bench_recall(folder: &Path) {
    println!("| recall while a job sleeps | median, ms | worst, ms |\n| --- | --- | --- |");
    for (name, text) in [("sleep.py", PYTHON), ("sleep.mjs", JAVASCRIPT)] {
        let handler = handler(folder, name, text, 1).await;
        let mut took = Vec::new();
        for _ in 0..RECALLS {
            let sink = Arc::new(Sink::default());
            let running = {
                let (handler, sink) = (Arc::clone(&handler), Arc::clone(&sink));
                tokio::spawn(async move { handler.run(0, micro_batch("0.05", 3), &*sink).await })
            };
            // The recall comes in the middle of the first job.
            tokio::time::sleep(Duration::from_millis(25)).await;
            let asked = Instant::now();
            handler.recall(0);
            running.await.expect("it ends");
            let returned_at = sink.returned_at.lock().expect("a lock").expect("jobs come back");
            took.push(returned_at.duration_since(asked).as_secs_f64() * 1_000.0);
        }
        took.sort_by(f64::total_cmp);
        println!("| {name} | {:.2} | {:.2} |", took[RECALLS / 2], took[RECALLS - 1]);
    }
}

async fn bench_asynchronous(folder: &Path) {
    let concurrency = RuntimeOptions::default().concurrency;
    let bound = f64::from(ASYNC_JOBS) * 0.001 / f64::from(concurrency);
    println!(
        "| {ASYNC_JOBS} jobs of 1 ms, {concurrency} at once | s | over the bound |\n| --- | --- | --- |"
    );
    for (name, text) in [("async.py", PYTHON_ASYNC), ("async.mjs", JAVASCRIPT_ASYNC)] {
        for each in [1_000, 100] {
            let handler = handler(folder, name, text, 1).await;
            let sink = Arc::new(Sink::default());
            let start = Instant::now();
            let calls: Vec<_> = (0..ASYNC_JOBS / each)
                .map(|_| {
                    let (handler, sink) = (Arc::clone(&handler), Arc::clone(&sink));
                    tokio::spawn(async move { handler.run(0, micro_batch("0.001", each), &*sink).await })
                })
                .collect();
            for call in calls {
                call.await.expect("it ends");
            }
            let took = start.elapsed().as_secs_f64();
            assert_eq!(sink.answered.load(Ordering::SeqCst), u64::from(ASYNC_JOBS));
            println!(
                "| {name}, micro-batches of {each} | {took:.3} | {:.2} |",
                took / bound
            );
        }
    }
}

/// The processor time of this process, its children and their children, in seconds.
fn processor_seconds() -> f64 {
    let ticks_of = |pid: &str| -> f64 {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
            return 0.0;
        };
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        fields[11..13]
            .iter()
            .filter_map(|field| field.parse::<f64>().ok())
            .sum()
    };
    let own = std::process::id().to_string();
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
    let children: Vec<String> = children.collect();
    let children = children.iter().flat_map(|pids| pids.split_whitespace());
    // A tick is a hundredth of a second on Linux.
    (ticks_of(&own) + children.map(ticks_of).sum::<f64>()) / 100.0
}

async fn bench_sleeping(folder: &Path) {
    println!(
        "| {SLEEPING_PROCESSES} processes with a job of {SLEEP_SECONDS} s each | processor time, s |\n| --- | --- |"
    );
    for (name, text) in [("sleep.py", PYTHON), ("sleep.mjs", JAVASCRIPT)] {
        let handler = handler(folder, name, text, SLEEPING_PROCESSES).await;
        let run = |runner, seconds: &'static str| {
            let handler = Arc::clone(&handler);
            tokio::spawn(async move {
                handler
                    .run(runner, micro_batch(seconds, 1), &Sink::default())
                    .await
            })
        };
        let warm: Vec<_> = (0..SLEEPING_PROCESSES).map(|runner| run(runner, "0")).collect();
        for call in warm {
            call.await.expect("it ends");
        }
        let before = processor_seconds();
        let calls: Vec<_> = (0..SLEEPING_PROCESSES).map(|runner| run(runner, "10")).collect();
        for call in calls {
            call.await.expect("it ends");
        }
        println!("| {name} | {:.2} |", processor_seconds() - before);
    }
}

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|one| one == name);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    runtime.block_on(async {
        if is_wanted("recall") {
            bench_recall(folder.path()).await;
        }
        if is_wanted("asynchronous") {
            bench_asynchronous(folder.path()).await;
        }
        if is_wanted("sleeping") {
            bench_sleeping(folder.path()).await;
        }
    });
}
