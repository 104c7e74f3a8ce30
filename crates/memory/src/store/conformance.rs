//! The conformance suite of knowledge stores. A check panics if a store fails it.

mod moves;
mod vectors;

use std::future::Future;
use std::sync::Arc;

use gristmill_model::{Rng, SplitMix64, Timestamp};

use crate::error::MemoryError;
use crate::knowledge::{Action, Entity, Facet, FacetValue, Knowledge, KnowledgeKind, RefOrdinal, Tag, Topic};
use crate::message::{Message, MessageOrdinal, Moment, TextRange};
use crate::property::{Property, terms};
use crate::store::{
    Applied, Change, ChunkFailure, KnowledgeStore, Learned, NewMessage, NewSource, RelatedTerm, Unread,
};
use crate::words::{Language, Languages, MessageWords};

/// Runs every check on an empty store of its own.
pub async fn check_all<F>(mut new_store: impl FnMut() -> F)
where
    F: Future<Output = Arc<dyn KnowledgeStore>>,
{
    stores_what_was_added(&*new_store().await).await;
    indexes_every_term(&*new_store().await).await;
    refuses_what_does_not_fit(&*new_store().await).await;
    all_or_nothing(&*new_store().await).await;
    deletes_without_a_trace(&*new_store().await).await;
    replaces_in_one_call(&*new_store().await).await;
    learns_later(&*new_store().await).await;
    keeps_failures(&*new_store().await).await;
    keeps_unread_messages(&*new_store().await).await;
    moves::sources_get_other_names(&*new_store().await).await;
    moves::columns_tell_sources_and_threads(&*new_store().await).await;
    finds_related_terms(&*new_store().await).await;
    indexes_words(&*new_store().await).await;
    vectors::keeps_vectors(&*new_store().await).await;
    vectors::keeps_vectors_of_one_embedder(&*new_store().await).await;
    vectors::vectors_go_with_what_they_stand_for(&*new_store().await).await;
    survives_random_changes(&*new_store().await).await;
}

fn begin(name: &str) -> Change {
    Change::Begin(NewSource {
        name: name.to_owned(),
        format: "test".to_owned(),
        digest: format!("digest of {name}"),
        settings: "settings".to_owned(),
        zone_minutes: Some(-420),
        ingested_at: Timestamp(1_000),
        stamp: None,
    })
}

fn append(source: &str, first_position: u32, messages: Vec<NewMessage>) -> Change {
    Change::Append {
        source: source.to_owned(),
        first_position,
        messages,
    }
}

fn delete(source: &str) -> Change {
    Change::Delete {
        source: source.to_owned(),
    }
}

fn entity(name: &str, kind: &str) -> Knowledge {
    Knowledge::Entity(Entity {
        name: name.to_owned(),
        types: vec![kind.to_owned()],
        facets: Vec::new(),
    })
}

fn topic(text: &str) -> Knowledge {
    Knowledge::Topic(Topic {
        text: text.to_owned(),
    })
}

fn message(text: &str, knowledge: Vec<Knowledge>) -> NewMessage {
    NewMessage {
        message: Message::new(text),
        knowledge: vec![(0, knowledge)],
        failures: Vec::new(),
    }
}

async fn refs_of(store: &dyn KnowledgeStore, property: Property, term: &str) -> Vec<u32> {
    let postings = store.postings(vec![term.to_owned()]).await.expect("postings");
    postings[0].of(property).to_vec()
}

/// Adds two sources: `a` with bees and a queen, `b` with bees and a drum.
async fn fill(store: &dyn KnowledgeStore) {
    let first = vec![
        message("Bees hum.", vec![entity("Bees", "insect"), topic("bees")]),
        message("The queen rules.", vec![entity("Queen", "bee")]),
    ];
    let second = vec![message(
        "Bees like drums.",
        vec![entity("bees", "insect"), entity("Drum", "thing")],
    )];
    let changes = vec![
        begin("a"),
        append("a", 0, first),
        begin("b"),
        append("b", 0, second),
    ];
    store.apply(changes).await.expect("applies");
}

