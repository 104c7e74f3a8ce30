//! The PostgreSQL store passes the suite that every store passes.

use std::sync::Arc;

use async_trait::async_trait;
use gristmill_model::{ManualClock, Timestamp};
use gristmill_private_postgres::shared;
use gristmill_store::conformance::Database;
use gristmill_store::{PostgresOptions, PostgresStore, Store};

struct TemporaryPostgres {
    url: String,
    clock: Arc<ManualClock>,
}

impl TemporaryPostgres {
    fn new() -> Self {
        TemporaryPostgres {
            url: shared().create_database().unwrap(),
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

    fn count_statements(&self) {
        let sql = format!("ALTER DATABASE {} SET log_statement = 'all'", self.name());
        shared().psql("postgres", &sql).unwrap();
    }

    fn statements(&self) -> u64 {
        // A statement is in the log before it begins, with the database's name before it.
        let log = std::fs::read_to_string(shared().directory().join("log")).unwrap();
        let (executed, command) = (
            format!(" {} LOG:  execute ", self.name()),
            format!(" {} LOG:  statement: ", self.name()),
        );
        let is_statement = |line: &&str| line.contains(&executed) || line.contains(&command);
        log.lines().filter(is_statement).count() as u64
    }
}

impl TemporaryPostgres {
    /// The database's own name.
    fn name(&self) -> &str {
        let path = self.url.trim_start_matches("postgresql:///");
        path.split('?').next().unwrap()
    }
}

gristmill_store::store_conformance!(TemporaryPostgres::new(), sequences: 25);
