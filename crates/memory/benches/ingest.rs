//! Ingestion from a replayed model service: the time beside what the service's own latencies allow at best.
//!
//! `cargo bench -p gristmill-memory --bench ingest -- REPLAY [CASE…]`, where REPLAY holds `mock_server.py` and
//! `data/`. A row of a Markdown table for each case: the median of three runs, and the bound: the end of a greedy
//! schedule of the latencies that were replayed, or the tokens at the rate that the service allows. With the Python of
//! the peer's environment in `PEER_PYTHON`, the peer runs beside it, once. With
//! `one COPIES CONCURRENCY TOKENS_PER_MINUTE PORT REPLAY FOLDER` it is one ingestion, for a process of its own.

#[path = "../tests/replayed/mod.rs"]
mod replayed;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_engine::Engine;
use gristmill_memory::extract::{Limiter, LimiterSettings, OpenAiExtractor, OpenAiSettings};
use gristmill_memory::pipeline::{IngestOptions, Ingestion, NewInput};
use gristmill_memory::source::Format;
use gristmill_memory::{KnowledgeStore, SqliteKnowledge, SqliteKnowledgeOptions};
use replayed::{Service, lines};
use serde_json::Value;

/// A case of the table.
struct Case {
    name: &'static str,
    /// Copies of the transcript, of 106 chunks each.
    copies: u32,
    concurrency: usize,
    /// What the client is told of the service's limit; 0 for none.
    tokens_per_minute: u32,
    /// What the service is told.
    service: &'static [&'static str],
    /// What the peer's runner is told in addition.
    peer: &'static [&'static str],
    /// What is to be reached, in words.
    reach: &'static str,
}

const CASES: [Case; 7] = [
    Case {
        name: "106 chunks, C=20",
        copies: 1,
        concurrency: 20,
        tokens_per_minute: 0,
        service: &[],
        peer: &[],
        reach: "1.05 x the bound",
    },
    Case {
        name: "1,060 chunks, C=20",
        copies: 10,
        concurrency: 20,
        tokens_per_minute: 0,
        service: &[],
        peer: &[],
        reach: "1.05 x the bound",
    },
    Case {
        name: "530 chunks, C=64",
        copies: 5,
        concurrency: 64,
        tokens_per_minute: 0,
        service: &[],
        peer: &[],
        reach: "1.10 x the bound",
    },
    Case {
        name: "1,060 chunks, C=200",
        copies: 10,
        concurrency: 200,
        tokens_per_minute: 0,
        service: &[],
        peer: &[],
        reach: "1.10 x the bound",
    },
    Case {
        name: "106 chunks, 400,000 tokens a minute",
        copies: 1,
        concurrency: 20,
        tokens_per_minute: 400_000,
        service: &["--tpm", "400000"],
        peer: &["--tpm", "400000"],
        reach: "1.03 x the bound, 5 rejected",
    },
    Case {
        name: "106 chunks, 429 with p=0.3",
        copies: 1,
        concurrency: 20,
        tokens_per_minute: 0,
        service: &["--p429", "0.3"],
        peer: &["--p429", "0.3"],
        reach: "0.6 x the peer",
    },
    Case {
        name: "106 chunks, 20% broken JSON",
        copies: 1,
        concurrency: 20,
        tokens_per_minute: 0,
        service: &["--p-bad", "0.2"],
        peer: &["--p-bad", "0.2", "--skip-failed"],
        reach: "all others stored",
    },
];

/// Runs of each case of ours; the median counts.
const ROUNDS: usize = 3;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    if let Some([one, copies, concurrency, tokens, port, replay, folder]) = arguments.get(..7)
        && one == "one"
    {
        let number = |text: &String| text.parse::<f64>().expect("a number");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(ingest(
            number(copies) as u32,
            number(concurrency) as usize,
            number(tokens),
            number(port) as u16,
            Path::new(replay),
            Path::new(folder),
        ));
        return;
    }
    let Some(replay) = arguments.first().map(PathBuf::from) else {
        eprintln!("skipped: say where the recordings are, after `--`");
        return;
    };
    let peer = std::env::var_os("PEER_PYTHON").map(PathBuf::from);
    println!(
        "| work | to reach | seconds | bound | ratio | rejected | failed chunks | CPU ms a chunk | peer, seconds | of the peer |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for case in CASES {
        if arguments.len() == 1
            || arguments[1..]
                .iter()
                .any(|wanted| case.name.contains(wanted.as_str()))
        {
            let mut runs: Vec<Measured> = (0..ROUNDS).map(|_| measure(&case, &replay)).collect();
            runs.sort_by(|left, right| left.seconds.total_cmp(&right.seconds));
            let peer = peer.as_ref().map(|python| run_peer(&case, &replay, python));
            print(&case, &runs, peer);
        }
    }
}

/// One ingestion.
struct Measured {
    seconds: f64,
    bound: f64,
    rejected: u64,
    failed: u64,
    cpu_seconds: f64,
}

