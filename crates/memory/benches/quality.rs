//! How well recall finds the messages that answer questions, beside plain BM25 over the same messages.
//!
//! `cargo bench -p gristmill-memory --bench quality [-- [--embedder MODEL [--vectors FILE]] [--reranker MODEL] [--tune] [--half 0]
//! FOLDER…]`. Each FOLDER is a knowledge base: its sources, and `questions.jsonl` as in `tests/memory/quality/`, which is
//! measured where no folder is named. A question names the text of the one message that answers it, the positions of several in
//! the only source, the Message-IDs of a thread, or the lines of a conversation.
//!
//! `--missed` tells the questions whose answers are not found.
//!
//! `--half 0` takes every other question, and `--half 1` the others: weights are chosen with one half, and reported on the other.
//!
//! `--tune` looks for better weights: it changes one at a time by round factors, and keeps what raises the mean of recall@10
//! and MRR over kinds of questions. `--vectors` keeps the vectors of a model in a file, so that the next run need not
//! compute them.

#[path = "../tests/memory/quality/measure.rs"]
mod measure;
#[path = "support/remembered.rs"]
mod remembered;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use gristmill_memory::embed::{CrossEncoder, Embedder, open_local};
use gristmill_memory::extract::LocalExtractor;
use gristmill_memory::pipeline::{IngestOptions, NewInput};
use gristmill_memory::recall::Weights;
use gristmill_memory::{Memory, RecallOptions};
use measure::{FullText, Measured, PlainBm25, Question};
use remembered::Remembered;

