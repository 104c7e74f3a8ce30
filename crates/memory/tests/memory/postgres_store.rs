//! The PostgreSQL knowledge base passes the suite of all stores, and tests of its own.

use std::sync::Arc;

use gristmill_memory::store::{Change, NewMessage, NewSource, conformance};
use gristmill_memory::{
    Entity, Knowledge, KnowledgeStore, MemoryError, Message, MessageOrdinal, PostgresKnowledge,
    RecallOptions, Topic, recall,
};

fn database() -> String {
    gristmill_private_postgres::shared()
        .create_database()
        .expect("a database")
}

async fn open(url: &str) -> PostgresKnowledge {
    PostgresKnowledge::open(url, true).await.expect("opens")
}

#[tokio::test]
async fn passes_the_suite() {
    conformance::check_all(|| async { Arc::new(open(&database()).await) as Arc<dyn KnowledgeStore> }).await;
}

fn begin(name: &str) -> Change {
    Change::Begin(NewSource {
        name: name.to_owned(),
        ..NewSource::default()
    })
}

fn append(source: &str, text: &str, knowledge: Vec<Knowledge>) -> Change {
    Change::Append {
        source: source.to_owned(),
        first_position: 0,
        messages: vec![NewMessage {
            message: Message::new(text),
            knowledge: vec![(0, knowledge)],
            failures: Vec::new(),
        }],
    }
}

/// PostgreSQL keeps no NUL in texts, and no long text in an index.
#[tokio::test]
async fn texts_that_columns_cannot_hold_are_kept() {
    let store = open(&database()).await;
    let long = "x".repeat(50_000);
    let text = format!("A\0B {long}");
    let name = format!("folder/{long}");
    let known = vec![
        Knowledge::Topic(Topic {
            text: "nul\0inside".to_owned(),
        }),
        Knowledge::Entity(Entity {
            name: long.clone(),
            types: vec!["thing".to_owned()],
            facets: Vec::new(),
        }),
    ];
    store
        .apply(vec![begin(&name), append(&name, &text, known.clone())])
        .await
        .expect("applies");
    let stored = store.messages(vec![MessageOrdinal(0)]).await.expect("messages");
    assert_eq!(stored[0].message.text(), text);
    let asked = vec!["nul\0inside".to_owned(), long.clone(), format!("{long}*")];
    let postings = store.postings(asked.clone()).await.expect("postings");
    assert_eq!(
        (postings[0].by_property.len(), postings[1].by_property.len()),
        (1, 1)
    );
    store.similar_terms(asked).await.expect("similar terms");
    let source = store.source(&name).await.expect("asks").expect("a source");
    assert_eq!((source.name, source.messages), (name.clone(), 1));
    store
        .apply(vec![Change::Delete { source: name }])
        .await
        .expect("deletes");
    let stats = store.stats().await.expect("stats");
    assert_eq!((stats.terms, stats.postings, stats.messages), (0, 0, 0));
}

#[tokio::test]
async fn many_writers_work_at_the_same_time() {
    let url = database();
    // Each writer has a connection of its own, and tries to create the schema.
    let writers = (0..6).map(|number| {
        let url = url.clone();
        tokio::spawn(async move {
            let store = open(&url).await;
            for round in 0..10 {
                let name = format!("source {number} {round}");
                let topic = Knowledge::Topic(Topic {
                    text: "bees".to_owned(),
                });
                store
                    .apply(vec![begin(&name), append(&name, "Bees.", vec![topic])])
                    .await
                    .expect("applies");
            }
        })
    });
    for writer in writers {
        writer.await.expect("writes");
    }
    let store = open(&url).await;
    let postings = store.postings(vec!["bees".to_owned()]).await.expect("postings");
    assert_eq!(postings[0].by_property[0].1, (0..60).collect::<Vec<u32>>());
    let found = recall(&store, "What about bees?", &RecallOptions::default())
        .await
        .expect("recalls");
    assert_eq!(found.messages.len(), 25);
}

#[tokio::test]
async fn work_continues_after_the_server_was_away() {
    let server = gristmill_private_postgres::PrivatePostgres::start(&[]).expect("starts");
    let store = open(&server.create_database().expect("a database")).await;
    store.apply(vec![begin("a")]).await.expect("applies");
    server.stop_immediately().expect("stops");
    let error = store.apply(vec![begin("b")]).await.expect_err("no server");
    assert!(matches!(error, MemoryError::Database { .. }), "{error}");
    server.start_again().expect("starts");
    store.apply(vec![begin("b")]).await.expect("applies");
    assert_eq!(store.sources().await.expect("sources").len(), 2);
}

#[tokio::test]
async fn other_databases_are_refused() {
    let url = database();
    let missing = PostgresKnowledge::open(&url, false)
        .await
        .expect_err("none there");
    assert!(matches!(missing, MemoryError::Missing { .. }), "{missing}");
    let wrong = PostgresKnowledge::open("postgresql://me:secret@there:port/work", true).await;
    let wrong = wrong.expect_err("no port").to_string();
    assert!(
        wrong.contains("postgresql://me@there:port/work") && !wrong.contains("secret"),
        "{wrong}"
    );
    open(&url).await;
    let name = url.split(['/', '?']).nth(3).expect("the database's name");
    gristmill_private_postgres::shared()
        .psql(name, "UPDATE gristmill_memory.layout SET version = 999")
        .expect("updates");
    let newer = PostgresKnowledge::open(&url, true).await.expect_err("newer");
    assert!(
        matches!(newer, MemoryError::NewerSchema { found: 999, .. }),
        "{newer}"
    );
}
