//! Recall finds what people ask for: 60 questions over three sources, see `quality/README.md`.
//!
//! `cargo test -p gristmill-memory --test memory quality -- --nocapture` prints the figures, beside those of plain BM25.

mod measure;

use std::sync::Arc;

use gristmill_memory::extract::LocalExtractor;
use gristmill_memory::pipeline::{IngestOptions, NewInput};
use gristmill_memory::{Memory, RecallOptions};
use measure::{FullText, Measured, PlainBm25, Question, questions, recalled, table};

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
    let full_text = FullText::over(&**memory.knowledge()).await;
    let (mut ours, mut theirs, mut by_sqlite) =
        (Measured::default(), Measured::default(), Measured::default());
    let mut missed = Vec::new();
    for question in own_questions() {
        let found = recalled(&memory, &question.question, &RecallOptions::default()).await;
        if question.places(&found).is_empty() {
            missed.push(question.question.clone());
        }
        ours.add(&question, &found);
        theirs.add(&question, &plain.recalled(&question.question));
        by_sqlite.add(&question, &full_text.recalled(&question.question));
    }
    println!(
        "{}missed: {missed:#?}",
        table(&[("recall", &ours), ("BM25", &theirs), ("FTS5, porter", &by_sqlite)])
    );
    let (ours, theirs, by_sqlite) = (ours.all(), theirs.all(), by_sqlite.all());
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
        recall > theirs.recall[2] && ours.gain > theirs.gain && recall > by_sqlite.recall[2],
        "better than plain BM25 and SQLite's full text search"
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

#[tokio::test]
async fn the_parts_of_a_score_add_up_to_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let memory = filled(&path("kb.db"), &path("jobs.db")).await;
    let options = RecallOptions {
        explain: true,
        ..RecallOptions::default()
    };
    let mut parts = std::collections::BTreeSet::new();
    for question in own_questions() {
        let explained = memory
            .recall(&question.question, &options)
            .await
            .expect("recalls");
        for message in &explained.messages {
            let sum: f64 = message.explanation.iter().map(|part| part.gain).sum();
            assert!((sum - message.score).abs() < 1e-9, "{question:?}: {message:?}");
            parts.extend(message.explanation.iter().map(|part| part.part));
        }
        let plain = memory
            .recall(&question.question, &RecallOptions::default())
            .await
            .expect("recalls");
        let scores = |recalled: &gristmill_memory::recall::Recalled| -> Vec<f64> {
            recalled.messages.iter().map(|message| message.score).collect()
        };
        assert_eq!(scores(&plain), scores(&explained));
        assert!(
            plain
                .messages
                .iter()
                .all(|message| message.explanation.is_empty())
        );
    }
    for part in [
        "words",
        "neighbours",
        "conversation",
        "knowledge",
        "likeness",
        "speaker",
    ] {
        assert!(parts.contains(part), "{part} is in none of {parts:?}");
    }
}

#[tokio::test]
async fn sources_speakers_and_times_limit_what_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let memory = filled(&path("kb.db"), &path("jobs.db")).await;
    let all = memory
        .recall("Which course did Nora sign up for?", &RecallOptions::default())
        .await
        .expect("recalls");
    let speaker = all
        .messages
        .iter()
        .find_map(|found| found.message.message.speaker.clone());
    let speaker = speaker.expect("someone speaks");
    let only = |sources: &[&str], speakers: &[&str]| RecallOptions {
        messages_max: None,
        sources: sources.iter().map(|&name| name.to_owned()).collect(),
        speakers: speakers.iter().map(|&name| name.to_owned()).collect(),
        ..RecallOptions::default()
    };
    let notes = memory
        .recall("", &only(&["notes.md"], &[]))
        .await
        .expect("recalls")
        .messages;
    let stored = memory
        .knowledge()
        .source("notes.md")
        .await
        .expect("reads")
        .expect("a source");
    assert_eq!(
        notes.len(),
        stored.messages as usize,
        "without a question, all are listed"
    );
    assert!(notes.is_sorted_by_key(|found| found.message.position));
    let spoken = memory
        .recall("", &only(&[], &[&speaker]))
        .await
        .expect("recalls")
        .messages;
    assert!(!spoken.is_empty());
    assert!(
        spoken
            .iter()
            .all(|found| found.message.message.speaker.as_ref() == Some(&speaker))
    );
    let both = memory
        .recall("", &only(&["notes.md"], &[&speaker]))
        .await
        .expect("recalls")
        .messages;
    assert!(both.iter().all(|found| found.message.source == "notes.md"));
    let unknown = memory
        .recall("", &only(&["nothing.md"], &[]))
        .await
        .expect_err("no such source");
    assert!(unknown.to_string().contains("nothing.md"), "{unknown}");
}
