//! A name that only one process at a time holds, among all processes of a database.
//!
//! The name is an advisory lock of a connection, so it ends with its process, however that ends. A lost connection is
//! replaced, and the name taken again, unless another process was faster. A connection that gives no answer is also
//! replaced: the server may not have noticed its loss, and is told to end it.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use gristmill_store::StoreError;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_postgres::types::{ToSql, Type};

use crate::address::{Address, SharedAddress};
use crate::failure::{at_open, reason};
use crate::limits::{RECONNECT_WAIT_FIRST, RECONNECT_WAIT_MAX, SILENCE_MAX, TAKEN_WITHIN};

const TAKE: &str = "SELECT pg_try_advisory_lock(1196576078, hashtext($1)), pg_backend_pid(), \
    (SELECT extract(epoch FROM backend_start)::text FROM pg_stat_activity WHERE pid = pg_backend_pid())";

/// Like [`TAKE`], until the end of a transaction that lasts as long as the connection: behind a pooler, a session has
/// no end of its own.
const TAKE_IN_TRANSACTION: &str = "SELECT pg_try_advisory_xact_lock(1196576078, hashtext($1)), pg_backend_pid(), \
    (SELECT extract(epoch FROM backend_start)::text FROM pg_stat_activity WHERE pid = pg_backend_pid())";

/// Ends the former connection of this process if the server has not noticed its loss, and waits for its end.
const END_FORMER: &str = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
    WHERE pid = $1 AND extract(epoch FROM backend_start)::text = $2";

/// Starts a transaction that stays open.
const BEGIN_FOR_EVER: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0; \
    SELECT set_config(name, '0', true) FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout'";

/// Holds a name until it is dropped, or the process ends. Needs a Tokio runtime.
#[derive(Debug)]
pub struct NameLock {
    holding: JoinHandle<()>,
    lost: watch::Receiver<bool>,
}

/// A connection that holds the name.
struct Held {
    /// The connection that owns the lock.
    client: ClientWrapper,
    /// Its process at the server and that process's start. Both together identify it.
    process: (i32, Option<String>),
    /// Resolves when the connection has ended.
    ended: oneshot::Receiver<()>,
}

impl Held {
    /// Resolves when the connection has ended, or has given no answer to a query for this time.
    async fn is_lost(&mut self, silence_max: Duration) {
        loop {
            tokio::select! {
                // The channel carries no message. The other end is dropped.
                _ = &mut self.ended => return,
                () = tokio::time::sleep(silence_max) => {}
            }
            let answer = tokio::time::timeout(silence_max, self.client.simple_query("SELECT 1")).await;
            if !matches!(answer, Ok(Ok(_))) {
                return;
            }
        }
    }
}

impl NameLock {
    /// Takes the name in the database at `url`. Returns `None` if another process has it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Open`] for a wrong URL, [`StoreError::Unreachable`], and errors of the database.
    pub async fn try_take(url: &str, name: &str) -> Result<Option<NameLock>, StoreError> {
        NameLock::try_take_by_silence(url, name, SILENCE_MAX).await
    }

    /// Takes the name like [`try_take`](NameLock::try_take). Replaces a connection that gives no answer for `silence_max`.
    ///
    /// # Errors
    ///
    /// The errors of [`try_take`](NameLock::try_take).
    pub async fn try_take_by_silence(
        url: &str,
        name: &str,
        silence_max: Duration,
    ) -> Result<Option<NameLock>, StoreError> {
        let address = Arc::new(Address::parse(url)?);
        let Ok(taken) = tokio::time::timeout(TAKEN_WITHIN, take(&address, name, None)).await else {
            return Err(StoreError::Unreachable {
                database: address.as_str().to_owned(),
                waited_ms: u64::try_from(TAKEN_WITHIN.as_millis()).unwrap_or(u64::MAX),
                reason: "it gave no answer".to_owned(),
            });
        };
        let Some(held) = taken.map_err(|error| at_open(&error, address.as_str()))? else {
            return Ok(None);
        };
        let (sender, lost) = watch::channel(false);
        let name = name.to_owned();
        let holding = tokio::spawn(async move {
            hold(&address, &name, held, silence_max).await;
            sender.send_replace(true);
        });
        Ok(Some(NameLock { holding, lost }))
    }

    /// Resolves when the connection and then the name were lost, the name to another process.
    pub async fn lost(&self) {
        let mut lost = self.lost.clone();
        if lost.wait_for(|lost| *lost).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for NameLock {
    fn drop(&mut self) {
        self.holding.abort();
    }
}

/// Takes the name through a new connection, after the former one of this process has ended.
async fn take(
    address: &SharedAddress,
    name: &str,
    former: Option<&(i32, Option<String>)>,
) -> Result<Option<Held>, tokio_postgres::Error> {
    let (alive, ended) = oneshot::channel::<()>();
    let client = address
        .connect_with(move |_| {
            // This is dropped with the connection, which reveals the connection's end.
            let _alive = &alive;
        })
        .await?;
    address.find_pooler(&client).await?;
    if let Some((process, began)) = former {
        let params: [(&(dyn ToSql + Sync), Type); 2] = [(process, Type::INT4), (began, Type::TEXT)];
        client.query_typed(END_FORMER, &params).await?;
    }
    let take = if address.is_pooled() {
        client.batch_execute(BEGIN_FOR_EVER).await?;
        TAKE_IN_TRANSACTION
    } else {
        TAKE
    };
    let row = client.query_typed_one(take, &[(&name, Type::TEXT)]).await?;
    let process = (row.try_get(1)?, row.try_get(2)?);
    let is_taken: bool = row.try_get(0)?;
    Ok(is_taken.then_some(Held {
        client,
        process,
        ended,
    }))
}

/// Holds the name until another process takes it.
async fn hold(address: &SharedAddress, name: &str, mut held: Held, silence_max: Duration) {
    loop {
        held.is_lost(silence_max).await;
        let former = held.process;
        let mut wait = RECONNECT_WAIT_FIRST;
        held = loop {
            match tokio::time::timeout(TAKEN_WITHIN, take(address, name, Some(&former))).await {
                Ok(Ok(Some(held))) => break held,
                Ok(Ok(None)) => return,
                Ok(Err(error)) => log(reason(&error), name),
                Err(_) => log("it gave no answer".to_owned(), name),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RECONNECT_WAIT_MAX);
        };
    }
}

fn log(reason: String, name: &str) {
    tracing::debug!(reason, name, "the connection that holds a name is made again");
}
