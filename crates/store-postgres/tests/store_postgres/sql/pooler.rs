//! Connections that do not rely on a session, as behind a pooler.

use std::sync::Arc;

use gristmill_model::SystemClock;
use gristmill_store::{Change, JobFilter, Store};
use gristmill_store_conformance::fixture::*;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};

use super::case::{Case, row, texts};

/// With `pooler=transaction`, nothing stays in the sessions: no setting, no prepared statement, no lock, no listener.
#[tokio::test]
async fn nothing_stays_in_sessions() {
    let case = Case::new().await;
    let owner = case.client().await;
    // The log has every statement and every command.
    let name: String = row(&owner, "SELECT current_database()::text", &[]).await.get(0);
    owner
        .batch_execute(&format!("ALTER DATABASE {name} SET log_statement = 'all'"))
        .await
        .unwrap();
    let url = format!("{}&pooler=transaction", case.url);
    let store = PostgresStore::open(&url, PostgresOptions::new(Arc::new(SystemClock), 5))
        .await
        .unwrap();
    let id = submit(&store, batch(3)).await;
    let worker = worker(&store).await;
    let slice = only(claim(&store, worker, 1).await);
    exchange(&store, worker, vec![completed(&slice)], None).await;
    let mut watch = store.watch_outcomes(id);
    watch.changed().await;
    assert_eq!(
        change(&store, JobFilter::default(), Change::Cancel).await.changed,
        2
    );
    assert_eq!(store.counts(&JobFilter::default()).await.unwrap().total(), 3);
    let locks = "SELECT l.locktype FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
         WHERE d.datname = current_database() AND l.locktype = 'advisory'";
    assert_eq!(texts(&owner, locks, &[]).await, [""; 0]);
    store.close().await.unwrap();

    let log = std::fs::read_to_string(gristmill_private_postgres::shared().directory().join("log")).unwrap();
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains(&format!(" {name} LOG:  ")))
        .collect();
    assert!(lines.len() > 20, "{lines:#?}");
    for line in lines {
        let (_, said) = line.split_once("LOG:  ").unwrap();
        let is_unnamed = !said.starts_with("execute ") || said.starts_with("execute <unnamed>");
        let sets = said.contains("statement: SET ") && !said.contains("SET LOCAL");
        assert!(is_unnamed && !sets && !said.contains("LISTEN"), "{line}");
    }
}