async fn stores_what_was_added(store: &dyn KnowledgeStore) {
    let full = Message {
        text_chunks: vec!["One. ".to_owned(), "Two.".to_owned()],
        speaker: Some("Ada".to_owned()),
        recipients: vec!["Bob".to_owned(), "Cleo".to_owned()],
        subject: Some("Numbers".to_owned()),
        tags: vec!["maths".to_owned()],
        moment: Some(Moment {
            at: Timestamp(1_682_924_400_000),
            zone_minutes: Some(-420),
        }),
        id: Some("1@bees.example".to_owned()),
        thread: Some("0@bees.example".to_owned()),
        place: Some("mail 1".to_owned()),
    };
    let known = [
        entity("One", "number"),
        Knowledge::Tag(Tag {
            text: "maths".to_owned(),
        }),
        topic("counting"),
        Knowledge::Action(Action {
            verbs: vec!["count".to_owned()],
            subject_entity_name: Some("Ada".to_owned()),
            ..Action::default()
        }),
    ];
    let new = NewMessage {
        message: full.clone(),
        knowledge: vec![(0, known[..2].to_vec()), (1, known[2..].to_vec())],
        failures: Vec::new(),
    };
    let applied = store
        .apply(vec![begin("a"), append("a", 0, vec![new])])
        .await
        .expect("applies");
    assert_eq!((applied.messages, applied.refs), (1, 4));

    let stored = store
        .messages(vec![MessageOrdinal(9), MessageOrdinal(0)])
        .await
        .expect("messages");
    assert_eq!(stored.len(), 1);
    assert_eq!((stored[0].source.as_str(), stored[0].position), ("a", 0));
    assert_eq!(stored[0].message, full);

    let wanted = vec![RefOrdinal(3), RefOrdinal(17), RefOrdinal(0)];
    let refs = store.refs(wanted).await.expect("refs");
    let found: Vec<u32> = refs.iter().map(|found| found.ordinal.0).collect();
    assert_eq!(found, [3, 0]);
    assert_eq!(refs[0].knowledge, known[3]);
    assert_eq!(
        refs[0].range,
        TextRange {
            message: MessageOrdinal(0),
            chunk: 1
        }
    );

    let columns = store.columns().await.expect("columns");
    assert_eq!(columns.kind(2), Some(KnowledgeKind::Topic));
    assert_eq!(columns.time(0), Some(Timestamp(1_682_924_400_000)));
    let source = store.source("a").await.expect("sources").expect("a source");
    assert_eq!(
        (source.messages, source.complete, source.zone_minutes),
        (1, false, Some(-420))
    );
    store
        .apply(vec![Change::Complete {
            source: "a".to_owned(),
        }])
        .await
        .expect("applies");
    assert!(store.sources().await.expect("sources")[0].complete);
    assert_eq!(store.source("b").await.expect("sources"), None);
}

async fn indexes_every_term(store: &dyn KnowledgeStore) {
    fill(store).await;
    assert_eq!(refs_of(store, Property::Name, "bees").await, [0, 3]);
    assert_eq!(refs_of(store, Property::Type, "insect").await, [0, 3]);
    assert_eq!(refs_of(store, Property::Topic, "bees").await, [1]);
    assert_eq!(
        refs_of(store, Property::Name, "Bees").await,
        [0; 0],
        "terms are in lower case"
    );
    let stats = store.stats().await.expect("stats");
    assert_eq!((stats.sources, stats.messages, stats.refs()), (2, 3, 5));
    assert_eq!((stats.entities, stats.topics), (4, 1));
    // bees, insect, queen, bee, drum, thing
    assert_eq!((stats.terms, stats.postings), (6, 9));
}

async fn refuses_what_does_not_fit(store: &dyn KnowledgeStore) {
    fill(store).await;
    let taken = store
        .apply(vec![begin("a")])
        .await
        .expect_err("the name is taken");
    assert!(matches!(taken, MemoryError::Invalid { .. }), "{taken}");
    let twice = store
        .apply(vec![append("a", 1, vec![message("x", vec![])])])
        .await;
    let twice = twice.expect_err("message 1 is there");
    assert!(twice.to_string().contains("2 messages"), "{twice}");
    for change in [
        append("x", 0, vec![]),
        delete("x"),
        Change::Complete {
            source: "x".to_owned(),
        },
    ] {
        let unknown = store.apply(vec![change]).await.expect_err("no such source");
        assert!(matches!(unknown, MemoryError::SourceUnknown(_)), "{unknown}");
    }
    let learned = vec![Learned {
        position: 9,
        chunk: 0,
        knowledge: vec![topic("x")],
    }];
    let nowhere = store
        .apply(vec![Change::Learn {
            source: "a".to_owned(),
            learned,
        }])
        .await;
    assert!(matches!(nowhere, Err(MemoryError::Invalid { .. })), "{nowhere:?}");
}

async fn all_or_nothing(store: &dyn KnowledgeStore) {
    fill(store).await;
    let before = store.stats().await.expect("stats");
    let changes = vec![
        delete("a"),
        begin("c"),
        append("c", 0, vec![message("x", vec![topic("x")])]),
        delete("x"),
    ];
    store.apply(changes).await.expect_err("the last one is refused");
    assert_eq!(store.stats().await.expect("stats"), before);
    assert_eq!(refs_of(store, Property::Name, "bees").await, [0, 3]);
    assert_eq!(refs_of(store, Property::Topic, "x").await, [0; 0]);
}

