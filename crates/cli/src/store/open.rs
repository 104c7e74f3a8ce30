//! Opens the store that a command names.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use gristmill_engine::{Engine, EngineSettings};
use gristmill_store::{Store, StoreError};
use gristmill_store_sqlite::{Access, SqliteOptions, SqliteStore};
use tokio::time::Instant;

use crate::arguments::shared::{LeaseArguments, StoreArguments, Synchronous};
use crate::span::milliseconds;
use crate::store::checkpoint;
use crate::store::location::StoreLocation;
use crate::store::postgres;

/// The interval of messages about a database that a long-running process cannot reach at its start.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// The first wait between two attempts. Each later one is twice as long.
const REACH_WAIT_FIRST: Duration = Duration::from_millis(100);

/// The longest wait between two attempts.
const REACH_WAIT_LONGEST: Duration = Duration::from_secs(2);

impl StoreArguments {
    /// Opens the store, and creates it if needed.
    pub async fn open_or_create(&self) -> anyhow::Result<Arc<dyn Store>> {
        self.open(true, false).await
    }

    /// Opens the store, which must be there.
    pub async fn open_existing(&self) -> anyhow::Result<Arc<dyn Store>> {
        if let StoreLocation::File(path) = &self.store {
            let exists = path
                .try_exists()
                .with_context(|| format!("{} cannot be read", path.display()))?;
            if !exists {
                bail!(
                    "the store {} does not exist; name another with --store, or create one with `gristmill run` or `gristmill submit`",
                    path.display()
                );
            }
        }
        self.open(false, false).await
    }

    /// Opens the store for a long-running process, and creates it if needed. Waits for a database that cannot be
    /// reached yet, for example because it restarts, and prints a message. With `waits`, later operations also wait for
    /// a database that goes away, however long.
    pub async fn open_when_reachable(&self, waits: bool) -> anyhow::Result<Arc<dyn Store>> {
        let (mut told_at, mut wait) = (None::<Instant>, REACH_WAIT_FIRST);
        loop {
            let error = match self.open(true, waits).await {
                Ok(store) => return Ok(store),
                Err(error) => error,
            };
            let Some(StoreError::Unreachable { database, reason, .. }) = error.downcast_ref() else {
                return Err(error);
            };
            if told_at.is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
                told_at = Some(Instant::now());
                say!("gristmill: {database} cannot be reached yet ({reason}); trying until it can be");
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(REACH_WAIT_LONGEST);
        }
    }

    async fn open(&self, create: bool, waits: bool) -> anyhow::Result<Arc<dyn Store>> {
        let synchronous = match self.synchronous {
            Synchronous::Full => gristmill_store_sqlite::Synchronous::Full,
            Synchronous::Normal => gristmill_store_sqlite::Synchronous::Normal,
        };
        let options = SqliteOptions {
            access: if create {
                Access::Write
            } else {
                Access::WriteWherePermitted
            },
            synchronous,
            create,
            ..SqliteOptions::default()
        };
        open_location_for(&self.store, options, waits).await
    }
}

/// Opens the store at a location. The options apply to a file.
pub async fn open_location(
    location: &StoreLocation,
    options: SqliteOptions,
) -> anyhow::Result<Arc<dyn Store>> {
    open_location_for(location, options, false).await
}

async fn open_location_for(
    location: &StoreLocation,
    options: SqliteOptions,
    waits: bool,
) -> anyhow::Result<Arc<dyn Store>> {
    refuse_shown_password(location)?;
    match location {
        StoreLocation::File(path) => {
            let store = SqliteStore::open(path, options)?;
            if !store.is_read_only() {
                checkpoint::note_opened(store.path());
            }
            Ok(Arc::new(store))
        }
        StoreLocation::Postgres(url) => postgres::open(url.secret(), waits).await,
    }
}

/// Refuses a location with a password in the program's arguments.
pub fn refuse_shown_password(location: &StoreLocation) -> anyhow::Result<()> {
    if location.shows_password_among(std::env::args_os()) {
        bail!(
            "{location} has a password, which everybody on this machine can read among the arguments; put it into the \
             environment (PGPASSWORD; GRISTMILL_STORE for --store, GRISTMILL_MEMORY for --into) or into ~/.pgpass"
        );
    }
    Ok(())
}

/// An engine over `store` that does the housekeeping.
pub async fn engine_over(store: Arc<dyn Store>, lease: &LeaseArguments) -> anyhow::Result<Engine> {
    let settings = EngineSettings {
        lease_lost_after_ms: i64::try_from(milliseconds(lease.lease)).unwrap_or(i64::MAX),
        ..EngineSettings::default()
    };
    Ok(Engine::new(store, settings).await?)
}
