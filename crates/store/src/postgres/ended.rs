//! Telling those who await outcomes, of whatever process ended the jobs.
//!
//! A listening connection keeps a row for each batch that its process awaits. The trigger of the table of reports
//! notifies only for such batches, so reports cost a look into an empty table while nobody waits. Where rows are new,
//! those who wait look once more: reports that were committed before notified nobody. A report that is being committed
//! at that very moment may be missed, so those who wait look every now and then, too.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::ClientWrapper;
use gristmill_model::BatchId;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::address::SharedAddress;
use super::failure::{Failure, Result};
use super::limits::{LISTEN_AFTER_LAST_AWAITED, RECONNECT_WAIT_FIRST, RECONNECT_WAIT_MAX};
use crate::awaited::{Awaited, OutcomeWatch};

/// The rows are not worth a wait for the disk. Deletes those of connections that are gone.
const BEGIN: &str = "SET application_name = 'gristmill'; SET synchronous_commit = off; LISTEN gristmill_ended; \
     DELETE FROM gristmill.awaited w WHERE listener = pg_backend_pid() \
     OR NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = w.listener)";

const ADD: &str = "INSERT INTO gristmill.awaited (batch_id, listener) SELECT unnest($1::bigint[]), pg_backend_pid() \
     ON CONFLICT DO NOTHING";

const REMOVE: &str =
    "DELETE FROM gristmill.awaited WHERE batch_id = ANY ($1::bigint[]) AND listener = pg_backend_pid()";

/// How those of one handle who await outcomes are told.
#[derive(Debug)]
pub(super) struct EndedListener {
    address: SharedAddress,
    awaited: Arc<Awaited>,
    listening: AtomicBool,
    closing: watch::Sender<bool>,
}

impl EndedListener {
    pub fn new(address: SharedAddress) -> Self {
        EndedListener {
            address,
            awaited: Arc::default(),
            listening: AtomicBool::new(false),
            closing: watch::Sender::new(false),
        }
    }

    /// Begins to await a batch.
    pub fn watch(&self, batch: BatchId) -> OutcomeWatch {
        self.awaited.watch(batch)
    }

    /// Whether the caller is the one to run [`listen`](EndedListener::listen).
    pub fn begin_listening(&self) -> bool {
        !self.listening.swap(true, Ordering::AcqRel)
    }

    /// Ends the listener.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Passes on what is told, until the store is closed.
    pub async fn listen(&self) {
        let mut closing = self.closing.subscribe();
        tokio::select! {
            _ = closing.wait_for(|closing| *closing) => {}
            () = self.listen_for_ever() => {}
        }
    }

    async fn listen_for_ever(&self) {
        let mut wait = RECONNECT_WAIT_FIRST;
        loop {
            while self.awaited.len() == 0 {
                self.awaited.changed().await;
            }
            let began = Instant::now();
            let Err(failure) = self.listen_once().await else {
                continue;
            };
            tracing::debug!(
                reason = failure.reason(),
                "which jobs other processes ended is found by looking for it"
            );
            wait = match began.elapsed() > RECONNECT_WAIT_MAX {
                true => RECONNECT_WAIT_FIRST,
                false => (wait * 2).min(RECONNECT_WAIT_MAX),
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Listens on one connection, until that is lost or nobody has waited for a while.
    async fn listen_once(&self) -> Result<()> {
        let awaited = self.awaited.clone();
        let (alive, mut lost) = oneshot::channel::<()>();
        let client = self
            .address
            .connect_with(move |batch| {
                // Dropped with the connection, which is how its end is noticed.
                let _alive = &alive;
                awaited.wake(batch.parse().map(BatchId));
            })
            .await?;
        client.batch_execute(BEGIN).await?;
        let mut told = BTreeSet::new();
        loop {
            self.tell(&client, &mut told).await?;
            tokio::select! {
                // The next connection begins with all rows anew, so those who wait look once more.
                _ = &mut lost => return Err(Failure::Disconnected("the connection was lost".to_owned())),
                () = self.awaited.changed() => {}
                () = tokio::time::sleep(LISTEN_AFTER_LAST_AWAITED), if told.is_empty() => return Ok(()),
            }
        }
    }

    /// Makes the rows of this connection those of the batches that are awaited.
    async fn tell(&self, client: &ClientWrapper, told: &mut BTreeSet<BatchId>) -> Result<()> {
        let awaited = self.awaited.batches();
        let ids = |left: &BTreeSet<BatchId>, right: &BTreeSet<BatchId>| -> Vec<i64> {
            left.difference(right).map(|batch| batch.0).collect()
        };
        let (new, gone) = (ids(&awaited, told), ids(told, &awaited));
        if !new.is_empty() {
            let statement = client.prepare_cached(ADD).await?;
            client.execute(&statement, &[&new]).await?;
            self.awaited.wake(new.into_iter().map(BatchId));
        }
        if !gone.is_empty() {
            let statement = client.prepare_cached(REMOVE).await?;
            client.execute(&statement, &[&gone]).await?;
        }
        *told = awaited;
        Ok(())
    }
}