async fn deletes_without_a_trace(store: &dyn KnowledgeStore) {
    fill(store).await;
    let applied = store.apply(vec![delete("a")]).await.expect("applies");
    assert_eq!(applied.refs_deleted, 3);
    assert_eq!(refs_of(store, Property::Name, "bees").await, [3]);
    assert_eq!(refs_of(store, Property::Name, "queen").await, [0; 0]);
    assert_eq!(store.columns().await.expect("columns").kind(0), None);
    assert!(
        store
            .messages(vec![MessageOrdinal(0)])
            .await
            .expect("messages")
            .is_empty()
    );
    assert_eq!(
        messages_with(store, ["queen", "drum", "bee"]).await,
        [vec![], vec![2], vec![2]]
    );
    assert!(
        store
            .similar_terms(vec!["queens".to_owned()])
            .await
            .expect("terms")[0]
            .is_empty()
    );
    // Numbers are not reused.
    store
        .apply(vec![append("b", 1, vec![message("y", vec![topic("y")])])])
        .await
        .expect("applies");
    assert_eq!(refs_of(store, Property::Topic, "y").await, [5]);
    store.apply(vec![delete("b")]).await.expect("applies");
    let stats = store.stats().await.expect("stats");
    assert_eq!(
        (
            stats.sources,
            stats.messages,
            stats.refs(),
            stats.terms,
            stats.postings
        ),
        (0, 0, 0, 0, 0)
    );
    assert_eq!(store.words_beginning("", 9).await.expect("words"), [""; 0]);
}

async fn replaces_in_one_call(store: &dyn KnowledgeStore) {
    fill(store).await;
    let changes = vec![
        delete("b"),
        begin("b"),
        append(
            "b",
            0,
            vec![message("Drums like bees.", vec![entity("drum", "thing")])],
        ),
        Change::Complete {
            source: "b".to_owned(),
        },
    ];
    let applied = store.apply(changes).await.expect("applies");
    assert_eq!(
        applied,
        Applied {
            messages: 1,
            refs: 1,
            refs_deleted: 2
        }
    );
    assert_eq!(refs_of(store, Property::Name, "drum").await, [5]);
    assert_eq!(store.sources().await.expect("sources").len(), 2);
}

async fn learns_later(store: &dyn KnowledgeStore) {
    fill(store).await;
    let learned = vec![
        Learned {
            position: 1,
            chunk: 0,
            knowledge: vec![topic("monarchy")],
        },
        Learned {
            position: 0,
            chunk: 0,
            knowledge: vec![topic("humming")],
        },
    ];
    store
        .apply(vec![Change::Learn {
            source: "a".to_owned(),
            learned,
        }])
        .await
        .expect("applies");
    let columns = store.columns().await.expect("columns");
    assert_eq!((columns.message(5), columns.message(6)), (1, 0));
    assert_eq!(refs_of(store, Property::Topic, "humming").await, [6]);
}

async fn keeps_failures(store: &dyn KnowledgeStore) {
    let failed = NewMessage {
        message: Message::new("Mumble."),
        knowledge: Vec::new(),
        failures: vec![ChunkFailure {
            chunk: 0,
            error: "no JSON".to_owned(),
            at: Timestamp(5),
        }],
    };
    store
        .apply(vec![begin("a"), append("a", 0, vec![failed])])
        .await
        .expect("applies");
    let failures = store.failures().await.expect("failures");
    assert_eq!(
        (failures[0].error.as_str(), failures[0].source.as_str()),
        ("no JSON", "a")
    );
    assert_eq!(store.stats().await.expect("stats").failures, 1);
    let learned = vec![Learned {
        position: 0,
        chunk: 0,
        knowledge: vec![],
    }];
    store
        .apply(vec![Change::Learn {
            source: "a".to_owned(),
            learned,
        }])
        .await
        .expect("applies");
    assert!(store.failures().await.expect("failures").is_empty());
}

