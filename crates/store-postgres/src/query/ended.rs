//! Notifies the watches of outcomes, whichever process ends the jobs.
//!
//! A listening connection keeps a row for each batch that its process awaits. The trigger of the table of reports
//! notifies only for such batches, so without watches a report costs only a look into an empty table. Watches look once
//! more after their rows are stored, because earlier reports did not notify them. A concurrent report can still be
//! missed, so watches also poll. Behind a pooler, where no session listens, they only poll.

use std::collections::BTreeSet;
use std::sync::Arc;

use deadpool_postgres::ClientWrapper;
use gristmill_model::BatchId;
use gristmill_postgres_link::SharedAddress;
use gristmill_store::awaited::{Awaited, OutcomeWatch};

use crate::database::listener::{Listener, ask, lost};
use crate::database::shortage::Shortage;
use crate::failure::Result;
use crate::limits::{LISTEN_AFTER_LAST_AWAITED, LISTENER_ASKS_EVERY, LOOK_FOR_ENDED_EVERY};

/// Begins to listen. The rows are not worth a wait for the disk. Deletes the rows of lost connections.
const BEGIN: &str = "SET synchronous_commit = off; LISTEN gristmill_ended; \
     DELETE FROM gristmill.awaited w WHERE listener = pg_backend_pid() \
     OR NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = w.listener)";

const ADD: &str = "INSERT INTO gristmill.awaited (batch_id, listener) SELECT unnest($1::bigint[]), pg_backend_pid() \
     ON CONFLICT DO NOTHING";

const REMOVE: &str =
    "DELETE FROM gristmill.awaited WHERE batch_id = ANY ($1::bigint[]) AND listener = pg_backend_pid()";

/// Notifies the watches of one handle.
#[derive(Debug)]
pub(crate) struct EndedListener {
    listener: Listener,
    awaited: Arc<Awaited>,
}

impl EndedListener {
    pub fn new(address: SharedAddress, shortage: Arc<Shortage>) -> Self {
        EndedListener {
            listener: Listener::new(address, shortage),
            awaited: Arc::default(),
        }
    }

    /// Begins to wait for a batch.
    pub fn watch(&self, batch: BatchId) -> OutcomeWatch {
        self.awaited.watch(batch)
    }

    /// Reports whether the caller must run [`listen`](EndedListener::listen).
    pub fn begin_listening(&self) -> bool {
        self.listener.begin()
    }

    /// Ends the listener.
    pub fn close(&self) {
        self.listener.close();
    }

    /// Passes notifications on until the store is closed.
    pub async fn listen(&self) {
        let once = || async move {
            while self.awaited.is_empty() {
                self.awaited.changed().await;
            }
            if self.listener.is_pooled() {
                self.look_again().await
            } else {
                self.listen_once().await
            }
        };
        self.listener
            .listen("polling finds the jobs that other processes end", once)
            .await;
    }

    /// Makes all watches look, after a moment.
    async fn look_again(&self) -> Result<()> {
        tokio::time::sleep(LOOK_FOR_ENDED_EVERY).await;
        self.awaited.wake(self.awaited.batches());
        Ok(())
    }

    /// Listens on one connection, until it is lost or nobody has waited for a while.
    async fn listen_once(&self) -> Result<()> {
        let awaited = self.awaited.clone();
        let (client, mut ended) = self
            .listener
            .connect(move |batch| awaited.wake(batch.parse().map(BatchId)))
            .await?;
        client.batch_execute(BEGIN).await?;
        let mut told = BTreeSet::new();
        loop {
            self.tell(&client, &mut told).await?;
            tokio::select! {
                // The next connection stores all rows again, and then all watches look once more.
                _ = &mut ended => return Err(lost()),
                () = self.awaited.changed() => {}
                () = tokio::time::sleep(LISTENER_ASKS_EVERY) => ask(&client).await?,
                () = tokio::time::sleep(LISTEN_AFTER_LAST_AWAITED), if told.is_empty() => return Ok(()),
            }
        }
    }

    /// Makes the rows of this connection match the awaited batches.
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
