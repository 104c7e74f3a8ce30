//! Replaces the store in PostgreSQL.

use std::sync::Arc;

use gristmill_store::Store;

use crate::left_out::left_out;

/// Replaces the lock of a name in a database.
#[derive(Debug)]
pub enum NameLock {}

impl NameLock {
    /// Refuses.
    pub async fn try_take(_url: &str, _name: &str) -> anyhow::Result<Option<NameLock>> {
        Err(left_out("PostgreSQL"))
    }

    /// Never resolves, because there is no lock.
    pub async fn lost(&self) {
        match *self {}
    }
}

/// Refuses.
pub async fn open(_url: &str, _waits: bool) -> anyhow::Result<Arc<dyn Store>> {
    Err(left_out("PostgreSQL"))
}
