//! The SQLite store passes the suite that every store passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use gristmill_model::{ManualClock, Timestamp};
use gristmill_store::Store;
use gristmill_store_conformance::Database;
use gristmill_store_sqlite::{SqliteOptions, SqliteStore, Synchronous};

struct TemporarySqlite {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    statements: Arc<AtomicU64>,
}

impl TemporarySqlite {
    fn new() -> Self {
        TemporarySqlite {
            folder: tempfile::tempdir().unwrap(),
            clock: Arc::new(ManualClock::new(Timestamp(1_000_000))),
            statements: Arc::default(),
        }
    }
}

#[async_trait]
impl Database for TemporarySqlite {
    async fn open(&self) -> Arc<dyn Store> {
        let mut options = SqliteOptions::new(self.clock.clone(), 7);
        // No check cuts the power.
        options.synchronous = Synchronous::Normal;
        options.statements = Some(self.statements.clone());
        Arc::new(SqliteStore::open(self.folder.path().join("test.db"), options).unwrap())
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }

    fn count_statements(&self) {}

    fn statements(&self) -> u64 {
        self.statements.load(Ordering::Relaxed)
    }
}

gristmill_store_conformance::store_conformance!(TemporarySqlite::new(), sequences: 200);