async fn keeps_unread_messages(store: &dyn KnowledgeStore) {
    let unread = |source: &str, first: u32, places: &[&str]| Change::Unread {
        source: source.to_owned(),
        first,
        unread: places
            .iter()
            .map(|place| Unread {
                place: (*place).to_owned(),
                error: format!("{source}, {place}: no mail"),
            })
            .collect(),
        at: Timestamp(5),
    };
    let places = async |source: Option<&str>| -> Vec<String> {
        let found = store.unread(source).await.expect("unread");
        let places = found.into_iter();
        places
            .map(|one| format!("{} {}", one.source, one.place))
            .collect()
    };
    let changes = vec![
        unread("b", 0, &["mail 3", "mail 1"]),
        begin("a"),
        unread("a", 0, &["line 9"]),
    ];
    store.apply(changes).await.expect("applies");
    assert_eq!(places(None).await, ["a line 9", "b mail 3", "b mail 1"]);
    let changes = vec![unread("b", 1, &["mail 7", "mail 8"]), delete("a")];
    store.apply(changes).await.expect("applies");
    assert_eq!(places(Some("b")).await, ["b mail 3", "b mail 7", "b mail 8"]);
    let found = store.unread(Some("b")).await.expect("unread");
    assert_eq!(
        (found[0].error.as_str(), found[0].at),
        ("b, mail 3: no mail", Timestamp(5))
    );
    store.apply(vec![unread("b", 0, &[])]).await.expect("applies");
    assert_eq!(places(None).await, [""; 0]);
}

async fn finds_related_terms(store: &dyn KnowledgeStore) {
    let alias = |term: &str, text: &str| Change::Alias {
        term: term.to_owned(),
        related: RelatedTerm {
            text: text.to_owned(),
            weight: None,
        },
    };
    let known = vec![
        entity("jumping spider", "animal"),
        entity("spiders", "animal"),
        entity("Tchaikovsky", "person"),
    ];
    let changes = vec![
        alias("Ada", "ada lovelace"),
        alias("ada", "countess"),
        begin("a"),
        append("a", 0, vec![message("x", known)]),
    ];
    store.apply(changes).await.expect("applies");
    let aliases = store
        .aliases(vec!["x".to_owned(), "ada".to_owned()])
        .await
        .expect("aliases");
    assert_eq!(aliases[0], None);
    let texts: Vec<String> = aliases[1]
        .iter()
        .flatten()
        .map(|term| term.text.clone())
        .collect();
    assert_eq!(texts, ["ada lovelace", "countess"]);
    assert_eq!(store.all_aliases().await.expect("aliases").len(), 2);

    let asked = ["spider", "spiders", "tchaikovski", "zzz", "jump*"]
        .map(str::to_owned)
        .to_vec();
    let similar = store.similar_terms(asked).await.expect("similar");
    let texts = |at: usize| -> Vec<&str> { similar[at].iter().map(|term| term.text.as_str()).collect() };
    assert_eq!(texts(0), ["spiders", "jumping spider"]);
    assert_eq!(texts(1), ["jumping spider"], "not the term itself");
    assert_eq!(texts(2), ["tchaikovsky"]);
    assert_eq!(texts(3), [""; 0]);
    assert_eq!(texts(4), ["jumping spider"], "what begins so");
}

async fn messages_with<const N: usize>(store: &dyn KnowledgeStore, words: [&str; N]) -> Vec<Vec<u32>> {
    let words = words.map(str::to_owned).to_vec();
    store.messages_with(words).await.expect("words")
}

async fn indexes_words(store: &dyn KnowledgeStore) {
    fill(store).await;
    let asked = ["drum", "bee", "the", "unknown", "\"' OR AND (\0"];
    assert_eq!(
        messages_with(store, asked).await,
        [vec![2], vec![0, 2], vec![], vec![], vec![]]
    );
    let columns = store.columns().await.expect("columns");
    assert_eq!(columns.message_count(), 3);
    assert_eq!(
        (columns.length(0), columns.length(1), columns.length(2)),
        (2, 2, 3)
    );
    assert!(columns.are_of_one_source(0, 1));
    assert!(!columns.are_of_one_source(1, 2) && !columns.are_of_one_source(2, 3));
    assert_eq!(columns.languages(), Languages::of([Language::English]));

    let told = NewMessage {
        message: Message {
            speaker: Some("Zoë Baker".to_owned()),
            subject: Some("Drums".to_owned()),
            ..Message::new("Drum, drum! Die Bienen sind nicht da, und das ist schön")
        },
        ..NewMessage::default()
    };
    store
        .apply(vec![append("b", 1, vec![told])])
        .await
        .expect("applies");
    let asked = ["@zoe", "@baker", "zoe", "bien", "bee"];
    assert_eq!(
        messages_with(store, asked).await,
        [vec![3], vec![3], vec![], vec![3], vec![0, 2]]
    );
    let columns = store.columns().await.expect("columns");
    assert_eq!(
        columns.languages(),
        Languages::of([Language::English, Language::German])
    );
    let words = |prefix: &'static str, limit| async move {
        store.words_beginning(prefix, limit).await.expect("words")
    };
    assert_eq!(words("b", 9).await, ["bee", "bien"]);
    assert_eq!(words("b", 1).await, ["bee"]);
    assert_eq!(words("ru", 9).await, ["rule"]);
    store.apply(vec![delete("b")]).await.expect("applies");
    assert_eq!(
        messages_with(store, ["drum", "bien", "@zoe", "bee"]).await,
        [vec![], vec![], vec![], vec![0]]
    );
    assert_eq!(store.columns().await.expect("columns").message_count(), 2);
}

