//! Recall over a knowledge base of 1,000,000 refs, made up by a seed.
//!
//! `cargo bench -p gristmill-memory --bench recall [-- REFS [QUESTIONS [FILE]]]`. Prints the quantiles of the time of
//! one recall, its messages and refs read from the database included: by rules from a question in words, and of a
//! structured query that asks for common types and verbs. With FILE, the knowledge base is kept there, and one that
//! is there already is asked as it is.

#[path = "support/made_up.rs"]
mod made_up;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use gristmill_memory::query::search_query::{EntityTerm, SearchExpression, SearchFilter, SearchQuery};
use gristmill_memory::recall::{Relations, recall_query};
use gristmill_memory::store::{Change, KnowledgeStore, NewMessage, NewSource, SqliteKnowledge};
use gristmill_memory::{Message, Moment, RecallOptions, SqliteKnowledgeOptions, recall};
use gristmill_model::{Rng, SplitMix64, Timestamp};

const REFS_PER_CHUNK: u32 = 6;
const COMMIT_CHUNKS: u32 = 500;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let number = |at: usize, default: u32| {
        let told = arguments.get(at).map(|text| text.parse().expect("a number"));
        told.unwrap_or(default)
    };
    let (refs, questions) = (number(0, 1_000_000), number(1, 1_000));
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = arguments
        .get(2)
        .map_or_else(|| folder.path().join("kb.db"), PathBuf::from);
    let is_kept = path.exists();
    let store = SqliteKnowledge::open(path, SqliteKnowledgeOptions::default()).expect("opens");
    let mut rng = SplitMix64::new(5);
    let vocabulary = made_up::Vocabulary::new(50_000, &mut rng);
    let begun = Instant::now();
    if !is_kept {
        fill(&store, &vocabulary, refs, &mut rng).await;
    }
    let mut rng = SplitMix64::new(6);
    let stats = store.stats().await.expect("stats");
    println!(
        "{} refs, {} terms, {} messages, {} MB, filled in {:.1} s",
        stats.refs(),
        stats.terms,
        stats.messages,
        stats.bytes >> 20,
        begun.elapsed().as_secs_f64()
    );
    let mut by_words = Vec::new();
    let mut structured = Vec::new();
    for number in 0..questions + 20 {
        let took = ask_by_words(&store, &vocabulary, &mut rng).await;
        let took_structured = ask_structured(&store, &vocabulary, &mut rng).await;
        // The first ones warm up.
        if number >= 20 {
            by_words.push(took);
            structured.push(took_structured);
        }
    }
    print("questions in words", by_words);
    print("structured, common types", structured);
}

async fn fill(store: &SqliteKnowledge, vocabulary: &made_up::Vocabulary, refs: u32, rng: &mut SplitMix64) {
    let source = "made up".to_owned();
    let begin = Change::Begin(NewSource {
        name: source.clone(),
        ..NewSource::default()
    });
    store.apply(vec![begin]).await.expect("begins");
    let chunks = refs / REFS_PER_CHUNK;
    let mut first_position = 0;
    while first_position < chunks {
        let count = COMMIT_CHUNKS.min(chunks - first_position);
        let messages = (0..count)
            .map(|number| NewMessage {
                message: Message {
                    moment: Some(Moment {
                        at: Timestamp(i64::from(first_position + number) * 60_000),
                        zone_minutes: None,
                    }),
                    ..Message::new(vocabulary.sentence(25, rng))
                },
                knowledge: vec![(0, vocabulary.knowledge(REFS_PER_CHUNK, rng))],
                failures: Vec::new(),
            })
            .collect();
        let append = Change::Append {
            source: source.clone(),
            first_position,
            messages,
        };
        store.apply(vec![append]).await.expect("commits");
        first_position += count;
    }
}

async fn ask_by_words(
    store: &SqliteKnowledge,
    vocabulary: &made_up::Vocabulary,
    rng: &mut SplitMix64,
) -> Duration {
    let question = match rng.below(3) {
        0 => format!(
            "What is known about {} and {}?",
            vocabulary.name(rng),
            vocabulary.word(rng)
        ),
        1 => format!("Which books mention \"{}\"?", vocabulary.name(rng)),
        _ => format!("List all {} of {}", vocabulary.word(rng), vocabulary.name(rng)),
    };
    let begun = Instant::now();
    recall(store, &question, &RecallOptions::default())
        .await
        .expect("recalls");
    begun.elapsed()
}

async fn ask_structured(
    store: &SqliteKnowledge,
    vocabulary: &made_up::Vocabulary,
    rng: &mut SplitMix64,
) -> Duration {
    let types = ["person", "book", "animal", "song"];
    let filter = SearchFilter {
        entity_search_terms: Some(vec![EntityTerm {
            name: vocabulary.name(rng),
            types: vec![types[rng.below(4) as usize].to_owned()],
            ..EntityTerm::default()
        }]),
        search_terms: Some(vec![vocabulary.word(rng).to_owned()]),
        ..SearchFilter::default()
    };
    let query = SearchQuery {
        search_expressions: vec![SearchExpression {
            rewritten_query: String::new(),
            filters: vec![filter],
        }],
    };
    let begun = Instant::now();
    let options = RecallOptions::default();
    recall_query(store, "", Some(query), &Relations::Stored, &options)
        .await
        .expect("recalls");
    begun.elapsed()
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1_000.0;
    println!(
        "{what}: p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms, longest {:.2} ms ({} recalls)",
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0),
        times.len()
    );
}
