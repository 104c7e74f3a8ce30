//! Settings of callers' sessions and of roles, on which the store does not depend.

use std::sync::Arc;

use gristmill_model::SystemClock;
use gristmill_private_postgres::shared;
use gristmill_store::{JobFilter, Store};
use gristmill_store_conformance::fixture::*;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::Client;

use super::case::{Case, row, texts};

/// Settings that change the meaning of a literal, a number, a time or a comparison.
const ODD: &[&str] = &[
    "standard_conforming_strings = off",
    "backslash_quote = off",
    "escape_string_warning = off",
    "array_nulls = off",
    "transform_null_equals = on",
    "quote_all_identifiers = on",
    "bytea_output = escape",
    "extra_float_digits = -15",
    "datestyle = 'SQL, DMY'",
    "intervalstyle = sql_standard",
    "timezone = 'Asia/Kathmandu'",
    "xmloption = document",
    "default_transaction_isolation = 'repeatable read'",
];

/// The results of the SQL functions and the view for some calls.
async fn calls(client: &Client) -> Vec<String> {
    let mut seen = Vec::new();
    for (kind, payload) in [
        ("work", r#""a\u0041\\ud800""#),
        ("work", r#""\ud83d\ude00""#),
        ("work", r#""\ud800""#),
        ("wo\u{7}rk", "1"),
        (r"w\u0007", "1"),
        ("work", r#"{"n": 1.10, "at": "2026-01-02T03:04:05Z"}"#),
    ] {
        let stored = client
            .query_one(
                "SELECT gristmill.submit($1::text, $2::text::json)",
                &[&kind, &payload],
            )
            .await;
        seen.push(match stored {
            Ok(row) => row.get(0),
            Err(error) => error.as_db_error().unwrap().message().to_owned(),
        });
    }
    for (payloads, options) in [
        (
            vec!["1", "2"],
            r#"{"tags": {"a": "x"}, "retry": {"attempts_max": 2}}"#,
        ),
        (vec!["3", "4"], r#"{"keys": ["a\\", "a\\n"]}"#),
        (vec!["5"], r#"{"key": "a\\"}"#),
        (vec!["6"], r#"{"key": "a\u0007"}"#),
        (vec!["7"], r#"{"tags": {"a=": "x"}}"#),
        (vec!["8"], r#"{"tags": {"a": "\u0007"}}"#),
        (vec!["9"], r#"{"wild": 1}"#),
    ] {
        let submit = "SELECT gristmill.submit('work', $1::text[]::json[], options => $2::text::jsonb)";
        match client.query(submit, &[&payloads, &options]).await {
            Ok(rows) => seen.extend(rows.iter().map(|row| row.get::<_, String>(0))),
            Err(error) => seen.push(error.as_db_error().unwrap().message().to_owned()),
        }
    }
    let view = "SELECT id || ' ' || state || ' ' || payload || ' ' || priority || ' ' || kind FROM gristmill.job ORDER BY id";
    seen.extend(texts(client, view, &[]).await);
    seen
}

/// The functions and the view do the same in every session, and so does a submit within a transaction of the caller.
#[tokio::test]
async fn the_settings_of_callers_change_nothing() {
    let (usual, odd) = (Case::new().await, Case::new().await);
    let mut client = odd.client().await;
    for setting in ODD {
        client.batch_execute(&format!("SET {setting}")).await.unwrap();
    }
    let expected = calls(&usual.client().await).await;
    assert_eq!(calls(&client).await, expected);
    assert!(expected.len() > 15, "{expected:#?}");

    let transaction = client.transaction().await.unwrap();
    let payloads = gristmill_model::PackedArray::from_stored(r#"["\\ud83d\\", "\u0041"]"#);
    let batch = gristmill_model::NewBatch::new(r"w\'ork", payloads);
    let ids = odd
        .store
        .submit_within(&transaction, vec![batch.clone()])
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    let stored: String = row(
        &odd.client().await,
        "SELECT payloads FROM gristmill.batch WHERE id = $1",
        &[&ids[0].0],
    )
    .await
    .get(0);
    assert_eq!(stored, batch.payloads.as_str());
}

/// A role whose sessions have other settings makes a store and works on it like any other.
#[tokio::test]
async fn the_settings_of_a_role_change_nothing() {
    let url = shared().create_database().unwrap();
    let database = url.split(['/', '?']).nth(3).unwrap().to_owned();
    let role = format!("odd_{database}");
    let short = [
        "statement_timeout = 50",
        "lock_timeout = 50",
        "idle_in_transaction_session_timeout = 50",
    ];
    let settings: String = ODD
        .iter()
        .chain(&short)
        .map(|setting| format!("ALTER ROLE {role} SET {setting};"))
        .collect();
    shared()
        .psql(
            "postgres",
            &format!("CREATE ROLE {role} LOGIN; GRANT CREATE ON DATABASE {database} TO {role}; {settings}"),
        )
        .unwrap();
    let url = format!(
        "postgresql:///{database}?user={role}&host={}",
        shared().directory().display()
    );
    let store = PostgresStore::open(&url, PostgresOptions::new(Arc::new(SystemClock), 1))
        .await
        .unwrap();
    submit(&store, batch(3)).await;
    let worker = worker(&store).await;
    assert!(claim(&store, worker, 9).await.is_some());
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().total(), 3);
    store.close().await.unwrap();
}