/// Makes random additions and deletions. After each, the indexes agree with the knowledge.
async fn survives_random_changes(store: &dyn KnowledgeStore) {
    let mut rng = SplitMix64::new(11);
    let mut expected: Vec<(String, Vec<(u32, Knowledge)>)> = Vec::new();
    let mut texts: Vec<(String, Vec<(u32, String)>)> = Vec::new();
    let (mut next_ref, mut next_message) = (0, 0);
    for step in 0..40 {
        if !expected.is_empty() && rng.below(3) == 0 {
            let place = rng.below(expected.len() as u64) as usize;
            let (name, _) = expected.remove(place);
            texts.remove(place);
            store.apply(vec![delete(&name)]).await.expect("deletes");
        } else {
            let name = format!("source {step}");
            let mut added = Vec::new();
            let mut said = Vec::new();
            let messages = (0..1 + rng.below(20))
                .map(|_| {
                    let text = "drum ".repeat(rng.below(40) as usize) + &format!("word{}", rng.below(5));
                    said.push((next_message, text.clone()));
                    next_message += 1;
                    let known: Vec<Knowledge> =
                        (0..rng.below(60)).map(|_| random_knowledge(&mut rng)).collect();
                    added.extend((next_ref..).zip(known.iter().cloned()));
                    next_ref += known.len() as u32;
                    message(&text, known)
                })
                .collect();
            store
                .apply(vec![begin(&name), append(&name, 0, messages)])
                .await
                .expect("adds");
            expected.push((name.clone(), added));
            texts.push((name, said));
        }
        check_words(store, texts.iter().flat_map(|(_, said)| said)).await;
        check_postings(store, expected.iter().flat_map(|(_, known)| known)).await;
    }
}

fn random_knowledge(rng: &mut SplitMix64) -> Knowledge {
    let word = |rng: &mut SplitMix64| format!("Word{}", rng.below(12));
    match rng.below(3) {
        0 => topic(&word(rng)),
        1 => Knowledge::Action(Action {
            verbs: vec![word(rng)],
            subject_entity_name: Some(word(rng)),
            ..Action::default()
        }),
        _ => Knowledge::Entity(Entity {
            name: word(rng),
            types: vec![word(rng)],
            facets: vec![Facet {
                name: word(rng),
                value: Some(FacetValue::Flag(true)),
            }],
        }),
    }
}

async fn check_words<'a>(store: &dyn KnowledgeStore, said: impl Iterator<Item = &'a (u32, String)>) {
    let mut expected: std::collections::BTreeMap<String, Vec<u32>> = Default::default();
    for (ordinal, text) in said {
        for (word, count) in MessageWords::of(&Message::new(text.clone())).counts {
            let messages = expected.entry(word).or_default();
            messages.extend(vec![*ordinal; count as usize]);
        }
    }
    let words: Vec<String> = expected.keys().cloned().collect();
    let expected: Vec<Vec<u32>> = expected.into_values().collect();
    assert_eq!(store.messages_with(words.clone()).await.expect("words"), expected);
    assert_eq!(store.words_beginning("", 100).await.expect("words"), words);
}

async fn check_postings<'a>(store: &dyn KnowledgeStore, known: impl Iterator<Item = &'a (u32, Knowledge)>) {
    let mut expected: std::collections::BTreeMap<String, Vec<(Property, u32)>> = Default::default();
    let mut refs = 0;
    for (ordinal, item) in known {
        refs += 1;
        terms(item, |property, term| {
            expected.entry(term).or_default().push((property, *ordinal))
        });
    }
    let texts: Vec<String> = expected.keys().cloned().collect();
    let found = store.postings(texts).await.expect("postings");
    for ((term, mut expected), found) in expected.into_iter().zip(found) {
        expected.sort_unstable();
        let found = found
            .by_property
            .iter()
            .flat_map(|(property, refs)| refs.iter().map(|&at| (*property, at)));
        let found: Vec<(Property, u32)> = found.collect();
        assert_eq!(found, expected, "{term}");
    }
    assert_eq!(store.stats().await.expect("stats").refs(), refs);
}
