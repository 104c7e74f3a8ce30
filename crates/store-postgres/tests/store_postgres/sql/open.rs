//! How the schema is made in a database.

use std::sync::Arc;

use gristmill_model::SystemClock;
use gristmill_private_postgres::shared;
use gristmill_store::StoreError;
use gristmill_store_conformance::fixture::*;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};

use super::case::{Case, row};

async fn open(url: &str) -> Result<PostgresStore, StoreError> {
    PostgresStore::open(url, PostgresOptions::new(Arc::new(SystemClock), 1)).await
}

/// Several processes may open an empty database at once: one makes the schema, the others wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_open_a_fresh_database_at_once() {
    for _ in 0..5 {
        let url = shared().create_database().unwrap();
        let opening: Vec<_> = (0..8)
            .map(|_| {
                let url = url.clone();
                tokio::spawn(async move { open(&url).await.unwrap() })
            })
            .collect();
        let mut last = None;
        for store in opening {
            let id = submit(&store.await.unwrap(), batch(1)).await;
            assert!(Some(id) > last);
            last = Some(id);
        }
    }
}

/// A schema of a newer program is left alone.
#[tokio::test]
async fn a_newer_schema_is_refused() {
    let case = Case::new().await;
    let client = case.client().await;
    let known: i64 = row(&client, "SELECT version FROM gristmill.layout", &[])
        .await
        .get(0);
    client
        .batch_execute("UPDATE gristmill.layout SET version = version + 1, program = '9.1.0'")
        .await
        .unwrap();
    let error = open(&case.url).await.unwrap_err();
    assert!(
        matches!(error, StoreError::NewerSchema { found, known: newest, .. } if found == known + 1 && newest == known),
        "{error}"
    );
}

/// A store of a development version cannot be read; the error says what to do.
#[tokio::test]
async fn a_layout_of_a_development_version_is_refused() {
    let url = shared().create_database().unwrap();
    let database = url.split(['/', '?']).nth(3).unwrap();
    let before = "CREATE SCHEMA gristmill; CREATE TABLE gristmill.migration (version integer)";
    shared().psql(database, before).unwrap();
    let error = open(&url).await.unwrap_err();
    assert!(matches!(error, StoreError::Development { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains(database) && text.contains("finish its jobs with that version"),
        "{text}"
    );
    let tables = shared()
        .psql(
            database,
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'gristmill'",
        )
        .unwrap();
    assert_eq!(tables.trim(), "1", "nothing was made in it");
}

/// A database that cannot hold every text is refused before anything is made in it.
#[tokio::test]
async fn another_encoding_is_refused() {
    let name = "latin";
    shared()
        .psql(
            "postgres",
            &format!("CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0"),
        )
        .unwrap();
    let error = open(&shared().url(name)).await.unwrap_err();
    assert!(
        error.to_string().contains("LATIN1") && error.to_string().contains("ENCODING 'UTF8'"),
        "{error}"
    );
    let schemas = shared()
        .psql(
            name,
            "SELECT count(*) FROM pg_namespace WHERE nspname = 'gristmill'",
        )
        .unwrap();
    assert_eq!(schemas.trim(), "0");
}

/// A role that may not make the schema gets an error that says so.
#[tokio::test]
async fn a_role_without_rights_is_told() {
    let url = shared().create_database().unwrap();
    let database = url
        .trim_start_matches("postgresql:///")
        .split('?')
        .next()
        .unwrap();
    shared().psql(database, "CREATE ROLE nobody_much LOGIN").unwrap();
    let nobody = format!(
        "postgresql:///{database}?user=nobody_much&host={}",
        shared().directory().display()
    );
    let error = open(&nobody).await.unwrap_err();
    assert!(error.to_string().contains("permission denied"), "{error}");
}