/// A weight by its name.
type Field = (&'static str, fn(&mut Weights) -> &mut f64);

/// The weights of one kind of source, by their names.
macro_rules! of_kind {
    ($kind:literal, $number:literal) => {
        [
            (concat!($kind, " saturation"), |weights| {
                &mut weights.kinds[$number].saturation
            }),
            (concat!($kind, " matched"), |weights| {
                &mut weights.kinds[$number].matched
            }),
            (concat!($kind, " length_share"), |weights| {
                &mut weights.kinds[$number].length_share
            }),
            (concat!($kind, " neighbours 1"), |weights| {
                &mut weights.kinds[$number].neighbours[0]
            }),
            (concat!($kind, " neighbours 2"), |weights| {
                &mut weights.kinds[$number].neighbours[1]
            }),
            (concat!($kind, " brevity"), |weights| {
                &mut weights.kinds[$number].brevity
            }),
            (concat!($kind, " conversation"), |weights| {
                &mut weights.kinds[$number].conversation
            }),
            (concat!($kind, " likeness"), |weights| {
                &mut weights.kinds[$number].likeness
            }),
            (concat!($kind, " question"), |weights| {
                &mut weights.kinds[$number].question
            }),
            (concat!($kind, " subject"), |weights| {
                &mut weights.kinds[$number].subject
            }),
            (concat!($kind, " coverage"), |weights| {
                &mut weights.kinds[$number].coverage
            }),
            (concat!($kind, " nearness"), |weights| {
                &mut weights.kinds[$number].nearness
            }),
            (concat!($kind, " repeated"), |weights| {
                &mut weights.kinds[$number].repeated
            }),
        ]
    };
}

const COMMON: [Field; 6] = [
    ("name", |weights| &mut weights.name),
    ("spelling", |weights| &mut weights.spelling),
    ("speaker", |weights| &mut weights.speaker),
    ("time", |weights| &mut weights.time),
    ("meaning", |weights| &mut weights.meaning),
    ("cosine_min", |weights| &mut weights.cosine_min),
];
const DIALOGUE: [Field; 13] = of_kind!("dialogue", 0);
const CHANNEL: [Field; 13] = of_kind!("channel", 1);
const MAIL: [Field; 13] = of_kind!("mail", 2);
const DOCUMENT: [Field; 13] = of_kind!("document", 3);

/// All weights.
fn fields() -> impl Iterator<Item = Field> {
    COMMON
        .into_iter()
        .chain(DIALOGUE)
        .chain(CHANNEL)
        .chain(MAIL)
        .chain(DOCUMENT)
}

/// What a weight is multiplied by to look for a better one.
const FACTORS: [f64; 4] = [0.5, 0.8, 1.25, 2.0];

/// Rounds of changes at most.
const ROUNDS_MAX: usize = 4;

/// A knowledge base with its questions.
struct Case {
    memory: Memory,
    questions: Vec<Question>,
    reranker: Option<CrossEncoder>,
    _folder: tempfile::TempDir,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (mut folders, mut model, mut vectors, mut tunes) = (Vec::new(), None, None, false);
    let (mut weights, mut half, mut tells_missed, mut reranker) = (Weights::default(), None, false, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--tune" => tunes = true,
            "--missed" => tells_missed = true,
            "--half" => {
                let told = arguments.next().expect("0 or 1 after --half");
                half = Some(told.parse::<usize>().expect("0 or 1"));
            }
            "--embedder" => {
                let folder = arguments.next().expect("a folder after --embedder");
                model = Some(open_local(Path::new(&folder)).expect("a model in the folder"));
            }
            "--reranker" => {
                let folder = arguments.next().expect("a folder after --reranker");
                reranker = Some(CrossEncoder::open(Path::new(&folder)).expect("a model in the folder"));
            }
            "--vectors" => vectors = Some(PathBuf::from(arguments.next().expect("a file after --vectors"))),
            "--set" => {
                let told = arguments.next().expect("NAME=NUMBER after --set");
                let (name, number) = told.split_once('=').expect("NAME=NUMBER after --set");
                let field = fields().find(|(field, _)| *field == name).expect("a weight");
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
        cases.push(Case {
            reranker: reranker.clone(),
            ..fill(folder, embedder.clone()).await
        });
    }
    if let Some(half) = half {
        for case in &mut cases {
            let mut number = 0;
            case.questions.retain(|_| {
                number += 1;
                (number - 1) % 2 == half
            });
        }
    }
    if tunes {
        weights = tune(&cases, weights).await;
    }
    let begun = Instant::now();
    let ours = measure_all(&cases, weights, tells_missed).await;
    let seconds = begun.elapsed().as_secs_f64();
    let (plain, full_text) = measure_plain(&cases).await;
    print!(
        "{}",
        measure::table(&[("recall", &ours), ("BM25", &plain), ("FTS5, porter", &full_text)])
    );
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
        reranker: None,
        _folder: kept,
    }
}

async fn measure_all(cases: &[Case], weights: Weights, tells_missed: bool) -> Measured {
    let mut measured = Measured::default();
    for case in cases {
        let options = RecallOptions {
            weights,
            reranker: case.reranker.clone(),
            ..RecallOptions::default()
        };
        for question in &case.questions {
            let found = measure::recalled(&case.memory, &question.question, &options).await;
            measured.add(question, &found);
            if tells_missed && question.places(&found).is_empty() {
                println!("missed: {}", question.question);
            }
        }
    }
    measured
}

async fn measure_plain(cases: &[Case]) -> (Measured, Measured) {
    let (mut plain, mut full_text) = (Measured::default(), Measured::default());
    for case in cases {
        let store = &**case.memory.knowledge();
        let (by_bm25, by_sqlite) = (PlainBm25::over(store).await, FullText::over(store).await);
        for question in &case.questions {
            plain.add(question, &by_bm25.recalled(&question.question));
            full_text.add(question, &by_sqlite.recalled(&question.question));
        }
    }
    (plain, full_text)
}

/// Changes one weight at a time, and keeps what is better.
async fn tune(cases: &[Case], mut weights: Weights) -> Weights {
    let mut best = worth(&measure_all(cases, weights, false).await);
    println!("at first: {best:.4}");
    for round in 1..=ROUNDS_MAX {
        let before = best;
        for (name, field) in fields() {
            let now = *field(&mut weights);
            // A weight of 0 stays 0 when multiplied, so 0.1 and 1 are tried instead.
            let tries: Vec<f64> = if now == 0.0 {
                vec![0.1, 0.3, 1.0]
            } else {
                FACTORS
                    .map(|factor| (now * factor * 1_000.0).round() / 1_000.0)
                    .into()
            };
            for number in tries {
                let mut other = weights;
                *field(&mut other) = number;
                let other_worth = worth(&measure_all(cases, other, false).await);
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

/// The figure that `--tune` raises: the mean of recall@10 and MRR over kinds of questions.
fn worth(measured: &Measured) -> f64 {
    let kinds = measured.by_kind();
    let of_kinds = kinds
        .iter()
        .map(|(_, figures)| (figures.recall[2] + figures.reciprocal_rank) / 2.0);
    of_kinds.sum::<f64>() / kinds.len().max(1) as f64
}
