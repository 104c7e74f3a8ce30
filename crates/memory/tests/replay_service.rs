//! Ingestion from the replayed model service, from the folder that `GRISTMILL_REPLAY` names; skipped without it. Run
//! with `make test-replay REPLAY=DIR`.

mod replayed;

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use gristmill_engine::Engine;
use gristmill_memory::extract::{Limiter, LimiterSettings, OpenAiExtractor, OpenAiSettings};
use gristmill_memory::pipeline::{IngestOptions, Ingested, Ingestion, NewInput};
use gristmill_memory::source::Format;
use gristmill_memory::store::KnowledgeStats;
use gristmill_memory::{KnowledgeStore, SqliteKnowledge, SqliteKnowledgeOptions};
use gristmill_model::{Rng, SplitMix64};
use replayed::{ARRIVED, Service, answered, pass, replay};

/// How often the ingestion is killed.
const KILLS: u32 = 20;

/// Few calls at once, so that the ingestion lasts over many kills.
const CHILD_CONCURRENCY: usize = 3;

const CHILD: &str = "GRISTMILL_REPLAY_CHILD";

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
