//! The PostgreSQL store passes the suite that every store passes.

use std::sync::Arc;

use async_trait::async_trait;
use gristmill_model::{ManualClock, Timestamp};
use gristmill_store::conformance::Database;
use gristmill_store::{PostgresOptions, PostgresStore, Store};

struct TemporaryPostgres {
    url: String,
    clock: Arc<ManualClock>,
}

impl TemporaryPostgres {
    fn new() -> Self {
        TemporaryPostgres {
            url: gristmill_private_postgres::shared().create_database().unwrap(),
            clock: Arc::new(ManualClock::new(Timestamp(1_000_000))),
        }
    }
}

#[async_trait]
impl Database for TemporaryPostgres {
    async fn open(&self) -> Arc<dyn Store> {
        let options = PostgresOptions::new(self.clock.clone(), 7);
        Arc::new(PostgresStore::open(&self.url, options).await.unwrap())
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

gristmill_store::store_conformance!(TemporaryPostgres::new(), sequences: 25);
