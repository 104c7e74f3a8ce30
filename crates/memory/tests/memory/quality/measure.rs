//! How well messages are found: recall@1, recall@5, recall@10, MRR and nDCG@10 by kind of question, of Gristmill and of
//! plain BM25 over the same messages.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gristmill_memory::store::StoredMessage;
use gristmill_memory::{KnowledgeStore, Memory, RecallOptions};
use rusqlite::{Connection, params};
use serde::Deserialize;

/// The first results that are looked at.
pub const RESULTS_MAX: usize = 10;

/// Messages of one source that are read at most.
const MESSAGES_MAX: u32 = 1_000_000;

/// Words that plain BM25 leaves out.
const STOP_WORDS: [&str; 40] = [
    "a", "an", "and", "are", "at", "by", "did", "do", "does", "for", "from", "he", "her", "his", "how", "i",
    "in", "is", "it", "its", "my", "of", "on", "or", "she", "that", "the", "their", "they", "this", "to",
    "was", "were", "what", "when", "where", "which", "who", "with", "you",
];

/// A question, and what answers it.
#[derive(Debug, Clone, Deserialize)]
pub struct Question {
    /// What makes it hard.
    pub kind: String,
    /// The question.
    pub question: String,
    /// A part of the one message that answers it.
    #[serde(default)]
    pub answer: Option<String>,
    /// The positions of the messages that answer it, where they are of one source.
    #[serde(default)]
    pub evidence: Vec<u32>,
    /// The Message-IDs of a thread that answers it, any of which is enough.
    #[serde(default)]
    pub ids: Vec<String>,
    /// The first and last line of a conversation that answers it, any of which is enough.
    #[serde(default)]
    pub span: Option<(u32, u32)>,
}

/// The questions of a file of JSON lines.
pub fn questions(lines: &str) -> Vec<Question> {
    let lines = lines.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| serde_json::from_str(line).expect("a question"))
        .collect()
}

/// A message as it is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its position in its source.
    pub position: u32,
    /// Its text.
    pub text: String,
    /// Its Message-ID.
    pub id: Option<String>,
    /// The line at which it stands.
    pub line: Option<u32>,
}

impl Found {
    fn of(stored: &StoredMessage) -> Found {
        let message = &stored.message;
        Found {
            position: stored.position,
            text: message.text(),
            id: message.id.clone(),
            line: message
                .place
                .as_deref()
                .and_then(|place| place.strip_prefix("line ")?.parse().ok()),
        }
    }
}

impl Question {
    /// How many messages answer it.
    pub fn answers(&self) -> usize {
        let is_one = self.answer.is_some() || !self.ids.is_empty() || self.span.is_some();
        usize::from(is_one) + self.evidence.len()
    }

