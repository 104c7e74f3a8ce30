//! How well recall finds the messages that answer questions, beside plain BM25 over the same messages.
//!
//! `cargo bench -p gristmill-memory --bench quality [-- [--embedder MODEL [--vectors FILE]] [--tune] FOLDER…]`. Each FOLDER is a knowledge
//! base: its sources, and `questions.jsonl` as in `tests/memory/quality/`, which is measured where no folder is named. A question
//! names the text of the one message that answers it, or the positions of several in the only source.
//!
//! `--tune` looks for better weights: it changes one at a time by round factors, and keeps what raises the mean of recall@10 over
//! all questions and over kinds of questions. `--vectors` keeps the vectors of a model in a file, so that the next run need not
//! compute them.

#[path = "../tests/memory/quality/measure.rs"]
mod measure;
#[path = "support/remembered.rs"]
mod remembered;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use gristmill_memory::embed::{Embedder, open_local};
use gristmill_memory::extract::LocalExtractor;
use gristmill_memory::pipeline::{IngestOptions, NewInput};
use gristmill_memory::recall::Weights;
use gristmill_memory::{Memory, RecallOptions};
use measure::{Measured, PlainBm25, Question};
use remembered::Remembered;

/// A weight by its name.
type Field = (&'static str, fn(&mut Weights) -> &mut f64);

const FIELDS: [Field; 15] = [
    ("saturation", |weights| &mut weights.saturation),
    ("length_share", |weights| &mut weights.length_share),
    ("neighbours 1", |weights| &mut weights.neighbours[0]),
    ("neighbours 2", |weights| &mut weights.neighbours[1]),
    ("name", |weights| &mut weights.name),
    ("spelling", |weights| &mut weights.spelling),
    ("speaker", |weights| &mut weights.speaker),
    ("time", |weights| &mut weights.time),
    ("brevity", |weights| &mut weights.brevity),
    ("conversation", |weights| &mut weights.conversation),
    ("meaning", |weights| &mut weights.meaning),
    ("cosine_min", |weights| &mut weights.cosine_min),
    ("matched", |weights| &mut weights.matched),
    ("likeness", |weights| &mut weights.likeness),
    ("question", |weights| &mut weights.question),
];

/// What a weight is multiplied by to look for a better one.
const FACTORS: [f64; 4] = [0.5, 0.8, 1.25, 2.0];

/// Rounds of changes at most.
const ROUNDS_MAX: usize = 4;

/// A knowledge base with its questions.
struct Case {
    memory: Memory,
    questions: Vec<Question>,
    _folder: tempfile::TempDir,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (mut folders, mut model, mut vectors, mut tunes) = (Vec::new(), None, None, false);
    let mut weights = Weights::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--tune" => tunes = true,
            "--embedder" => {
                let folder = arguments.next().expect("a folder after --embedder");
                model = Some(open_local(Path::new(&folder)).expect("a model in the folder"));
            }
            "--vectors" => vectors = Some(PathBuf::from(arguments.next().expect("a file after --vectors"))),
            "--set" => {
                let told = arguments.next().expect("NAME=NUMBER after --set");
                let (name, number) = told.split_once('=').expect("NAME=NUMBER after --set");
                let field = FIELDS.iter().find(|(field, _)| *field == name).expect("a weight");
                *field.1(&mut weights) = number.parse().expect("a number");
            }
            folder => folders.push(PathBuf::from(folder)),
        }
    }
    if folders.is_empty() {
        folders.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/memory/quality"));
    }
    let remembered = model.map(|model| Arc::new(Remembered::new(model, vectors)));
    let embedder = remembered.clone().map(|embedder| embedder as Arc<dyn Embedder>);
    let mut cases = Vec::new();
    for folder in &folders {
        cases.push(fill(folder, embedder.clone()).await);
    }
    if tunes {
        weights = tune(&cases, weights).await;
    }
    let begun = Instant::now();
    let ours = measure_all(&cases, weights).await;
    let seconds = begun.elapsed().as_secs_f64();
    let plain = measure_plain(&cases).await;
    print!("{}", measure::table(&[("recall", &ours), ("BM25", &plain)]));
    println!(
        "\n{:.1} ms a recall",
        seconds * 1_000.0 / ours.all().questions.max(1.0)
    );
    if let Some(remembered) = remembered {
        remembered.keep();
    }
}

async fn fill(folder: &Path, embedder: Option<Arc<dyn Embedder>>) -> Case {
    let kept = tempfile::tempdir().expect("a folder");
    let place = kept.path().join("kb.db").display().to_string();
    let memory = Memory::open(&place).await.expect("opens").with_embedder(embedder);
    let mut inputs = Vec::new();
    let mut questions = Vec::new();
    let entries = std::fs::read_dir(folder).expect("a folder of sources");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let bytes = || std::fs::read(&path).expect("reads");
        match name.as_str() {
            "questions.jsonl" => questions = measure::questions(&String::from_utf8(bytes()).expect("UTF-8")),
            "README.md" => {}
            name if name.ends_with(".rs") => {}
            name => inputs.push(NewInput::from_bytes(name, bytes())),
        }
    }
    let options = IngestOptions::default();
    let ingested = memory
        .ingest(inputs, Arc::new(LocalExtractor), 2, options, |_| {})
        .await;
    ingested.expect("ingests");
    Case {
        memory,
        questions,
        _folder: kept,
    }
}

async fn measure_all(cases: &[Case], weights: Weights) -> Measured {
    let options = RecallOptions {
        weights,
        ..RecallOptions::default()
    };
    let mut measured = Measured::default();
    for case in cases {
        for question in &case.questions {
            let found = measure::recalled(&case.memory, &question.question, &options).await;
            measured.add(question, &found);
        }
    }
    measured
}

async fn measure_plain(cases: &[Case]) -> Measured {
    let mut measured = Measured::default();
    for case in cases {
        let plain = PlainBm25::over(&**case.memory.knowledge()).await;
        for question in &case.questions {
            measured.add(question, &plain.recalled(&question.question));
        }
    }
    measured
}

/// Changes one weight at a time, and keeps what is better.
async fn tune(cases: &[Case], mut weights: Weights) -> Weights {
    let mut best = worth(&measure_all(cases, weights).await);
    println!("at first: {best:.4}");
    for round in 1..=ROUNDS_MAX {
        let before = best;
        for (name, field) in FIELDS {
            let now = *field(&mut weights);
            // A weight of 0 stays 0 when multiplied, so 0.1 and 1 are tried instead.
            let tries: Vec<f64> = if now == 0.0 {
                vec![0.1, 1.0]
            } else {
                FACTORS
                    .map(|factor| (now * factor * 1_000.0).round() / 1_000.0)
                    .into()
            };
            for number in tries {
                let mut other = weights;
                *field(&mut other) = number;
                let other_worth = worth(&measure_all(cases, other).await);
                if other_worth > best + 0.0005 {
                    println!("round {round}: {name} {number}: {best:.4} -> {other_worth:.4}");
                    (best, weights) = (other_worth, other);
                }
            }
        }
        if best - before < 0.0005 {
            break;
        }
    }
    println!("{weights:#?}");
    weights
}

/// The figure that `--tune` raises: the mean of recall@10 over all questions and over kinds of questions.
fn worth(measured: &Measured) -> f64 {
    let kinds = measured.by_kind();
    let of_kinds: f64 = kinds.iter().map(|(_, figures)| figures.recall[2]).sum();
    (measured.all().recall[2] + of_kinds / kinds.len().max(1) as f64) / 2.0
}
