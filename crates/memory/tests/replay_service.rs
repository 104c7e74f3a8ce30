//! Ingestion from the replayed model service, from the folder that `GRISTMILL_REPLAY` names; skipped without it. Run
//! with `make test-replay REPLAY=DIR`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use gristmill_engine::Engine;
use gristmill_memory::extract::{Limiter, LimiterSettings, OpenAiExtractor, OpenAiSettings};
use gristmill_memory::pipeline::{IngestOptions, Ingested, Ingestion, NewInput};
use gristmill_memory::source::Format;
use gristmill_memory::store::KnowledgeStats;
use gristmill_memory::{KnowledgeStore, SqliteKnowledge, SqliteKnowledgeOptions};
use gristmill_model::{Rng, SplitMix64};
use serde_json::Value;

/// How often the ingestion is killed.
const KILLS: u32 = 20;

/// How long before a kill an answer must have been sent to count as arrived: the time to a synced commit, which is
/// milliseconds on an idle machine and up to a second on one whose disk and processors others keep busy.
const ARRIVED: Duration = Duration::from_millis(1_000);

/// Few calls at once, so that the ingestion lasts over many kills.
const CHILD_CONCURRENCY: usize = 3;

const CHILD: &str = "GRISTMILL_REPLAY_CHILD";

fn replay() -> Option<PathBuf> {
    let folder = std::env::var_os("GRISTMILL_REPLAY").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: GRISTMILL_REPLAY names no folder");
    }
    folder
}

async fn ingest(replay: &Path, folder: &Path, port: u16, concurrency: usize) -> (Ingested, KnowledgeStats) {
    let knowledge: Arc<dyn KnowledgeStore> = Arc::new(
        SqliteKnowledge::open(folder.join("kb.db"), SqliteKnowledgeOptions::default()).expect("opens"),
    );
    let engine = Engine::open(&folder.join("jobs.db")).await.expect("opens");
    let limiter = Limiter::new(LimiterSettings {
        concurrency,
        ..LimiterSettings::default()
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
        engine.clone(),
        extractor,
        concurrency,
        IngestOptions::default(),
    );
    let input = NewInput {
        name: "transcript.txt".to_owned(),
        format: Format::Transcript,
        bytes: std::fs::read(replay.join("data/transcript.txt")).expect("the transcript"),
    };
    let ingested = ingestion.run(vec![input], |_| {}).await.expect("ingests");
    let stats = knowledge.stats().await.expect("stats");
    engine.close().await.expect("closes");
    (ingested, stats)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebuilds_the_recorded_index() {
    let Some(replay) = replay() else { return };
    let service = Service::start(&replay, &["--chat-median", "0.01", "--chat-p99", "0.05"]);
    let folder = tempfile::tempdir().expect("a folder");
    let (ingested, stats) = ingest(&replay, folder.path(), service.port, 20).await;
    println!(
        "{ingested:?}\n{stats:?}\nnot recorded: {}",
        service.stats()["misses"]
    );
    assert_eq!((ingested.progress.messages, ingested.progress.failures), (106, 0));
    assert_eq!(
        service.stats()["misses"],
        0,
        "every message is cut as it was recorded"
    );
    assert_eq!((stats.refs(), stats.terms), (1_603, 1_142));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_answers_cost_only_their_own_chunk() {
    let Some(replay) = replay() else { return };
    let service = Service::start(
        &replay,
        &["--chat-median", "0.01", "--chat-p99", "0.05", "--p-bad", "0.2"],
    );
    let folder = tempfile::tempdir().expect("a folder");
    let (ingested, stats) = ingest(&replay, folder.path(), service.port, 20).await;
    println!("{ingested:?}\n{stats:?}");
    assert_eq!(ingested.progress.messages, 106);
    assert_eq!(ingested.progress.failures, stats.failures);
    assert!(stats.failures < 20 && stats.refs() > 1_300);
}

/// Not a test of its own: what the next one kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_ingests() {
    let (Ok(child), Some(replay)) = (std::env::var(CHILD), replay()) else {
        return;
    };
    let (port, folder) = child.split_once(' ').expect("port and folder");
    ingest(
        &replay,
        Path::new(folder),
        port.parse().expect("a port"),
        CHILD_CONCURRENCY,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_repeats_no_call_whose_outcome_had_arrived() {
    let Some(replay) = replay() else { return };
    let service = Service::start(&replay, &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let mut rng = SplitMix64::new(20);
    // By key: when an answer was sent to a process that lived on for long enough.
    let mut arrived: HashMap<String, f64> = HashMap::new();
    for round in 0..KILLS {
        // The service goes on with calls of a process that was killed: those of this one begin after a mark.
        let began = service.mark(round);
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "child_ingests"])
            .env(CHILD, format!("{} {}", service.port, folder.path().display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        pass(Duration::from_millis(300 + rng.below(900))).await;
        for (key, begun, ended) in answered(&service.events()) {
            if begun > began {
                arrived.entry(key).or_insert(ended);
            }
        }
        pass(ARRIVED).await;
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
    let (_, resumed) = ingest(&replay, folder.path(), service.port, 20).await;
    let calls = answered(&service.events());
    let is_repeat =
        |(key, begun, _): &&(String, f64, f64)| arrived.get(key).is_some_and(|ended| begun > ended);
    let repeated = calls.iter().filter(is_repeat).count();
    println!(
        "{KILLS} kills, {} calls, {} outcomes had arrived before a kill, {repeated} of them repeated",
        calls.len(),
        arrived.len()
    );
    assert!(arrived.len() > 20 && repeated == 0);

    let undisturbed = tempfile::tempdir().expect("a folder");
    let (_, expected) = ingest(&replay, undisturbed.path(), service.port, 20).await;
    let counts = |stats: &KnowledgeStats| {
        (
            stats.messages,
            stats.refs(),
            stats.terms,
            stats.postings,
            stats.failures,
        )
    };
    assert_eq!(counts(&resumed), counts(&expected));
}

/// Lets time pass: a kill must come at a moment that nothing else decides.
async fn pass(time: Duration) {
    let passed = tokio::time::timeout(time, std::future::pending::<()>()).await;
    passed.expect_err("nothing else happens");
}

/// The answered calls: the text's key, when it began and when it ended, in seconds of the service's clock.
fn answered(events: &[Value]) -> Vec<(String, f64, f64)> {
    let chats = events
        .iter()
        .filter(|event| event["kind"] == "chat" && event["status"] == 200);
    let told = chats.filter_map(|event| {
        let key = event["key"].as_str()?.to_owned();
        Some((key, event["t0"].as_f64()?, event["t1"].as_f64()?))
    });
    told.collect()
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

    fn events(&self) -> Vec<Value> {
        self.stats()["events"].as_array().cloned().unwrap_or_default()
    }

    /// Calls the service for an embedding, and tells when that was by the service's clock.
    fn mark(&self, round: u32) -> f64 {
        let body = format!("{{\"input\": \"mark {round}\"}}");
        self.ask(&format!(
            "POST /v1/embeddings HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
        let events = self.events();
        let marks = events.iter().filter(|event| event["kind"] == "embed");
        marks.filter_map(|event| event["t0"].as_f64()).fold(0.0, f64::max)
    }

    fn stats(&self) -> Value {
        self.ask("GET /stats HTTP/1.1\r\n\r\n")
    }

    fn ask(&self, request: &str) -> Value {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).expect("connects");
        stream.write_all(request.as_bytes()).expect("asks");
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
