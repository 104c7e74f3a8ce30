//! Stores in PostgreSQL.

use std::sync::Arc;

use gristmill_store::Store;
use gristmill_store_postgres::{PostgresOptions, PostgresStore};

pub use gristmill_postgres_link::NameLock;

/// Opens the store in the database at `url`.
pub async fn open(url: &str) -> anyhow::Result<Arc<dyn Store>> {
    Ok(Arc::new(
        PostgresStore::open(url, PostgresOptions::default()).await?,
    ))
}
