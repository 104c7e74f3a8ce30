//! Recall finds what people ask for: 60 questions over three sources, see `quality/README.md`.
//!
//! `cargo test -p gristmill-memory --test memory quality -- --nocapture` prints the figures, beside those of plain BM25.

mod measure;

use std::sync::Arc;

use gristmill_memory::extract::LocalExtractor;
use gristmill_memory::pipeline::{IngestOptions, NewInput};
use gristmill_memory::{Memory, RecallOptions};
use measure::{Measured, PlainBm25, Question, questions, recalled, table};

/// What recall@10 and the mean reciprocal rank of all questions must not fall below.
const RECALL_AT_10_MIN: f64 = 0.95;
const RECIPROCAL_RANK_MIN: f64 = 0.72;

fn own_questions() -> Vec<Question> {
    questions(include_str!("questions.jsonl"))
}

async fn filled(place: &str, jobs: &str) -> Memory {
    let memory = Memory::open(place).await.expect("opens");
    let memory = memory.with_jobs(gristmill_memory::Place::of(jobs));
    let inputs = vec![
        NewInput::from_bytes("chat.jsonl", include_bytes!("chat.jsonl").to_vec()),
        NewInput::from_bytes("talk.vtt", include_bytes!("talk.vtt").to_vec()),
        NewInput::from_bytes("notes.md", include_bytes!("notes.md").to_vec()),
    ];
    memory
        .ingest(
            inputs,
            Arc::new(LocalExtractor),
            4,
            IngestOptions::default(),
            |_| {},
        )
        .await
        .expect("ingests");
    memory
}

#[tokio::test]
async fn recall_finds_the_answers_to_most_questions() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let memory = filled(&path("kb.db"), &path("jobs.db")).await;
    let plain = PlainBm25::over(&**memory.knowledge()).await;
    let (mut ours, mut theirs) = (Measured::default(), Measured::default());
    let mut missed = Vec::new();
    for question in own_questions() {
        let found = recalled(&memory, &question.question, &RecallOptions::default()).await;
        if question.places(&found).is_empty() {
            missed.push(question.question.clone());
        }
        ours.add(&question, &found);
        theirs.add(&question, &plain.recalled(&question.question));
    }
    println!(
        "{}missed: {missed:#?}",
        table(&[("recall", &ours), ("BM25", &theirs)])
    );
    let (ours, theirs) = (ours.all(), theirs.all());
    let [_, _, recall] = ours.recall;
    assert!(
        ours.questions >= 60.0 && recall >= RECALL_AT_10_MIN,
        "recall@10 {recall:.3}"
    );
    assert!(
        ours.reciprocal_rank >= RECIPROCAL_RANK_MIN,
        "MRR {:.3}",
        ours.reciprocal_rank
    );
    assert!(
        recall > theirs.recall[2] && ours.gain > theirs.gain,
        "better than plain BM25"
    );
}

#[tokio::test]
async fn both_stores_find_the_same_messages() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let sqlite = filled(&path("kb.db"), &path("jobs.db")).await;
    let database = gristmill_private_postgres::shared()
        .create_database()
        .expect("a database");
    let postgres = filled(&database, &path("other.db")).await;
    let options = RecallOptions::default();
    for question in own_questions() {
        let question = question.question;
        assert_eq!(
            recalled(&sqlite, &question, &options).await,
            recalled(&postgres, &question, &options).await,
            "{question}"
        );
    }
}
