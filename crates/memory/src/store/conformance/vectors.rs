//! The vectors of terms and chunks.

use super::{delete, fill};
use crate::embed::Vector;
use crate::message::MessageOrdinal;
use crate::store::{Change, KnowledgeStore, VectorCursor, VectorKey, VectorTexts};

fn vectors(vectors: Vec<(VectorKey, [f32; 2])>) -> Change {
    Change::Vectors {
        model: "two".to_owned(),
        vectors: vectors
            .into_iter()
            .map(|(key, numbers)| (key, Vector::new(numbers.to_vec())))
            .collect(),
    }
}

fn term_key(text: &str) -> VectorKey {
    VectorKey::Term(text.to_owned())
}

fn chunk_key(message: u32) -> VectorKey {
    VectorKey::Chunk {
        message: MessageOrdinal(message),
        chunk: 0,
    }
}

async fn without_vectors(store: &dyn KnowledgeStore, cursor: VectorCursor, limit: usize) -> VectorTexts {
    store.texts_without_vectors(cursor, limit).await.expect("texts")
}

pub(super) async fn keeps_vectors(store: &dyn KnowledgeStore) {
    fill(store).await;
    let all = without_vectors(store, VectorCursor::default(), 100).await;
    assert_eq!(all.texts.len(), 6 + 3, "{all:?}");
    assert!(all.texts.contains(&(chunk_key(1), "The queen rules.".to_owned())));
    assert!(without_vectors(store, all.cursor, 100).await.texts.is_empty());
    // Read in pages, each text comes once.
    let (mut paged, mut cursor) = (Vec::new(), VectorCursor::default());
    loop {
        let page = without_vectors(store, cursor, 2).await;
        if page.texts.is_empty() {
            break;
        }
        assert!(page.texts.len() <= 3, "{page:?}");
        cursor = page.cursor;
        paged.extend(page.texts);
    }
    assert_eq!(paged, all.texts);

    let given = vec![
        (term_key("bees"), [1.0, 0.0]),
        (term_key("insect"), [0.9, 0.1]),
        (term_key("drum"), [0.0, 5.0]),
        (term_key("queen"), [-1.0, 0.0]),
        (term_key("nowhere"), [1.0, 0.0]),
        (chunk_key(0), [1.0, 0.0]),
        (chunk_key(2), [1.0, 1.0]),
        (chunk_key(77), [1.0, 0.0]),
    ];
    store.apply(vec![vectors(given)]).await.expect("applies");
    let left = without_vectors(store, VectorCursor::default(), 100).await;
    assert_eq!(left.texts.len(), 2 + 1, "{left:?}");
    let asked = vec![Vector::new(vec![2.0, 0.0]), Vector::new(vec![0.0, 1.0])];
    let near = store.nearest_terms(asked.clone(), 9, 0.5).await.expect("terms");
    let texts: Vec<Vec<&str>> = near
        .iter()
        .map(|near| near.iter().map(|term| term.text.as_str()).collect())
        .collect();
    assert_eq!(texts, [vec!["bees", "insect"], vec!["drum"]]);
    assert_eq!(near[0][0].weight.map(|weight| weight.round()), Some(1.0));
    assert_eq!(
        store.nearest_terms(asked.clone(), 1, 0.5).await.expect("terms")[0].len(),
        1
    );
    let messages = store
        .nearest_messages(MessageOrdinal(0), asked[0].clone(), 9, 0.5)
        .await
        .expect("messages");
    let ordinals: Vec<u32> = messages.iter().map(|(ordinal, _)| ordinal.0).collect();
    assert_eq!(ordinals, [0, 2]);
    assert_eq!(counts(store).await, (4, 2));
}

pub(super) async fn keeps_vectors_of_one_embedder(store: &dyn KnowledgeStore) {
    fill(store).await;
    assert_eq!(store.embedder().await.expect("no embedder"), None);
    let first = || vectors(vec![(term_key("bees"), [1.0, 0.0])]);
    store.apply(vec![first()]).await.expect("applies");
    let stored = store.embedder().await.expect("an embedder").expect("one");
    assert_eq!((stored.model.as_str(), stored.dimensions), ("two", 2));
    let other = |model: &str, numbers: Vec<f32>| Change::Vectors {
        model: model.to_owned(),
        vectors: vec![(term_key("queen"), Vector::new(numbers))],
    };
    let refused = store.apply(vec![other("three", vec![1.0, 0.0, 0.0])]).await;
    let refused = refused.expect_err("another embedder").to_string();
    assert!(
        refused.contains("vectors of two (2 dimensions)") && refused.contains("of three"),
        "{refused}"
    );
    let refused = store.apply(vec![other("two", vec![1.0, 0.0, 0.0])]).await;
    let refused = refused.expect_err("another number of dimensions").to_string();
    assert!(refused.contains("have 3 dimensions"), "{refused}");
    // A text without meaning has a vector without dimensions.
    store
        .apply(vec![other("two", Vec::new())])
        .await
        .expect("applies");
    assert_eq!(counts(store).await, (2, 0));
    let changes = vec![Change::ForgetVectors, other("three", vec![1.0, 0.0, 0.0])];
    store.apply(changes).await.expect("applies");
    assert_eq!(counts(store).await, (1, 0));
    let stored = store.embedder().await.expect("an embedder").expect("one");
    assert_eq!((stored.model.as_str(), stored.dimensions), ("three", 3));
}

async fn counts(store: &dyn KnowledgeStore) -> (u64, u64) {
    let counts = store.vector_counts().await.expect("counts");
    (counts.terms, counts.chunks)
}

pub(super) async fn vectors_go_with_what_they_stand_for(store: &dyn KnowledgeStore) {
    fill(store).await;
    let given = vec![
        (term_key("bees"), [1.0, 0.0]),
        (term_key("queen"), [1.0, 0.1]),
        (chunk_key(0), [1.0, 0.0]),
        (chunk_key(2), [1.0, 0.0]),
    ];
    // A refused call stores none of its vectors.
    store
        .apply(vec![vectors(given.clone()), delete("x")])
        .await
        .expect_err("no such source");
    assert_eq!(counts(store).await, (0, 0));
    assert_eq!(store.embedder().await.expect("no embedder"), None);
    store.apply(vec![vectors(given)]).await.expect("applies");
    store.apply(vec![delete("a")]).await.expect("deletes");
    assert_eq!(counts(store).await, (1, 1), "only what `b` has too");
    let asked = Vector::new(vec![1.0, 0.0]);
    let near = store
        .nearest_messages(MessageOrdinal(0), asked, 9, 0.5)
        .await
        .expect("messages");
    assert_eq!(near.len(), 1);
}
