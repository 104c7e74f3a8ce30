//! A database of its own, with a store in it and SQL clients beside it.

use std::sync::Arc;

use gristmill_model::{Clock, ManualClock, SystemClock};
use gristmill_private_postgres::{PrivatePostgres, shared};
use gristmill_store_postgres::{PostgresOptions, PostgresStore};
use tokio_postgres::error::DbError;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row};

pub struct Case {
    pub url: String,
    pub store: PostgresStore,
    pub clock: Arc<ManualClock>,
}

impl Case {
    /// An empty store, whose clock shows the current time: SQL clients use the server's clock.
    pub async fn new() -> Case {
        Case::on(shared()).await
    }

    /// The same on another server.
    pub async fn on(server: &PrivatePostgres) -> Case {
        let url = server.create_database().unwrap();
        let clock = Arc::new(ManualClock::new(SystemClock.now()));
        let store = PostgresStore::open(&url, PostgresOptions::new(clock.clone(), 7))
            .await
            .unwrap();
        Case { url, store, clock }
    }

    /// A client's connection.
    pub async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        // An error of the connection shows in the client's next call.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        client
    }

    /// Moves the store's clock past the submits of SQL clients so far.
    pub fn catch_up(&self) {
        let behind = SystemClock.now().0 - self.clock.now().0;
        self.clock.advance_ms(behind.max(0) + 1);
    }
}

/// The first column of a query's rows.
pub async fn texts(client: &Client, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Vec<String> {
    let rows = client.query(sql, params).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// The only row of a query.
pub async fn row(client: &Client, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Row {
    client.query_one(sql, params).await.unwrap()
}

/// The error of the server for a statement.
pub async fn refusal(client: &Client, sql: &str) -> DbError {
    let error = client.query(sql, &[]).await.expect_err(sql);
    error
        .as_db_error()
        .unwrap_or_else(|| panic!("{sql}: {error}"))
        .clone()
}
