//! Ingestion from a replayed model service: the time beside what the service's own latencies allow at best.
//!
//! `cargo bench -p gristmill-memory --bench ingest -- REPLAY [CASE…]`, where REPLAY holds `mock_server.py` and
//! `data/`. A line for each case: seconds, the bound, their ratio, calls, rejections, CPU a chunk. With
//! `one COPIES CONCURRENCY TOKENS_PER_MINUTE PORT FOLDER` it is one ingestion, for a process of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_engine::Engine;
use gristmill_memory::extract::{Limiter, LimiterSettings, OpenAiExtractor, OpenAiSettings};
use gristmill_memory::pipeline::{IngestOptions, Ingestion, NewInput};
use gristmill_memory::source::Format;
use gristmill_memory::{KnowledgeStore, SqliteKnowledge, SqliteKnowledgeOptions};
use serde_json::Value;

/// A case: its name, copies of the transcript, concurrency, tokens a minute, and what the service is told.
const CASES: [(&str, u32, usize, f64, &[&str]); 7] = [
    ("106 chunks, C=20", 1, 20, 0.0, &[]),
    ("1,060 chunks, C=20", 10, 20, 0.0, &[]),
    ("530 chunks, C=64", 5, 64, 0.0, &[]),
    ("1,060 chunks, C=200", 10, 200, 0.0, &[]),
    (
        "106 chunks, 400,000 tokens a minute",
        1,
        20,
        400_000.0,
        &["--tpm", "400000"],
    ),
    ("106 chunks, 429 with p=0.3", 1, 20, 0.0, &["--p429", "0.3"]),
    ("106 chunks, 20% broken JSON", 1, 20, 0.0, &["--p-bad", "0.2"]),
];

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
    for (name, copies, concurrency, tokens, service) in CASES {
        if arguments.len() == 1 || arguments[1..].iter().any(|wanted| name.contains(wanted.as_str())) {
            measure(name, copies, concurrency, tokens, service, &replay);
        }
    }
}

fn measure(name: &str, copies: u32, concurrency: usize, tokens: f64, service: &[&str], replay: &Path) {
    let service = Service::start(replay, service);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let own = std::env::current_exe().expect("this program");
    let output = Command::new(own)
        .arg("one")
        .args([
            copies.to_string(),
            concurrency.to_string(),
            tokens.to_string(),
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
    let used: f64 = answered.iter().filter_map(|event| event["tok"].as_f64()).sum();
    let work = latencies.iter().sum::<f64>() / concurrency as f64;
    let mut bound = greedy(&latencies, concurrency);
    if tokens > 0.0 {
        bound = bound.max(60.0 * used / tokens);
    }
    let seconds = told["seconds"].as_f64().expect("seconds");
    println!(
        "{name}: {seconds:.2} s, bound {bound:.2} s, ratio {:.3} (all work / C: {work:.2} s); {} calls, {} rejected, {} failed, {} refs, {} terms, CPU {:.2} ms a chunk",
        seconds / bound,
        answered.len(),
        stats["chat"]["rejected_429"],
        told["failures"],
        told["refs"],
        told["terms"],
        told["cpu_seconds"].as_f64().expect("seconds") * 1_000.0 / (106.0 * f64::from(copies)),
    );
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
        bytes: lines.into_bytes(),
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

/// The recorded messages as JSON lines; copies are told apart by a mark, which gives each a latency of its own.
fn lines(replay: &Path, copies: u32) -> String {
    let index = std::fs::read_to_string(replay.join("data/index_1603.json")).expect("the index");
    let index: Value = serde_json::from_str(&index).expect("JSON");
    let mut lines = String::new();
    for copy in 0..copies {
        for message in index["messages"].as_array().expect("messages") {
            let text = message["textChunks"][0].as_str().expect("a text").trim();
            let mark = if copy > 0 {
                format!("\n#r{copy}")
            } else {
                String::new()
            };
            let line = serde_json::json!({
                "text": format!("{text}{mark}"),
                "speaker": message["metadata"]["speaker"],
                "recipients": message["metadata"]["listeners"],
                "timestamp": message["timestamp"],
            });
            lines.push_str(&format!("{line}\n"));
        }
    }
    lines
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

/// The replayed service while it runs.
struct Service {
    child: Child,
    port: u16,
}

impl Service {
    fn start(replay: &Path, arguments: &[&str]) -> Service {
        let mut child = Command::new("python3")
            .arg(replay.join("mock_server.py"))
            .args(arguments)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("a line");
        let told: Value = serde_json::from_str(&line).expect("JSON");
        let port = told["port"].as_u64().expect("a port") as u16;
        Service { child, port }
    }

    fn stats(&self) -> Value {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).expect("connects");
        stream.write_all(b"GET /stats HTTP/1.1\r\n\r\n").expect("asks");
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a line");
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        serde_json::from_slice(&body).expect("JSON")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
