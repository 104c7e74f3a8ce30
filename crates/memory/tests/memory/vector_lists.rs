//! Lists of vectors find what an exact search finds, and follow what is added and deleted.

use std::collections::HashSet;

use gristmill_memory::embed::Vector;
use gristmill_memory::pipeline::vector_lists::list_vectors;
use gristmill_memory::recall::nearest::nearest_messages;
use gristmill_memory::store::{NewMessage, NewSource, VectorKey};
use gristmill_memory::{
    Change, KnowledgeStore, Message, MessageOrdinal, PostgresKnowledge, SqliteKnowledge,
    SqliteKnowledgeOptions,
};
use gristmill_model::{Rng, SplitMix64};

const DIMENSIONS: usize = 32;

/// Messages about one subject, which their vectors gather around, as those of texts do.
const SUBJECT_MESSAGES: u32 = 64;

/// Messages of one commit.
const COMMIT_MESSAGES: u32 = 2_000;

/// A number between -1 and 1, more often near 0.
fn number(rng: &mut SplitMix64) -> f32 {
    let mut one = || rng.below(2_001) as f32 / 1_000.0 - 1.0;
    (one() + one() + one()) / 3.0
}

fn direction(rng: &mut SplitMix64) -> Vec<f32> {
    (0..DIMENSIONS).map(|_| number(rng)).collect()
}

/// Vectors about subjects: as far from their subject as subjects are from each other.
struct Subjects(Vec<Vec<f32>>);

impl Subjects {
    fn of(messages: u32, rng: &mut SplitMix64) -> Subjects {
        Subjects(
            (0..messages.div_ceil(SUBJECT_MESSAGES))
                .map(|_| direction(rng))
                .collect(),
        )
    }

    fn vector(&self, rng: &mut SplitMix64) -> Vector {
        let subject = &self.0[rng.below(self.0.len() as u64) as usize];
        Vector::new(subject.iter().map(|middle| middle + 0.7 * number(rng)).collect())
    }
}

/// Adds a source of so many messages, each with a vector.
async fn add(store: &dyn KnowledgeStore, name: &str, count: u32, subjects: &Subjects, rng: &mut SplitMix64) {
    let begin = Change::Begin(NewSource {
        name: name.to_owned(),
        ..NewSource::default()
    });
    store.apply(vec![begin]).await.expect("begins");
    let mut added = 0;
    while added < count {
        let some = COMMIT_MESSAGES.min(count - added);
        let first = store.columns().await.expect("columns").message_end();
        let message = NewMessage {
            message: Message::new("-"),
            ..NewMessage::default()
        };
        let append = Change::Append {
            source: name.to_owned(),
            first_position: added,
            messages: vec![message; some as usize],
        };
        let vectors = (first..first + some).map(|message| {
            let key = VectorKey::Chunk {
                message: MessageOrdinal(message),
                chunk: 0,
            };
            (key, subjects.vector(rng))
        });
        let vectors = Change::Vectors {
            model: "subjects".to_owned(),
            vectors: vectors.collect(),
        };
        store.apply(vec![append]).await.expect("appends");
        store.apply(vec![vectors]).await.expect("adds vectors");
        added += some;
    }
}

/// The share of the ten nearest that a search finds, on average over vectors about the same subjects.
async fn recall_at_10(store: &dyn KnowledgeStore, subjects: &Subjects, rng: &mut SplitMix64) -> f64 {
    let questions = 100;
    let mut found = 0;
    for _ in 0..questions {
        let asked = subjects.vector(rng);
        let exact = store
            .nearest_messages(MessageOrdinal(0), asked.clone(), 10, -1.0)
            .await;
        let exact: HashSet<MessageOrdinal> = exact
            .expect("exact")
            .into_iter()
            .map(|(message, _)| message)
            .collect();
        let listed = nearest_messages(store, asked, 10, -1.0).await.expect("by lists");
        assert!(listed.is_sorted_by(|left, right| left.1 >= right.1));
        found += listed
            .iter()
            .filter(|(message, _)| exact.contains(message))
            .count();
    }
    found as f64 / f64::from(questions * 10)
}

async fn lists_find_what_is_near(store: &dyn KnowledgeStore, count: u32) {
    let mut rng = SplitMix64::new(16);
    let subjects = Subjects::of(count, &mut rng);
    add(store, "old", count, &subjects, &mut rng).await;
    assert!(!list_vectors(store, u64::from(count)).await.expect("too few"));
    assert_eq!(store.vector_lists().await.expect("no lists"), None);
    assert!(list_vectors(store, u64::from(count) - 1).await.expect("lists"));
    let recall = recall_at_10(store, &subjects, &mut rng).await;
    println!("{count} vectors: recall@10 of the lists {recall:.3}");
    assert!(
        (0.98..=1.0).contains(&recall),
        "recall@10 of the lists {recall:.3}"
    );

    // A few more are found without new lists; many more have new ones.
    add(store, "new", count / 10, &subjects, &mut rng).await;
    let lists = store.vector_lists().await.expect("lists").expect("some");
    assert!(lists.end.0 < count && !list_vectors(store, 1).await.expect("few are unlisted"));
    let recall = recall_at_10(store, &subjects, &mut rng).await;
    assert!(recall >= 0.98, "recall@10 with unlisted messages {recall:.3}");
    add(store, "newer", count / 2, &subjects, &mut rng).await;
    assert!(list_vectors(store, 1).await.expect("lists"), "many are unlisted");

    // The lists keep no trace of a deleted source.
    store
        .apply(vec![Change::Delete {
            source: "old".to_owned(),
        }])
        .await
        .expect("deletes");
    assert_eq!(store.vector_lists().await.expect("no lists"), None);
    assert!(
        store
            .list_entries((0..1_000).collect())
            .await
            .expect("no entries")
            .is_empty()
    );
    let recall = recall_at_10(store, &subjects, &mut rng).await;
    assert!(recall == 1.0, "an exact search finds all: {recall}");
}

/// Lists that were made of what has been deleted since are not written.
async fn late_lists_are_dropped(store: &dyn KnowledgeStore) {
    let mut rng = SplitMix64::new(17);
    let subjects = Subjects::of(100, &mut rng);
    add(store, "a", 100, &subjects, &mut rng).await;
    assert!(list_vectors(store, 1).await.expect("lists"));
    let late = Change::ListVectors {
        lists: store.vector_lists().await.expect("lists").expect("some"),
        entries: store.list_entries((0..1_000).collect()).await.expect("entries"),
        rewrites: store.columns().await.expect("columns").rewrites(),
    };
    store
        .apply(vec![
            Change::Delete {
                source: "a".to_owned(),
            },
            late,
        ])
        .await
        .expect("applies");
    assert_eq!(store.vector_lists().await.expect("no lists"), None);
}

#[tokio::test]
async fn in_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = |name: &str| {
        let options = SqliteKnowledgeOptions {
            sync: false,
            ..SqliteKnowledgeOptions::default()
        };
        SqliteKnowledge::open(folder.path().join(name), options).expect("opens")
    };
    lists_find_what_is_near(&open("kb.db"), 20_000).await;
    late_lists_are_dropped(&open("other.db")).await;
}

#[tokio::test]
async fn in_postgres() {
    let server = gristmill_private_postgres::shared();
    let database = || server.create_database().expect("a database");
    let open = async |url: String| PostgresKnowledge::open(&url, true).await.expect("opens");
    lists_find_what_is_near(&open(database()).await, 2_000).await;
    late_lists_are_dropped(&open(database()).await).await;
}
