//! A connection that listens for notifications, made again whenever it is lost.

use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::ClientWrapper;
use gristmill_postgres_link::SharedAddress;
use gristmill_postgres_link::limits::{RECONNECT_WAIT_FIRST, RECONNECT_WAIT_MAX};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::failure::{Failure, Result};

/// The listener of one handle. One task runs it, from its first use until the store is closed.
#[derive(Debug)]
pub(crate) struct Listener {
    address: SharedAddress,
    listening: AtomicBool,
    closing: watch::Sender<bool>,
}

impl Listener {
    pub fn new(address: SharedAddress) -> Self {
        Listener {
            address,
            listening: AtomicBool::new(false),
            closing: watch::Sender::new(false),
        }
    }

    /// Whether the caller is the one to run [`listen`](Listener::listen).
    pub fn begin(&self) -> bool {
        !self.listening.swap(true, Ordering::AcqRel)
    }

    /// Ends the task.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Repeats `once` until the store is closed. After a failure it waits, and longer after each one that came soon.
    /// `meanwhile` tells the log how the process does without notifications.
    pub async fn listen<F>(&self, meanwhile: &str, once: impl Fn() -> F)
    where
        F: Future<Output = Result<()>>,
    {
        let mut closing = self.closing.subscribe();
        tokio::select! {
            _ = closing.wait_for(|closing| *closing) => {}
            () = repeat(meanwhile, once) => {}
        }
    }

    /// A connection that passes the payload of each notification to `listener`. The receiver resolves when the connection
    /// is lost.
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

async fn repeat<F>(meanwhile: &str, once: impl Fn() -> F)
where
    F: Future<Output = Result<()>>,
{
    let mut wait = RECONNECT_WAIT_FIRST;
    loop {
        let began = Instant::now();
        let Err(failure) = once().await else {
            continue;
        };
        tracing::debug!(reason = failure.reason(), "{meanwhile}");
        wait = match began.elapsed() > RECONNECT_WAIT_MAX {
            true => RECONNECT_WAIT_FIRST,
            false => (wait * 2).min(RECONNECT_WAIT_MAX),
        };
        tokio::time::sleep(wait).await;
    }
}
