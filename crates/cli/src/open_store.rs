//! Opens the store that a command names.

use std::sync::Arc;

use anyhow::{Context, bail};
use gristmill_engine::{Engine, EngineSettings};
use gristmill_store::Store;
use gristmill_store::postgres::{PostgresOptions, PostgresStore};
use gristmill_store::sqlite::{SqliteOptions, SqliteStore};

use crate::arguments::{LeaseArguments, StoreArguments, Synchronous, milliseconds};
use crate::store_location::StoreLocation;

impl StoreArguments {
    /// Opens the store; makes it where there is none.
    pub async fn open_or_create(&self) -> anyhow::Result<Arc<dyn Store>> {
        self.open(true).await
    }

    /// Opens the store, which must be there.
    pub async fn open_existing(&self) -> anyhow::Result<Arc<dyn Store>> {
        if let StoreLocation::File(path) = &self.store {
            let exists = path
                .try_exists()
                .with_context(|| format!("{} cannot be looked at", path.display()))?;
            if !exists {
                bail!(
                    "there is no store {} here; name one with --store, or make one with `gristmill run` or `gristmill submit`",
                    path.display()
                );
            }
        }
        self.open(false).await
    }

    async fn open(&self, create: bool) -> anyhow::Result<Arc<dyn Store>> {
        if self.store.shows_password_among(std::env::args_os()) {
            bail!(
                "--store {} has a password, which everybody on this machine can read among the arguments; \
                 put it into the environment (GRISTMILL_STORE or PGPASSWORD) or into ~/.pgpass",
                self.store
            );
        }
        match &self.store {
            StoreLocation::File(path) => {
                let synchronous = match self.synchronous {
                    Synchronous::Full => gristmill_store::sqlite::Synchronous::Full,
                    Synchronous::Normal => gristmill_store::sqlite::Synchronous::Normal,
                };
                let options = SqliteOptions {
                    synchronous,
                    create,
                    ..SqliteOptions::default()
                };
                Ok(Arc::new(SqliteStore::open(path, options)?))
            }
            StoreLocation::Postgres(url) => {
                let store = PostgresStore::open(url.secret(), PostgresOptions::default()).await?;
                Ok(Arc::new(store))
            }
        }
    }
}

/// An engine over `store` that keeps the house.
pub async fn engine_over(store: Arc<dyn Store>, lease: &LeaseArguments) -> anyhow::Result<Engine> {
    let settings = EngineSettings {
        lease_lost_after_ms: i64::try_from(milliseconds(lease.lease)).unwrap_or(i64::MAX),
        ..EngineSettings::default()
    };
    Ok(Engine::new(store, settings).await?)
}
