//! Opens the store that a command names.

use std::sync::Arc;

use anyhow::{Context, bail};
use gristmill_engine::{Engine, EngineSettings};
use gristmill_store::Store;
use gristmill_store::sqlite::{SqliteOptions, SqliteStore};

use crate::arguments::{StoreArguments, Synchronous};

impl StoreArguments {
    /// Opens the store; makes it where there is none.
    pub fn open_or_create(&self) -> anyhow::Result<Arc<dyn Store>> {
        self.open(true)
    }

    /// Opens the store, which must be there.
    pub fn open_existing(&self) -> anyhow::Result<Arc<dyn Store>> {
        let exists = self
            .store
            .try_exists()
            .with_context(|| format!("{} cannot be looked at", self.store.display()))?;
        if !exists {
            bail!(
                "there is no store {} here; name one with --store, or make one with `gristmill run` or `gristmill submit`",
                self.store.display()
            );
        }
        self.open(false)
    }

    fn open(&self, create: bool) -> anyhow::Result<Arc<dyn Store>> {
        let synchronous = match self.synchronous {
            Synchronous::Full => gristmill_store::sqlite::Synchronous::Full,
            Synchronous::Normal => gristmill_store::sqlite::Synchronous::Normal,
        };
        let options = SqliteOptions {
            synchronous,
            create,
            ..SqliteOptions::default()
        };
        Ok(Arc::new(SqliteStore::open(&self.store, options)?))
    }
}

/// An engine over `store` that keeps the house.
pub async fn engine_over(store: Arc<dyn Store>) -> anyhow::Result<Engine> {
    Ok(Engine::new(store, EngineSettings::default()).await?)
}
