//! The SQLite knowledge base passes the suite of all stores, and some of its own.

use std::sync::Arc;

use gristmill_memory::store::conformance;
use gristmill_memory::{KnowledgeStore, MemoryError, SqliteKnowledge, SqliteKnowledgeOptions};

#[tokio::test]
async fn passes_the_suite() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut number = 0;
    conformance::check_all(|| {
        number += 1;
        let path = folder.path().join(format!("{number}.db"));
        async move {
            let store = SqliteKnowledge::open(path, SqliteKnowledgeOptions::default()).expect("opens");
            Arc::new(store) as Arc<dyn KnowledgeStore>
        }
    })
    .await;
}

#[test]
fn refuses_what_is_no_knowledge_base() {
    let folder = tempfile::tempdir().expect("a folder");
    let create = SqliteKnowledgeOptions::default();
    let open_only = SqliteKnowledgeOptions {
        create: false,
        ..create
    };

    let missing = SqliteKnowledge::open(folder.path().join("none.db"), open_only).expect_err("missing");
    assert!(matches!(missing, MemoryError::Missing { .. }), "{missing}");

    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "Just some notes, of more than a hundred bytes. ".repeat(9)).expect("writes");
    let error = SqliteKnowledge::open(&text, create).expect_err("no database");
    assert!(matches!(error, MemoryError::NotAKnowledgeBase { .. }), "{error}");

    let other = folder.path().join("other.db");
    let connection = rusqlite::Connection::open(&other).expect("opens");
    connection.execute_batch("CREATE TABLE mine (x)").expect("writes");
    let error = SqliteKnowledge::open(&other, create).expect_err("somebody else's");
    assert!(error.to_string().contains("choose another file"), "{error}");
}

#[test]
fn refuses_a_newer_schema() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kb.db");
    SqliteKnowledge::open(&path, SqliteKnowledgeOptions::default()).expect("makes");
    let connection = rusqlite::Connection::open(&path).expect("opens");
    connection
        .execute("UPDATE layout SET version = 999", [])
        .expect("writes");
    let error = SqliteKnowledge::open(&path, SqliteKnowledgeOptions::default()).expect_err("newer");
    assert!(
        matches!(error, MemoryError::NewerSchema { found: 999, .. }),
        "{error}"
    );
}