    /// The places, from 0, of the messages that answer it.
    pub fn places(&self, found: &[Found]) -> Vec<usize> {
        let mut places = Vec::new();
        for (place, message) in found.iter().enumerate() {
            let has_answer = self
                .answer
                .as_ref()
                .is_some_and(|answer| one_line(&message.text).contains(&one_line(answer)));
            let is_of_thread = message.id.as_ref().is_some_and(|id| self.ids.contains(id));
            let is_in_span = self
                .span
                .zip(message.line)
                .is_some_and(|((first, last), line)| (first..=last).contains(&line));
            // One message is enough; another one that repeats it later counts for nothing.
            let is_one = places.is_empty() && (has_answer || is_of_thread || is_in_span);
            if is_one || self.evidence.contains(&message.position) {
                places.push(place);
            }
        }
        places
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// All messages of a knowledge base.
pub async fn all_messages(store: &dyn KnowledgeStore) -> Vec<(String, Found)> {
    let mut all = Vec::new();
    for source in store.sources().await.expect("sources") {
        let messages = store.source_messages(&source.name, 0, MESSAGES_MAX).await;
        all.extend(messages.expect("messages").into_iter().map(|stored| {
            let message = &stored.message;
            let spoken = format!(
                "{} {} {}",
                message.speaker.clone().unwrap_or_default(),
                message.subject.clone().unwrap_or_default(),
                message.text()
            );
            (spoken, Found::of(&stored))
        }));
    }
    all
}

/// The first results of Gristmill.
pub async fn recalled(memory: &Memory, question: &str, options: &RecallOptions) -> Vec<Found> {
    let options = RecallOptions {
        messages_max: Some(RESULTS_MAX),
        ..options.clone()
    };
    let recalled = memory.recall(question, &options).await.expect("recalls");
    recalled
        .messages
        .iter()
        .map(|found| Found::of(&found.message))
        .collect()
}

/// BM25 over whole words, without stems, neighbours or anything else.
pub struct PlainBm25 {
    messages: Vec<(BTreeMap<String, f64>, f64, Found)>,
    standing: BTreeMap<String, f64>,
    mean_length: f64,
}

impl PlainBm25 {
    /// Reads all messages of a knowledge base, with the names of their speakers.
    pub async fn over(store: &dyn KnowledgeStore) -> PlainBm25 {
        let mut standing: BTreeMap<String, f64> = BTreeMap::new();
        let mut messages = Vec::new();
        for (spoken, found) in all_messages(store).await {
            let mut counts: BTreeMap<String, f64> = BTreeMap::new();
            for word in plain_words(&spoken) {
                *counts.entry(word).or_default() += 1.0;
            }
            for word in counts.keys() {
                *standing.entry(word.clone()).or_default() += 1.0;
            }
            let length = counts.values().sum::<f64>();
            messages.push((counts, length, found));
        }
        let total: f64 = messages.iter().map(|(_, length, _)| length).sum();
        PlainBm25 {
            mean_length: (total / messages.len().max(1) as f64).max(1.0),
            messages,
            standing,
        }
    }

    /// The first results.
    pub fn recalled(&self, question: &str) -> Vec<Found> {
        let mut words: Vec<String> = plain_words(question).collect();
        words.sort_unstable();
        words.dedup();
        let all = self.messages.len() as f64;
        let mut scored: Vec<(f64, &Found)> = Vec::new();
        for (counts, length, found) in &self.messages {
            let score: f64 = words
                .iter()
                .filter_map(|word| {
                    let (count, with_word) = (counts.get(word)?, self.standing.get(word)?);
                    let rarity = (1.0 + (all - with_word + 0.5) / (with_word + 0.5)).ln();
                    Some(rarity * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length / self.mean_length)))
                })
                .sum();
            if score > 0.0 {
                scored.push((score, found));
            }
        }
        // Stable: messages of equal scores stay in reading order.
        scored.sort_by(|left, right| right.0.total_cmp(&left.0));
        scored
            .into_iter()
            .take(RESULTS_MAX)
            .map(|(_, found)| found.clone())
            .collect()
    }
}

/// The full text search of SQLite with its stemmer for English, which ranks by BM25.
pub struct FullText {
    connection: Connection,
    messages: Vec<Found>,
}

impl FullText {
    /// Indexes all messages of a knowledge base, with the names of their speakers and their subjects.
    pub async fn over(store: &dyn KnowledgeStore) -> FullText {
        let connection = Connection::open_in_memory().expect("opens");
        let table = "CREATE VIRTUAL TABLE message USING fts5 (text, tokenize = 'porter unicode61')";
        connection.execute(table, []).expect("FTS5");
        let mut messages = Vec::new();
        for (spoken, found) in all_messages(store).await {
            let row = params![messages.len() as i64, spoken];
            let insert = "INSERT INTO message (rowid, text) VALUES (?, ?)";
            connection.execute(insert, row).expect("inserts");
            messages.push(found);
        }
        FullText { connection, messages }
    }

    /// The first results for any of the words of a question.
    pub fn recalled(&self, question: &str) -> Vec<Found> {
        let words: Vec<String> = plain_words(question).map(|word| format!("\"{word}\"")).collect();
        if words.is_empty() {
            return Vec::new();
        }
        let select = "SELECT rowid FROM message WHERE message MATCH ? ORDER BY rank LIMIT ?";
        let mut statement = self.connection.prepare_cached(select).expect("prepares");
        let rows = statement
            .query_map(params![words.join(" OR "), RESULTS_MAX as i64], |row| row.get(0))
            .expect("queries");
        let numbers = rows.map(|number: rusqlite::Result<i64>| number.expect("a number") as usize);
        numbers.map(|number| self.messages[number].clone()).collect()
    }
}

