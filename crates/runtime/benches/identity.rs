//! Measures jobs per second through the handler, with a script that returns its payload. The floor is the language's
//! own loop that parses and serialises the same JSON in one process, without pipes.
//!
//!     cargo bench -p gristmill-runtime --bench identity [python|node|node24|deno|bun]
//!
//! There is one process, payloads have 100 bytes, and two micro-batches run at once. Each figure is the median of five
//! rounds after a warm-up.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use gristmill_model::{BatchId, LeaseId, LeasedSlice, PackedArray, PackedBuilder, Positions, Timestamp};
use gristmill_runtime::{DetectOptions, RuntimeOptions, Script, ScriptHandler};
use gristmill_worker::{Handler, MicroBatch, OutcomeSink, Outcomes};

const ROUNDS: usize = 5;
const FLOOR_ROUNDS: u32 = 100;
const MICRO_BATCHES: [u32; 4] = [1, 10, 100, 1_000];

const PYTHON: &str = "def main(payload):\n    return payload\n";
const JAVASCRIPT: &str = "export function main(payload) { return payload; }\n";

/// Prints the seconds for parsing and serialising the file's 1,000 items this many times.
const PYTHON_FLOOR: &str = r#"
import json, sys, time
text, rounds = open(sys.argv[1]).read(), int(sys.argv[2])
encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
def go(rounds):
    for _ in range(rounds):
        for item in json.loads(text):
            encode(item)
go(rounds)
start = time.perf_counter()
go(rounds)
print(time.perf_counter() - start)
"#;
const JAVASCRIPT_FLOOR: &str = r#"
import fs from 'node:fs';
import process from 'node:process';
const text = fs.readFileSync(process.argv[2], 'utf8'), rounds = Number(process.argv[3]);
let bytes = 0;
const go = () => {
  for (let round = 0; round < rounds; round++) {
    for (const item of JSON.parse(text)) bytes += JSON.stringify(item).length;
  }
};
go();
const start = performance.now();
go();
console.log((performance.now() - start) / 1000);
"#;

struct Subject {
    name: &'static str,
    interpreter: PathBuf,
    extension: &'static str,
}

/// Counts outcomes and forgets them.
#[derive(Default)]
struct NullSink(AtomicU64);

impl OutcomeSink for NullSink {
    fn answer(&self, outcomes: Outcomes) {
        assert!(
            outcomes.failed.is_empty() && outcomes.released.is_empty(),
            "{outcomes:?}"
        );
        let completed = outcomes
            .completed
            .map_or(0, |completed| completed.positions.len());
        self.0.fetch_add(u64::from(completed), Ordering::Relaxed);
    }
    fn is_draining(&self) -> bool {
        false
    }
    fn cancelled(&self) -> Positions {
        Positions::new()
    }
}

fn subjects() -> Vec<Subject> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/tools");
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let all = [
        ("python", "python3", "py"),
        ("node", "node", "mjs"),
        ("node24", "node24/bin/node", "mjs"),
        ("deno", "bin/deno", "mjs"),
        ("bun", "bin/bun", "mjs"),
    ];
    let found = all.into_iter().filter_map(|(name, program, extension)| {
        let in_tools = tools.join(program);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let in_path = std::env::split_paths(&path)
            .map(|folder| folder.join(program))
            .find(|path| path.exists());
        let interpreter = Some(in_tools).filter(|path| path.exists()).or(in_path)?;
        Some(Subject {
            name,
            interpreter,
            extension,
        })
    });
    found
        .filter(|subject| wanted.is_empty() || wanted.iter().any(|name| name == subject.name))
        .collect()
}

fn payloads(count: u32) -> PackedArray {
    let mut builder = PackedBuilder::new();
    for id in 0..count {
        let item = format!(
            r#"{{"id":{id:06},"name":"a name of the usual length","tags":["one","two"],"score":1.25,"text":"a text."}}"#
        );
        let item = item.replacen(":0", ":1", 1);
        assert_eq!(item.len(), 100);
        builder.push(&item).expect("JSON");
    }
    builder.finish()
}

