//! A connection that listens for notifications, and is made again whenever it is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::ClientWrapper;
use gristmill_postgres_link::SharedAddress;
use gristmill_postgres_link::limits::{RECONNECT_WAIT_FIRST, RECONNECT_WAIT_MAX};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::database::shortage::Shortage;
use crate::failure::{Failure, Result};
use crate::limits::{LISTEN_AGAIN_AFTER_SHORTAGE, LISTENER_ANSWER_MAX};

/// The listener of one handle. One task runs it, from its first use until the store is closed.
#[derive(Debug)]
pub(crate) struct Listener {
    address: SharedAddress,
    shortage: Arc<Shortage>,
    listening: AtomicBool,
    closing: watch::Sender<bool>,
}

impl Listener {
    pub fn new(address: SharedAddress, shortage: Arc<Shortage>) -> Self {
        Listener {
            address,
            shortage,
            listening: AtomicBool::new(false),
            closing: watch::Sender::new(false),
        }
    }

    /// Reports whether the caller must run [`listen`](Listener::listen).
    pub fn begin(&self) -> bool {
        !self.listening.swap(true, Ordering::AcqRel)
    }

    /// Reports whether a session may end with a transaction, so that listening is impossible.
    pub fn is_pooled(&self) -> bool {
        self.address.is_pooled()
    }

    /// Ends the task.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Repeats `once` until the store is closed. After a failure it waits, and longer after each one that came soon.
    /// `meanwhile` is logged: how the process works without notifications.
    pub async fn listen<F>(&self, meanwhile: &str, once: impl Fn() -> F)
    where
        F: Future<Output = Result<()>>,
    {
        let mut closing = self.closing.subscribe();
        tokio::select! {
            _ = closing.wait_for(|closing| *closing) => {}
            () = repeat(meanwhile, &self.shortage, once) => {}
        }
    }

    /// Makes a connection that passes the payload of each notification to `listener`. The receiver resolves when the
    /// connection is lost.
    pub async fn connect(
        &self,
        mut listener: impl FnMut(&str) + Send + 'static,
    ) -> Result<(ClientWrapper, oneshot::Receiver<()>)> {
        let (alive, lost) = oneshot::channel::<()>();
        let client = self
            .address
            .connect_with(move |payload| {
                // Dropped with the connection, which ends the receiver.
                let _alive = &alive;
                listener(payload);
            })
            .await?;
        Ok((client, lost))
    }
}

/// The failure of a listener whose connection was lost.
pub(crate) fn lost() -> Failure {
    Failure::Disconnected("the connection was lost".to_owned())
}

/// Fails if the server gives no sign. A connection that only listens would not notice otherwise.
pub(crate) async fn ask(client: &ClientWrapper) -> Result<()> {
    match tokio::time::timeout(LISTENER_ANSWER_MAX, client.batch_execute("")).await {
        Ok(answered) => Ok(answered?),
        Err(_) => Err(lost()),
    }
}

async fn repeat<F>(meanwhile: &str, shortage: &Shortage, once: impl Fn() -> F)
where
    F: Future<Output = Result<()>>,
{
    let mut wait = RECONNECT_WAIT_FIRST;
    loop {
        let began = Instant::now();
        let ended = tokio::select! {
            ended = once() => ended,
            // Operations need its connection more.
            () = shortage.begun() => {
                tracing::debug!("too few connections; {meanwhile}");
                tokio::time::sleep(LISTEN_AGAIN_AFTER_SHORTAGE).await;
                continue;
            }
        };
        let Err(failure) = ended else {
            continue;
        };
        if failure.is_shortage() {
            tracing::debug!(reason = failure.reason(), "{meanwhile}");
            tokio::time::sleep(LISTEN_AGAIN_AFTER_SHORTAGE).await;
            continue;
        }
        tracing::debug!(reason = failure.reason(), "{meanwhile}");
        wait = if began.elapsed() > RECONNECT_WAIT_MAX {
            RECONNECT_WAIT_FIRST
        } else {
            (wait * 2).min(RECONNECT_WAIT_MAX)
        };
        tokio::time::sleep(wait).await;
    }
}