fn plain_words(text: &str) -> impl Iterator<Item = String> {
    text.split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .filter(|word| !STOP_WORDS.contains(&word.as_str()))
}

/// Sums over questions.
#[derive(Debug, Default, Clone, Copy)]
pub struct Sums {
    questions: f64,
    recall: [f64; 3],
    reciprocal_rank: f64,
    gain: f64,
}

/// The figures of some questions: means, from 0 to 1.
#[derive(Debug, Default, Clone, Copy)]
pub struct Figures {
    /// How many questions.
    pub questions: f64,
    /// Recall@1, recall@5 and recall@10: the share of the messages that answer.
    pub recall: [f64; 3],
    /// The mean of the inverse of the place of the first message that answers.
    pub reciprocal_rank: f64,
    /// nDCG@10.
    pub gain: f64,
}

impl Sums {
    /// Adds a question with so many answers, found at these places.
    fn add(&mut self, answers: usize, places: &[usize]) {
        self.questions += 1.0;
        for (recall, k) in self.recall.iter_mut().zip([1, 5, 10]) {
            let found = places.iter().filter(|&&place| place < k).count();
            *recall += found as f64 / answers.max(1) as f64;
        }
        self.reciprocal_rank += places.first().map_or(0.0, |&first| 1.0 / (first as f64 + 1.0));
        let gain_at = |place: usize| 1.0 / (place as f64 + 2.0).log2();
        let ideal: f64 = (0..answers.min(RESULTS_MAX)).map(gain_at).sum();
        let gain: f64 = places.iter().map(|&place| gain_at(place)).sum();
        self.gain += if ideal > 0.0 { gain / ideal } else { 0.0 };
    }

    fn figures(&self) -> Figures {
        let mean = |sum: f64| sum / self.questions.max(1.0);
        Figures {
            questions: self.questions,
            recall: self.recall.map(mean),
            reciprocal_rank: mean(self.reciprocal_rank),
            gain: mean(self.gain),
        }
    }
}

/// The results of all questions, by kind.
#[derive(Debug, Default, Clone)]
pub struct Measured {
    by_kind: BTreeMap<String, Sums>,
    all: Sums,
}

impl Measured {
    /// Adds what was found for a question.
    pub fn add(&mut self, question: &Question, found: &[Found]) {
        let (answers, places) = (question.answers(), question.places(found));
        self.by_kind
            .entry(question.kind.clone())
            .or_default()
            .add(answers, &places);
        self.all.add(answers, &places);
    }

    /// The figures of all questions.
    pub fn all(&self) -> Figures {
        self.all.figures()
    }

    /// The figures by kind.
    pub fn by_kind(&self) -> Vec<(&str, Figures)> {
        self.by_kind
            .iter()
            .map(|(kind, sums)| (kind.as_str(), sums.figures()))
            .collect()
    }
}

/// A table of the figures of several ways to find messages.
pub fn table(ways: &[(&str, &Measured)]) -> String {
    let mut text =
        String::from("| questions | number | found by | recall@1 | recall@5 | recall@10 | MRR | nDCG@10 |\n");
    text.push_str("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    let mut line = |kind: &str, way: &str, figures: Figures| {
        let Figures {
            questions,
            recall: [first, five, ten],
            reciprocal_rank,
            gain,
        } = figures;
        writeln!(
            text,
            "| {kind} | {questions} | {way} | {first:.3} | {five:.3} | {ten:.3} | {reciprocal_rank:.3} | {gain:.3} |"
        ).expect("a string takes all");
    };
    for (way, measured) in ways {
        for (kind, figures) in measured.by_kind() {
            line(kind, way, figures);
        }
        line("all", way, measured.all());
    }
    text
}