fn micro_batch(payloads: &PackedArray) -> MicroBatch {
    MicroBatch::new(vec![LeasedSlice {
        lease: LeaseId(1),
        batch: BatchId(1),
        kind: "script:identity".into(),
        queue: "default".into(),
        group: None,
        positions: Positions::from(0..payloads.count()),
        payloads: payloads.clone(),
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

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn floor(subject: &Subject, folder: &Path) -> f64 {
    let (program, data) = (
        folder.join(format!("floor.{}", subject.extension)),
        folder.join("payloads.json"),
    );
    let text = if subject.extension == "py" {
        PYTHON_FLOOR
    } else {
        JAVASCRIPT_FLOOR
    };
    std::fs::write(&program, text).expect("a file");
    std::fs::write(&data, payloads(1_000).as_str()).expect("a file");
    let rounds = (0..3).map(|_| {
        let mut command = Command::new(&subject.interpreter);
        if subject.name == "deno" {
            command.args(["run", "-A"]);
        }
        let output = command
            .arg(&program)
            .arg(&data)
            .arg(FLOOR_ROUNDS.to_string())
            .output()
            .expect("the floor runs");
        let seconds: f64 = String::from_utf8_lossy(&output.stdout)
            .trim()
            .parse()
            .expect("seconds");
        f64::from(FLOOR_ROUNDS * 1_000) / seconds
    });
    median(rounds.collect())
}

/// The number of micro-batches on their way to a process.
const MICRO_BATCHES_AT_ONCE: u32 = 2;

/// Runs `jobs` jobs in micro-batches of all payloads, and returns the jobs per second.
async fn round(handler: &Arc<ScriptHandler>, payloads: &PackedArray, jobs: u32) -> f64 {
    let sink = Arc::new(NullSink::default());
    let each = (jobs / payloads.count() / MICRO_BATCHES_AT_ONCE).max(1);
    let start = Instant::now();
    let running: Vec<_> = (0..MICRO_BATCHES_AT_ONCE)
        .map(|_| {
            let (handler, sink, payloads) = (Arc::clone(handler), Arc::clone(&sink), payloads.clone());
            tokio::spawn(async move {
                for _ in 0..each {
                    handler.run(0, micro_batch(&payloads), &*sink).await;
                }
            })
        })
        .collect();
    for lane in running {
        lane.await.expect("a lane ends");
    }
    let done = sink.0.load(Ordering::Relaxed);
    assert_eq!(done, u64::from(each * MICRO_BATCHES_AT_ONCE * payloads.count()));
    done as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    println!("| runtime | floor, jobs/s | micro-batch | jobs/s | of the floor |");
    println!("| --- | --- | --- | --- | --- |");
    for subject in subjects() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join(format!("identity.{}", subject.extension));
        std::fs::write(
            &script,
            if subject.extension == "py" {
                PYTHON
            } else {
                JAVASCRIPT
            },
        )
        .expect("a file");
        let options = DetectOptions {
            interpreter: Some(subject.interpreter.clone()),
            ..DetectOptions::default()
        };
        let script = Script::detect(&script, &options).expect("a script");
        let floor = floor(&subject, folder.path());
        runtime.block_on(async {
            let handler =
                Arc::new(ScriptHandler::new(script, &RuntimeOptions::default()).expect("a handler"));
            handler.check().await.expect("a script that can be imported");
            for size in MICRO_BATCHES {
                let payloads = payloads(size);
                let jobs = (size * 2_000).min(200_000);
                round(&handler, &payloads, jobs).await;
                let mut rounds = Vec::new();
                for _ in 0..ROUNDS {
                    rounds.push(round(&handler, &payloads, jobs).await);
                }
                let rate = median(rounds);
                println!(
                    "| {} | {floor:.0} | {size} | {rate:.0} | {:.2} |",
                    subject.name,
                    rate / floor
                );
            }
            handler.shut_down().await;
        });
    }
    bench_program(&runtime);
}

/// One process for each job: `cat`, beside a loop that starts it and waits for its output.
fn bench_program(runtime: &tokio::runtime::Runtime) {
    const JOBS: u32 = 500;
    let payloads = payloads(JOBS);
    let start_and_wait = || {
        let start = Instant::now();
        for _ in 0..JOBS {
            let mut cat = Command::new("cat");
            cat.stdin(std::process::Stdio::null());
            cat.output().expect("cat runs");
        }
        f64::from(JOBS) / start.elapsed().as_secs_f64()
    };
    let floor = median((0..ROUNDS).map(|_| start_and_wait()).collect());
    let script = Script::program(vec!["cat".into()], &DetectOptions::default()).expect("a program");
    runtime.block_on(async {
        let handler = ScriptHandler::new(script, &RuntimeOptions::default()).expect("a handler");
        let handler = Arc::new(handler);
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(round(&handler, &payloads, JOBS).await);
        }
        let rate = median(rounds);
        println!(
            "| -- cat | {floor:.0} | {JOBS} | {rate:.0} | {:.2} |",
            rate / floor
        );
    });
}
