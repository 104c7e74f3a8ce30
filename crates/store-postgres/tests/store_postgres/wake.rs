//! Whom an exchange with a PostgreSQL store wakes: workers that wait for jobs that it did not take itself.

use std::sync::Arc;

use gristmill_model::{ManualClock, Timestamp};
use gristmill_private_postgres::shared;
use gristmill_store_conformance::claim::waiting;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};

/// As behind a pooler of transactions, the store has no listener, which would wake its workers when it begins.
async fn wakes(dependent: &'static str, jobs_max: u32) -> bool {
    let url = shared().create_database().unwrap();
    let separator = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{separator}pooler=transaction");
    let clock = Arc::new(ManualClock::new(Timestamp(1_000_000)));
    let options = PostgresOptions::new(clock, 7);
    let store = PostgresStore::open(&url, options).await.unwrap();
    waiting::wakes_others(&store, dependent, jobs_max).await
}

#[tokio::test]
async fn an_exchange_wakes_others_for_jobs_that_it_leaves() {
    waiting::an_exchange_wakes_others_for_jobs_that_it_leaves(wakes).await;
}
