//! Connections to the database: its address, their pool, and their errors.

use std::path::PathBuf;
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use gristmill_postgres_link::{Address, without_password};
use gristmill_store::StoreError;
use tokio_postgres::Config;

use crate::error::{MemoryError, in_words};
use crate::limits::{CONNECT_TIMEOUT_MS, POSTGRES_CONNECTIONS_MAX};

/// The first statements of every connection. Queries are short, so that compiling them would take longer than running them.
const SETTINGS: &str =
    "SET search_path = gristmill_memory; SET jit = off; SET application_name = 'gristmill memory'";

/// The error behind a pooler, where the settings would reach the sessions of other clients.
const NEEDS_SESSIONS: &str = "a connection pooler stands before the database, and a knowledge base needs sessions of its own: name \
     the server itself, or add pooler=session to the address where the pooler lends servers for whole sessions";

/// The reason why an operation on the database failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The error of the database or the connection.
    Database(tokio_postgres::Error),
    /// No connection can be made.
    Connection(String),
    /// The stored text is invalid, because another program wrote it.
    Damaged(String),
    /// The change contradicts the stored data.
    Refused(MemoryError),
}

pub(super) type Result<T> = std::result::Result<T, Failure>;

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Failure::Database(error)
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Failure::Database(error),
            PoolError::Timeout(_) => Failure::Connection(format!(
                "there was no answer, or no free connection, within {} s",
                CONNECT_TIMEOUT_MS / 1_000
            )),
            other => Failure::Connection(in_words(&other)),
        }
    }
}

impl From<MemoryError> for Failure {
    fn from(error: MemoryError) -> Self {
        Failure::Refused(error)
    }
}

/// Makes the error for a damaged piece of stored data.
pub(super) fn damaged(what: &str, reason: impl std::fmt::Display) -> Failure {
    Failure::Damaged(format!("{what} is damaged: {reason}"))
}

/// A database, and the connections to it.
#[derive(Debug)]
pub(super) struct Database {
    pool: Pool,
    /// The address without its password.
    shown: PathBuf,
}

impl Database {
    /// Makes the database at an address, without a connection.
    pub(super) fn of(url: &str) -> std::result::Result<Database, MemoryError> {
        let shown = PathBuf::from(without_password(url));
        let refused = |reason: String| MemoryError::Database {
            path: shown.clone(),
            reason,
        };
        let address = Address::parse(url).map_err(|error| match error {
            StoreError::Open { reason, .. } => refused(reason),
            other => refused(other.to_string()),
        })?;
        let timeout = Duration::from_millis(CONNECT_TIMEOUT_MS);
        let recycling = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let found = address.clone();
        let pool = Pool::builder(Manager::from_connect(Config::new(), address, recycling))
            .max_size(POSTGRES_CONNECTIONS_MAX)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(timeout))
            .create_timeout(Some(timeout))
            .post_create(Hook::async_fn(move |client, _| {
                let address = found.clone();
                Box::pin(async move {
                    address.find_pooler(client).await.map_err(HookError::Backend)?;
                    if address.is_pooled() {
                        Err(HookError::message(NEEDS_SESSIONS))
                    } else {
                        client.batch_execute(SETTINGS).await.map_err(HookError::Backend)
                    }
                })
            }))
            .build()
            .map_err(|error| refused(error.to_string()))?;
        Ok(Database { pool, shown })
    }

    /// Takes a connection from the pool until it is dropped.
    pub(super) async fn connection(&self) -> Result<Object> {
        Ok(self.pool.get().await?)
    }

    /// The address without its password.
    pub(super) fn shown(&self) -> PathBuf {
        self.shown.clone()
    }

    /// Converts a failure to the error that callers see.
    pub(super) fn error(&self, failure: Failure) -> MemoryError {
        let reason = match failure {
            Failure::Refused(error) => return error,
            Failure::Database(error) => in_words(&error),
            Failure::Connection(reason) | Failure::Damaged(reason) => reason,
        };
        MemoryError::Database {
            path: self.shown(),
            reason,
        }
    }
}
