//! Opening a store by its place.

use std::sync::Arc;

use crate::{PostgresOptions, PostgresStore, SqliteOptions, SqliteStore, Store, StoreError};

/// Whether a place is a PostgreSQL database's URL, and not a file's path.
pub fn is_postgres(place: &str) -> bool {
    place.starts_with("postgresql://") || place.starts_with("postgres://")
}

/// Opens the store at `place`, with default options: a PostgreSQL database, where it begins with `postgresql://` or
/// `postgres://`, or else a SQLite file. Makes the store where there is none. Needs a Tokio runtime.
///
/// # Errors
///
/// As [`PostgresStore::open`] and [`SqliteStore::open`].
pub async fn open(place: &str) -> Result<Arc<dyn Store>, StoreError> {
    if is_postgres(place) {
        let store = PostgresStore::open(place, PostgresOptions::default()).await?;
        return Ok(Arc::new(store));
    }
    Ok(Arc::new(SqliteStore::open(place, SqliteOptions::default())?))
}
