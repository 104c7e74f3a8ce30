//! Recall finds what people ask for: 60 questions over three sources, see `quality/README.md`.
//!
//! `cargo test -p gristmill-memory --test quality -- --nocapture` prints the figures.

use std::collections::BTreeMap;
use std::sync::Arc;

use gristmill_memory::extract::LocalExtractor;
use gristmill_memory::pipeline::{IngestOptions, NewInput};
use gristmill_memory::{Memory, RecallOptions};
use serde::Deserialize;

#[derive(Deserialize)]
struct Question {
    kind: String,
    question: String,
    answer: String,
}

fn questions() -> Vec<Question> {
    let lines = include_str!("quality/questions.jsonl").lines();
    lines
        .map(|line| serde_json::from_str(line).expect("a question"))
        .collect()
}

async fn filled(place: &str, jobs: &str) -> Memory {
    let memory = Memory::open(place).await.expect("opens");
    let memory = memory.with_jobs(gristmill_memory::Place::of(jobs));
    let inputs = vec![
        NewInput::from_bytes("chat.jsonl", include_bytes!("quality/chat.jsonl").to_vec()),
        NewInput::from_bytes("talk.vtt", include_bytes!("quality/talk.vtt").to_vec()),
        NewInput::from_bytes("notes.md", include_bytes!("quality/notes.md").to_vec()),
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

/// The texts that a question finds.
async fn found(memory: &Memory, question: &str) -> Vec<String> {
    let options = RecallOptions {
        messages_max: Some(10),
        ..RecallOptions::default()
    };
    let recalled = memory.recall(question, &options).await.expect("recalls");
    let texts = recalled
        .messages
        .into_iter()
        .map(|found| found.message.message.text());
    texts.collect()
}

#[derive(Default, Clone, Copy)]
struct Quality {
    questions: f64,
    recall: [f64; 3],
    reciprocal_rank: f64,
    gain: f64,
}

impl Quality {
    fn add(&mut self, place: Option<usize>) {
        self.questions += 1.0;
        let Some(place) = place else { return };
        for (recall, k) in self.recall.iter_mut().zip([1, 5, 10]) {
            *recall += f64::from(u8::from(place < k));
        }
        self.reciprocal_rank += 1.0 / (place as f64 + 1.0);
        self.gain += 1.0 / (place as f64 + 2.0).log2();
    }

    fn shares(&self) -> [f64; 5] {
        let [first, five, ten] = self.recall;
        [first, five, ten, self.reciprocal_rank, self.gain].map(|sum| sum / self.questions)
    }
}

#[tokio::test]
async fn finds_what_people_ask_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let memory = filled(&path("kb.db"), &path("jobs.db")).await;
    let mut by_kind: BTreeMap<String, Quality> = BTreeMap::new();
    let mut all = Quality::default();
    let mut missed = Vec::new();
    for question in questions() {
        let texts = found(&memory, &question.question).await;
        let place = texts.iter().position(|text| text.contains(&question.answer));
        by_kind.entry(question.kind).or_default().add(place);
        all.add(place);
        if place.is_none() {
            missed.push(question.question);
        }
    }
    println!("{:9} recall@1  recall@5  recall@10  MRR   nDCG@10", "kind");
    for (kind, quality) in by_kind.iter().chain([(&"all".to_owned(), &all)]) {
        let [first, five, ten, rank, gain] = quality.shares();
        println!("{kind:9} {first:8.2}  {five:8.2}  {ten:9.2}  {rank:.2}  {gain:.2}");
    }
    println!("missed: {missed:#?}");
    let [_, _, recall, rank, _] = all.shares();
    assert!(all.questions >= 60.0 && recall >= 0.93, "recall@10 {recall:.2}");
    assert!(rank >= 0.72, "MRR {rank:.2}");
}

#[tokio::test]
async fn both_stores_find_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let sqlite = filled(&path("kb.db"), &path("jobs.db")).await;
    let database = gristmill_private_postgres::shared()
        .create_database()
        .expect("a database");
    let postgres = filled(&database, &path("other.db")).await;
    for question in questions() {
        let question = question.question;
        assert_eq!(
            found(&sqlite, &question).await,
            found(&postgres, &question).await,
            "{question}"
        );
    }
}