fn print(case: &Case, runs: &[Measured], peer: Option<Result<f64, String>>) {
    let median = &runs[runs.len() / 2];
    let (told, share) = match peer {
        Some(Ok(seconds)) => (
            format!("{seconds:.2}"),
            format!("{:.2}", median.seconds / seconds),
        ),
        Some(Err(reason)) => (reason, "–".to_owned()),
        None => ("not run".to_owned(), "–".to_owned()),
    };
    println!(
        "| {} | {} | {:.2} ({:.2} to {:.2}) | {:.2} | {:.3} | {} | {} | {:.2} | {told} | {share} |",
        case.name,
        case.reach,
        median.seconds,
        runs[0].seconds,
        runs[runs.len() - 1].seconds,
        median.bound,
        median.seconds / median.bound,
        median.rejected,
        median.failed,
        median.cpu_seconds * 1_000.0 / (106.0 * f64::from(case.copies)),
    );
}

fn measure(case: &Case, replay: &Path) -> Measured {
    let service = Service::start(replay, case.service);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let own = std::env::current_exe().expect("this program");
    let output = Command::new(own)
        .arg("one")
        .args([
            case.copies.to_string(),
            case.concurrency.to_string(),
            case.tokens_per_minute.to_string(),
            service.port.to_string(),
        ])
        .args([replay, folder.path()])
        .output()
        .expect("runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let stats = service.stats();
    let answered: Vec<&Value> = stats["events"]
        .as_array()
        .expect("events")
        .iter()
        .filter(|event| event["kind"] == "chat" && event["status"] == 200)
        .collect();
    let mut begun: Vec<(f64, f64)> = answered
        .iter()
        .filter_map(|event| Some((event["t0"].as_f64()?, event["lat"].as_f64()?)))
        .collect();
    begun.sort_by(|left, right| left.0.total_cmp(&right.0));
    let latencies: Vec<f64> = begun.into_iter().map(|(_, latency)| latency).collect();
    let mut bound = greedy(&latencies, case.concurrency);
    if case.tokens_per_minute > 0 {
        let used: f64 = answered.iter().filter_map(|event| event["tok"].as_f64()).sum();
        bound = bound.max(60.0 * used / f64::from(case.tokens_per_minute));
    }
    Measured {
        seconds: told["seconds"].as_f64().expect("seconds"),
        bound,
        rejected: stats["chat"]["rejected_429"].as_u64().unwrap_or(0),
        failed: told["failures"].as_u64().expect("failures"),
        cpu_seconds: told["cpu_seconds"].as_f64().expect("seconds"),
    }
}

/// The peer's seconds for the same work, by the runner of the recordings' folder, or why there are none.
fn run_peer(case: &Case, replay: &Path, python: &Path) -> Result<f64, String> {
    let output = Command::new(python)
        .arg(replay.join("run_typeagent.py"))
        .args(["--concurrency", &case.concurrency.to_string()])
        .args(["--repeat", &case.copies.to_string()])
        .args(case.peer)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with('{'));
    let told: Value = line
        .and_then(|line| serde_json::from_str(line).ok())
        .ok_or("its runner failed")?;
    match told["error"].as_str() {
        Some(_) => Err("it ends with an error".to_owned()),
        None => told["total_s"]
            .as_f64()
            .ok_or_else(|| "it tells no time".to_owned()),
    }
}

/// When the last call ends, where each free slot takes the next one at once, without any other cost. Nobody who does
/// not know the latencies beforehand can be sure to be faster.
fn greedy(latencies: &[f64], concurrency: usize) -> f64 {
    let mut slots = vec![0.0_f64; concurrency];
    for latency in latencies {
        if let Some(first) = slots.iter_mut().min_by(|left, right| left.total_cmp(right)) {
            *first += latency;
        }
    }
    slots.into_iter().fold(0.0, f64::max)
}

/// One ingestion. Prints what it took as JSON.
async fn ingest(copies: u32, concurrency: usize, tokens: f64, port: u16, replay: &Path, folder: &Path) {
    let lines = lines(replay, copies);
    let knowledge: Arc<dyn KnowledgeStore> = Arc::new(
        SqliteKnowledge::open(folder.join("kb.db"), SqliteKnowledgeOptions::default()).expect("opens"),
    );
    let engine = Engine::open(&folder.join("jobs.db")).await.expect("opens");
    let limiter = Limiter::new(LimiterSettings {
        concurrency,
        tokens_per_minute: (tokens > 0.0).then_some(tokens),
        requests_per_minute: None,
    });
    let settings = OpenAiSettings {
        base_url: format!("http://127.0.0.1:{port}/v1"),
        model: "replayed".to_owned(),
        key: None,
        timeout: Duration::from_secs(60),
    };
    let extractor = Arc::new(OpenAiExtractor::new(settings, limiter).expect("settings"));
    let ingestion = Ingestion::new(
        knowledge.clone(),
        engine,
        extractor,
        concurrency,
        IngestOptions::default(),
    );
    let input = NewInput {
        name: "replayed.jsonl".to_owned(),
        format: Format::JsonLines,
        content: lines.into_bytes().into(),
    };
    let cpu = cpu_seconds();
    let begun = Instant::now();
    let ingested = ingestion.run(vec![input], |_| {}).await.expect("ingests");
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = cpu_seconds() - cpu;
    let stats = knowledge.stats().await.expect("stats");
    println!(
        "{}",
        serde_json::json!({
            "seconds": seconds, "cpu_seconds": cpu, "failures": ingested.progress.failures, "refs": stats.refs(),
            "terms": stats.terms, "messages": stats.messages,
        })
    );
}

/// Seconds that this process has run on a processor, from `/proc`.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc");
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
    let ticks: f64 = [11, 12]
        .iter()
        .filter_map(|&at: &usize| fields[at].parse::<f64>().ok())
        .sum();
    ticks / 100.0
}
