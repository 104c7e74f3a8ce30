//! Stores in PostgreSQL.

use std::sync::Arc;

use gristmill_store::Store;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};

pub use gristmill_postgres_link::NameLock;

/// Opens the store in the database at `url`. With `waits`, its operations wait for a database that goes away, however long.
pub async fn open(url: &str, waits: bool) -> anyhow::Result<Arc<dyn Store>> {
    let mut options = PostgresOptions::default();
    if waits {
        options.unreachable_ms_max = None;
    }
    Ok(Arc::new(PostgresStore::open(url, options).await?))
}
