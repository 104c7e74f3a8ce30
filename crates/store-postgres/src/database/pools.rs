//! The connections of one handle, by purpose: an operation that waits for another transaction's lock does not delay
//! operations of another purpose. If the server gives no more connections, the existing ones serve all purposes.

use std::sync::{Arc, Mutex, PoisonError};

use deadpool::managed::{PoolError, QueueMode};
use futures::FutureExt;
use gristmill_postgres_link::SharedAddress;
use gristmill_store::StoreError;
use tokio::time::Instant;

use crate::database::connection::{Manager, Pool, Pooled};
use crate::database::session::{Role, Waits};
use crate::database::shortage::Shortage;
use crate::database::statement::ParameterTypes;
use crate::database::writability::Writability;
use crate::failure::{Failure, Result};
use crate::limits::{
    CHANGERS_MAX, CONNECTION_WAIT_MAX, IDLE_CONNECTION_MAX, QUERY_TIMEOUT_FACTOR, READERS_MAX,
    SHORTAGE_LOOK_EVERY, SIGNALLERS_MAX, WRITERS_MAX,
};

/// The purpose of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Submits, claims, reports, housekeeping.
    Work,
    /// Submits of jobs with keys, changes of jobs, new lanes: they wait for transactions of SQL clients that do the same.
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
    address: SharedAddress,
    shortage: Arc<Shortage>,
    /// When idle connections were last closed.
    swept_at: Mutex<Instant>,
    writability: Arc<Writability>,
}

impl Pools {
    pub fn new(
        address: &SharedAddress,
        waits: Waits,
        shortage: Arc<Shortage>,
    ) -> std::result::Result<Pools, StoreError> {
        let queries = Waits {
            statement: waits.statement * QUERY_TIMEOUT_FACTOR,
            ..waits
        };
        let writability = Arc::new(Writability::default());
        let types = Arc::new(ParameterTypes::default());
        let pool = |role, size, waits| {
            let manager = Manager {
                address: address.clone(),
                role,
                waits,
                writability: writability.clone(),
                types: types.clone(),
            };
            // The connection that was used last has the most statements prepared.
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
            address: address.clone(),
            shortage,
            swept_at: Mutex::new(Instant::now()),
            writability: writability.clone(),
        })
    }

    /// Takes a connection that writes.
    pub async fn writer(&self, purpose: Purpose) -> Result<Pooled> {
        self.writability.check()?;
        let own = match purpose {
            Purpose::Work => &self.work,
            Purpose::Change => &self.change,
            Purpose::Signal => &self.signal,
        };
        self.get(own, &[&self.work, &self.change, &self.signal]).await
    }

    /// Takes a connection for queries.
    pub async fn reader(&self) -> Result<Pooled> {
        self.get(
            &self.readers,
            &[&self.readers, &self.work, &self.change, &self.signal],
        )
        .await
    }

    fn all(&self) -> [&Pool; 4] {
        [&self.work, &self.change, &self.signal, &self.readers]
    }

    /// The number of connections.
    fn count(&self) -> usize {
        self.all().iter().map(|pool| pool.status().size).sum()
    }

    /// Closes the idle connections: others have become silent, so these may be silent too.
    pub fn distrust(&self) {
        for pool in self.all() {
            let _ = pool.retain(|_, _| false);
        }
    }

    /// Closes connections that have been idle for long.
    fn sweep(&self, now: Instant) {
        let mut swept_at = self.swept_at.lock().unwrap_or_else(PoisonError::into_inner);
        if now.duration_since(*swept_at) < IDLE_CONNECTION_MAX / 2 {
            return;
        }
        *swept_at = now;
        for pool in self.all() {
            let _ = pool.retain(|_, metrics| metrics.last_used() < IDLE_CONNECTION_MAX);
        }
    }

    /// Takes a connection of a pool, or of any of `fitting` if the server gives no more.
    async fn get(&self, own: &Pool, fitting: &[&Pool]) -> Result<Pooled> {
        self.sweep(Instant::now());
        // Boxed, because all operations hold it, some levels deep.
        let any = self.get_any(own, fitting).boxed();
        let got = tokio::time::timeout(CONNECTION_WAIT_MAX, any).await;
        got.unwrap_or(Err(Failure::Crowded))
    }

    async fn get_any(&self, own: &Pool, fitting: &[&Pool]) -> Result<Pooled> {
        loop {
            let is_short = self.shortage.is_on(Instant::now());
            if is_short && self.free_one(fitting) {
                tokio::select! {
                    connection = idle_one(fitting) => return Ok(connection),
                    () = tokio::time::sleep(SHORTAGE_LOOK_EVERY) => continue,
                }
            }
            let made = tokio::select! {
                made = own.get() => made,
                // A pooler with few connections may let a new one wait for long.
                connection = idle_one(fitting), if self.shortage.has_been() => return Ok(connection),
            };
            let failure = match made {
                Ok(connection) => return Ok(connection),
                Err(PoolError::Backend(failure)) => failure,
                Err(PoolError::Closed) => return Err(StoreError::Closed.into()),
                Err(PoolError::Timeout(_) | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_)) => {
                    return Err(Failure::Disconnected("no connection was to be had".to_owned()));
                }
            };
            if !failure.is_shortage() {
                return Err(failure);
            }
            // Connections that listen are closed to make room.
            let (others, reason) = (self.count(), failure.reason());
            self.shortage
                .begin(self.address.as_str(), &reason, others, Instant::now());
            if others == 0 {
                return Err(failure);
            }
            tokio::time::sleep(SHORTAGE_LOOK_EVERY).await;
        }
    }

    /// Reports whether one of the fitting connections will become free. Otherwise it closes a free one of the others,
    /// to make room.
    fn free_one(&self, fitting: &[&Pool]) -> bool {
        let has_any = fitting.iter().any(|pool| pool.status().size > 0);
        if !has_any {
            let _ = self.readers.retain(|_, _| false);
        }
        has_any
    }

    /// Deletes the rows of those connections that are idle, and closes all after their current operations.
    pub async fn close(&self) {
        for writers in [&self.work, &self.change, &self.signal] {
            forget_writers(writers).await;
            writers.close();
        }
        self.readers.close();
    }
}

/// Resolves when a connection of these pools is free.
async fn idle_one(pools: &[&Pool]) -> Pooled {
    loop {
        for pool in pools {
            if pool.status().available > 0
                && let Some(Ok(connection)) = pool.get().now_or_never()
            {
                return connection;
            }
        }
        tokio::time::sleep(SHORTAGE_LOOK_EVERY).await;
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
