//! The connections of one handle, by purpose: an operation that waits for a lock of another transaction keeps no operation
//! of another purpose waiting.

use std::sync::Arc;

use deadpool::managed::{PoolError, QueueMode};
use futures::FutureExt;
use gristmill_postgres_link::SharedAddress;
use gristmill_store::StoreError;

use crate::database::connection::{Manager, Pool, Pooled};
use crate::database::session::{Role, Waits};
use crate::database::writability::Writability;
use crate::failure::{Failure, Result};
use crate::limits::{
    CHANGERS_MAX, CONNECTION_WAIT_MAX, QUERY_TIMEOUT_FACTOR, READERS_MAX, SIGNALLERS_MAX, WRITERS_MAX,
};

/// The purpose of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Submits, claims, reports, housekeeping.
    Work,
    /// Submits of jobs with keys, changes of jobs, new lanes: they wait for transactions of SQL clients that did the same.
    Change,
    /// Registrations, heartbeats, progress: they wait for no lock of a client.
    Signal,
}

/// The pools of one handle.
#[derive(Debug)]
pub(crate) struct Pools {
    work: Pool,
    change: Pool,
    signal: Pool,
    readers: Pool,
    writability: Arc<Writability>,
}

impl Pools {
    pub fn new(address: &SharedAddress, waits: Waits) -> std::result::Result<Pools, StoreError> {
        let queries = Waits {
            statement: waits.statement * QUERY_TIMEOUT_FACTOR,
            ..waits
        };
        let writability = Arc::new(Writability::default());
        let pool = |role, size, waits| {
            let manager = Manager {
                address: address.clone(),
                role,
                waits,
                writability: writability.clone(),
            };
            // The connection that was used last has everything at hand.
            Pool::builder(manager)
                .max_size(size)
                .queue_mode(QueueMode::Lifo)
                .build()
                .map_err(|error| StoreError::Open {
                    path: address.as_str().into(),
                    reason: error.to_string(),
                })
        };
        Ok(Pools {
            work: pool(Role::Write, WRITERS_MAX, waits)?,
            change: pool(Role::Write, CHANGERS_MAX, waits)?,
            signal: pool(Role::Write, SIGNALLERS_MAX, waits)?,
            readers: pool(Role::Read, READERS_MAX, queries)?,
            writability: writability.clone(),
        })
    }

    /// A connection that writes.
    pub async fn writer(&self, purpose: Purpose) -> Result<Pooled> {
        self.writability.check()?;
        get(match purpose {
            Purpose::Work => &self.work,
            Purpose::Change => &self.change,
            Purpose::Signal => &self.signal,
        })
        .await
    }

    /// A connection for queries.
    pub async fn reader(&self) -> Result<Pooled> {
        get(&self.readers).await
    }

    /// Takes the rows of these connections away, of those that are at hand, and closes all after their current operations.
    pub async fn close(&self) {
        for writers in [&self.work, &self.change, &self.signal] {
            forget_writers(writers).await;
            writers.close();
        }
        self.readers.close();
    }
}

async fn get(pool: &Pool) -> Result<Pooled> {
    let got = tokio::time::timeout(CONNECTION_WAIT_MAX, pool.get()).await;
    match got {
        Err(_) => Err(Failure::Crowded),
        Ok(got) => got.map_err(|error| match error {
            PoolError::Backend(failure) => failure,
            PoolError::Closed => StoreError::Closed.into(),
            PoolError::Timeout(_) | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
                Failure::Disconnected("no connection was to be had".to_owned())
            }
        }),
    }
}

async fn forget_writers(writers: &Pool) {
    let mut connections = Vec::new();
    while writers.status().available > connections.len()
        && let Some(Ok(connection)) = writers.get().now_or_never()
    {
        connections.push(connection);
    }
    let ids: Vec<String> = connections
        .iter()
        .filter_map(|connection| connection.writer.as_ref().map(|writer| writer.id.to_string()))
        .collect();
    if let Some(connection) = connections.first() {
        let sql = "DELETE FROM gristmill.writer WHERE id = ANY ($1)";
        if let Err(failure) = connection.execute_prepared(sql, &[&ids]).await {
            tracing::debug!(
                reason = failure.reason(),
                "the rows of writers stay until they are a day old"
            );
        }
    }
}
