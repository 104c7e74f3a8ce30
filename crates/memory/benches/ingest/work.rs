//! One ingestion in a process of its own, so that its processor time is its own.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_engine::Engine;
use gristmill_memory::extract::{Limiter, LimiterSettings, OpenAiExtractor, OpenAiSettings};
use gristmill_memory::pipeline::{IngestOptions, Ingestion, NewInput};
use gristmill_memory::source::Format;
use gristmill_memory::{KnowledgeStore, SqliteKnowledge, SqliteKnowledgeOptions};
use serde::{Deserialize, Serialize};

/// The variable that carries the work to the process of one ingestion, as JSON.
const WORK_VARIABLE: &str = "GRISTMILL_BENCH_INGESTION";

/// One ingestion.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Work {
    /// The model service's.
    pub base_url: String,
    /// Calls at once.
    pub concurrency: usize,
    /// The limit that the client keeps; `None` for no limit.
    pub tokens_per_minute: Option<f64>,
    /// Messages that are committed before the calls of the next ones begin; `None` overlaps calls and commits.
    pub batch: Option<usize>,
}

/// The cost of an ingestion.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Cost {
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// Chunks whose extraction failed.
    pub failures: u64,
    pub messages: u64,
}

impl Work {
    /// Ingests JSON lines in a new process, into a new knowledge base on disk.
    pub fn run(&self, lines: &str) -> Cost {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        std::fs::write(folder.path().join("messages.jsonl"), lines).expect("writes");
        let output = Command::new(std::env::current_exe().expect("this program"))
            .env(WORK_VARIABLE, serde_json::to_string(self).expect("JSON"))
            .current_dir(folder.path())
            .output()
            .expect("runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    async fn ingest(&self, folder: &Path) -> Cost {
        let lines = std::fs::read_to_string(folder.join("messages.jsonl")).expect("the messages");
        let lines: Vec<&str> = lines.lines().collect();
        let knowledge: Arc<dyn KnowledgeStore> = Arc::new(
            SqliteKnowledge::open(folder.join("kb.db"), SqliteKnowledgeOptions::default()).expect("opens"),
        );
        let engine = Engine::open(&folder.join("jobs.db")).await.expect("opens");
        let limiter = Limiter::new(LimiterSettings {
            concurrency: self.concurrency,
            tokens_per_minute: self.tokens_per_minute,
            requests_per_minute: None,
        });
        let settings = OpenAiSettings {
            base_url: self.base_url.clone(),
            model: "replayed".to_owned(),
            key: None,
            timeout: Duration::from_secs(60),
        };
        let extractor = Arc::new(OpenAiExtractor::new(settings, limiter).expect("settings"));
        let options = IngestOptions::default();
        let ingestion = Ingestion::new(knowledge.clone(), engine, extractor, self.concurrency, options);
        let cpu_before = cpu_seconds();
        let begun = Instant::now();
        let mut failures = 0;
        for (number, batch) in lines.chunks(self.batch.unwrap_or(lines.len())).enumerate() {
            let input = NewInput {
                name: format!("messages-{number}.jsonl"),
                format: Format::JsonLines,
                content: batch.join("\n").into_bytes().into(),
            };
            let ingested = ingestion.run(vec![input], |_| {}).await.expect("ingests");
            failures += ingested.progress.failures;
        }
        Cost {
            seconds: begun.elapsed().as_secs_f64(),
            cpu_seconds: cpu_seconds() - cpu_before,
            failures,
            messages: knowledge.stats().await.expect("stats").messages,
        }
    }
}

/// Whether this process is that of one ingestion: then it has run it, and printed its cost.
pub fn ran_in_this_process() -> bool {
    let Ok(work) = std::env::var(WORK_VARIABLE) else {
        return false;
    };
    let work: Work = serde_json::from_str(&work).expect("JSON");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let cost = runtime.block_on(work.ingest(Path::new(".")));
    println!("{}", serde_json::to_string(&cost).expect("JSON"));
    true
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
