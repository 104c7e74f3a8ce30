//! How many turns of a conversation a second get vectors from models on this machine, and how long a question takes.
//!
//! `cargo bench -p gristmill-memory --bench embed -- MODEL…` (`make bench-memory-embed MODELS='DIR …'`). Each MODEL is a folder.
//! The same turns are ingested by the rules without an embedder, and then with each model; all vectors are on disk at the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_memory::Memory;
use gristmill_memory::embed::{Embedder, open_local};
use gristmill_memory::extract::LocalExtractor;
use gristmill_memory::pipeline::{IngestOptions, NewInput};
use serde_json::{Value, json};

/// Turns that are repeated. Each repetition has a number, so that no two are the same.
const TURNS: &str = include_str!("../tests/memory/quality/chat.jsonl");

/// Turns that are ingested: enough for a static model to run for seconds.
const TURNS_OF_STATIC: usize = 10_000;

/// Turns that are ingested with a BERT model, which takes a hundred times as long.
const TURNS_OF_BERT: usize = 1_000;

/// Questions whose vectors are timed.
const QUESTIONS: usize = 100;

#[tokio::main]
async fn main() {
    let models: Vec<PathBuf> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .map(PathBuf::from)
        .collect();
    assert!(!models.is_empty(), "name the folders of models");
    println!(
        "| vectors | turns | seconds | turns/s | without vectors, turns/s | share of that | a question, ms |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for folder in models {
        let embedder = open_local(&folder).unwrap_or_else(|error| panic!("{error}"));
        let turns = if embedder.identity().starts_with("bert ") {
            TURNS_OF_BERT
        } else {
            TURNS_OF_STATIC
        };
        let without = ingest(turns, None).await;
        let with = ingest(turns, Some(embedder.clone())).await;
        let a_second = |took: Duration| turns as f64 / took.as_secs_f64();
        println!(
            "| {} | {turns} | {:.2} | {:.0} | {:.0} | {:.2} | {:.2} |",
            name(&folder),
            with.as_secs_f64(),
            a_second(with),
            a_second(without),
            without.as_secs_f64() / with.as_secs_f64(),
            question(&*embedder).await.as_secs_f64() * 1_000.0
        );
    }
}

/// The last part of a folder's path, except for `model`, which many packages use.
fn name(folder: &Path) -> String {
    let parts = folder
        .iter()
        .rev()
        .map(|part| part.to_string_lossy().into_owned());
    parts.into_iter().find(|part| part != "model").unwrap_or_default()
}

/// Ingests turns, and measures the time until all vectors are on disk.
async fn ingest(turns: usize, embedder: Option<Arc<dyn Embedder>>) -> Duration {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let place = folder.path().join("kb.db").display().to_string();
    let is_embedded = embedder.is_some();
    let memory = Memory::open(&place).await.expect("opens").with_embedder(embedder);
    let said: Vec<Value> = TURNS
        .lines()
        .map(|line| serde_json::from_str(line).expect("a turn"))
        .collect();
    let lines = said.iter().cycle().take(turns).enumerate().map(|(number, turn)| {
        let text = format!("{} ({number})", turn["text"].as_str().unwrap_or_default());
        format!("{}\n", json!({ "speaker": turn["speaker"], "text": text }))
    });
    let input = NewInput::from_bytes("chat.jsonl", lines.collect::<String>().into_bytes());
    let begun = Instant::now();
    let ingested = memory
        .ingest(
            vec![input],
            Arc::new(LocalExtractor),
            2,
            IngestOptions::default(),
            |_| {},
        )
        .await
        .expect("ingests");
    let took = begun.elapsed();
    assert_eq!(ingested.progress.messages as usize, turns);
    assert_eq!(ingested.vectors >= turns as u64, is_embedded);
    took
}

/// The median time of a question's vector.
async fn question(embedder: &dyn Embedder) -> Duration {
    let mut took = Vec::new();
    for number in 0..QUESTIONS {
        let begun = Instant::now();
        let asked = vec![format!(
            "What did Nora make in the pottery course, part {number}?"
        )];
        embedder.embed(asked).await.expect("a vector");
        took.push(begun.elapsed());
    }
    took.sort();
    took[QUESTIONS / 2]
}
