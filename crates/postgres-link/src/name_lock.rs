//! A name that one process at a time holds, among all that use a database.
//!
//! It is an advisory lock of a connection, so it ends with its process, however that ends. A connection that is lost
//! is replaced, and the name taken again, unless another process was faster.

use std::sync::Arc;

use deadpool_postgres::ClientWrapper;
use gristmill_store::StoreError;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_postgres::types::Type;

use crate::address::{Address, SharedAddress};
use crate::failure::{at_open, reason};
use crate::limits::{RECONNECT_WAIT_FIRST, RECONNECT_WAIT_MAX};

const TAKE: &str = "SELECT pg_try_advisory_lock(1196576078, hashtext($1))";

/// As [`TAKE`], until the end of the transaction, which is that of the connection: behind a pooler, a session has no end of its own.
const TAKE_IN_TRANSACTION: &str = "SELECT pg_try_advisory_xact_lock(1196576078, hashtext($1))";

/// Begins a transaction that stays open.
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
    /// The lock is this connection's.
    _client: ClientWrapper,
    /// Resolves when the connection has ended.
    ended: oneshot::Receiver<()>,
}

impl NameLock {
    /// Takes the name in the database at `url`; `None` where another process has it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Open`] for a wrong URL, [`StoreError::Unreachable`], and whatever the database says.
    pub async fn try_take(url: &str, name: &str) -> Result<Option<NameLock>, StoreError> {
        let address = Arc::new(Address::parse(url)?);
        let taken = take(&address, name).await;
        let Some(held) = taken.map_err(|error| at_open(&error, address.as_str()))? else {
            return Ok(None);
        };
        let (sender, lost) = watch::channel(false);
        let name = name.to_owned();
        let holding = tokio::spawn(async move {
            hold(&address, &name, held).await;
            sender.send_replace(true);
        });
        Ok(Some(NameLock { holding, lost }))
    }

    /// Resolves when the name was lost to another process, after the connection was.
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

async fn take(address: &SharedAddress, name: &str) -> Result<Option<Held>, tokio_postgres::Error> {
    let (alive, ended) = oneshot::channel::<()>();
    let client = address
        .connect_with(move |_| {
            // Dropped with the connection, which is how its end is noticed.
            let _alive = &alive;
        })
        .await?;
    address.find_pooler(&client).await?;
    let take = match address.is_pooled() {
        true => {
            client.batch_execute(BEGIN_FOR_EVER).await?;
            TAKE_IN_TRANSACTION
        }
        false => TAKE,
    };
    let is_taken: bool = client
        .query_typed_one(take, &[(&name, Type::TEXT)])
        .await?
        .try_get(0)?;
    Ok(is_taken.then_some(Held {
        _client: client,
        ended,
    }))
}

/// Holds the name until another process has it.
async fn hold(address: &SharedAddress, name: &str, mut held: Held) {
    loop {
        // Nothing is ever sent: the other end is dropped.
        let _ = held.ended.await;
        let mut wait = RECONNECT_WAIT_FIRST;
        held = loop {
            match take(address, name).await {
                Ok(Some(held)) => break held,
                Ok(None) => return,
                Err(error) => log(&error, name),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RECONNECT_WAIT_MAX);
        };
    }
}

fn log(error: &tokio_postgres::Error, name: &str) {
    tracing::debug!(
        reason = reason(error),
        name,
        "the connection that holds a name is made again"
    );
}
