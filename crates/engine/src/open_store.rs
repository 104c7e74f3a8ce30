//! Opening a store by its place.

use std::sync::Arc;

use gristmill_store::{Store, StoreError};
use gristmill_store_sqlite::{SqliteOptions, SqliteStore};

/// Reports whether a place is a PostgreSQL database's URL, and not a file's path.
pub fn is_postgres(place: &str) -> bool {
    place.starts_with("postgresql://") || place.starts_with("postgres://")
}

/// Opens the store at `place` with default options: a PostgreSQL database if it begins with `postgresql://` or
/// `postgres://`, or else a SQLite file. Creates the store if needed. Needs a Tokio runtime.
///
/// # Errors
///
/// Fails like `PostgresStore::open` and [`SqliteStore::open`], and with [`StoreError::Open`] for a database if this
/// program was built without the feature `postgres`.
pub async fn open_store(place: &str) -> Result<Arc<dyn Store>, StoreError> {
    if is_postgres(place) {
        return open_postgres(place).await;
    }
    Ok(Arc::new(SqliteStore::open(place, SqliteOptions::default())?))
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    use gristmill_store_postgres::{PostgresOptions, PostgresStore};
    let store = PostgresStore::open(url, PostgresOptions::default()).await?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "postgres"))]
async fn open_postgres(_: &str) -> Result<Arc<dyn Store>, StoreError> {
    // The error has no address, because it may hold a password.
    Err(StoreError::Open {
        path: "the database".into(),
        reason: "this program was built without the feature `postgres` of gristmill-engine; turn it on, or name a file"
            .to_owned(),
    })
}
