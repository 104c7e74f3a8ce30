//! Wakes the waiters for work, in this process and in others.
//!
//! Within a process a counter is enough. Waking others takes a NOTIFY, which takes a lock of the whole server at
//! COMMIT, so there should be none while all workers are busy. So a process that waits holds a shared advisory lock,
//! and `gristmill.wake()` notifies only if somebody holds it. A process that has just got the lock looks for work once
//! more before it waits, because nobody may have been notified of work that was committed before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use deadpool_postgres::ClientWrapper;
use gristmill_postgres_link::SharedAddress;
use gristmill_store::WorkSeen;
use gristmill_store::wakeups::WorkCounter;
use tokio::sync::{Notify, oneshot};
use tokio_postgres::error::SqlState;

use crate::database::listener::{Listener, ask, lost};
use crate::database::shortage::Shortage;
use crate::failure::Result;
use crate::limits::{LISTEN_AFTER_LAST_WAIT, LISTENER_ASKS_EVERY, WAKE_LOCK_WAIT_MS};

/// Takes the lock that stands for this store: the header of its SQLite files, as a number ("GRML").
const LOCK: &str = "SELECT pg_advisory_lock_shared(1196576076, 2)";
const UNLOCK: &str = "SELECT pg_advisory_unlock_shared(1196576076, 2)";

/// How waiters of one handle are woken.
#[derive(Debug)]
pub(crate) struct Wake {
    listener: Listener,
    work: Arc<WorkCounter>,
    /// The number of calls of [`wait`](Wake::wait), which makes the listener listen.
    waits: AtomicU64,
    waited: Notify,
}

impl Wake {
    pub fn new(address: SharedAddress, shortage: Arc<Shortage>) -> Self {
        Wake {
            listener: Listener::new(address, shortage),
            work: Arc::new(WorkCounter::default()),
            waits: AtomicU64::new(0),
            waited: Notify::new(),
        }
    }

    /// Wakes the waiters of this process.
    pub fn work_came(&self) {
        self.work.add();
    }

    /// Reports whether somebody in this process waits.
    pub fn is_awaited(&self) -> bool {
        self.work.is_awaited()
    }

    /// Resolves when work may have come that the caller has not seen.
    pub async fn wait(&self, seen: &WorkSeen) {
        self.waits.fetch_add(1, Ordering::AcqRel);
        self.waited.notify_one();
        self.work.wait(seen).await;
    }

    /// Reports whether the caller must run [`listen`](Wake::listen).
    pub fn begin_listening(&self) -> bool {
        self.listener.begin()
    }

    /// Ends the listener.
    pub fn close(&self) {
        self.listener.close();
    }

    /// Forwards notifications of other processes, until the store is closed.
    pub async fn listen(&self) {
        let once = || async move {
            let end = self.listen_once().await;
            // Notifications in between are lost.
            self.work_came();
            end
        };
        self.listener
            .listen("polling finds the jobs that other processes submit", once)
            .await;
    }

    /// Listens on one connection, until it is lost.
    async fn listen_once(&self) -> Result<()> {
        let work = self.work.clone();
        let (client, mut ended) = self.listener.connect(move |_| work.add()).await?;
        client
            .batch_execute(&format!(
                "SET lock_timeout = {WAKE_LOCK_WAIT_MS}; LISTEN gristmill_work"
            ))
            .await?;
        loop {
            tokio::select! {
                _ = &mut ended => return Err(lost()),
                () = self.waited.notified() => {}
                () = tokio::time::sleep(LISTENER_ASKS_EVERY) => {
                    ask(&client).await?;
                    continue;
                }
            }
            if let Err(error) = client.batch_execute(LOCK).await {
                // Somebody else may hold the number, because anybody can. `gristmill.wake()` then notifies whether
                // somebody waits or not.
                if error.code() != Some(&SqlState::LOCK_NOT_AVAILABLE) {
                    return Err(error.into());
                }
                self.work_came();
                continue;
            }
            // Waiters look for work once more, see above.
            self.work_came();
            if !self.wait_for_idleness(&client, &mut ended).await {
                return Err(lost());
            }
            client.batch_execute(UNLOCK).await?;
        }
    }

    /// Resolves when nobody has waited for a while (`true`), or when the connection is lost (`false`).
    async fn wait_for_idleness(&self, client: &ClientWrapper, ended: &mut oneshot::Receiver<()>) -> bool {
        let mut asked_at = Instant::now();
        loop {
            if asked_at.elapsed() >= LISTENER_ASKS_EVERY {
                if ask(client).await.is_err() {
                    return false;
                }
                asked_at = Instant::now();
            }
            let waits = self.waits.load(Ordering::Acquire);
            tokio::select! {
                _ = &mut *ended => return false,
                () = tokio::time::sleep(LISTEN_AFTER_LAST_WAIT) => {}
            }
            if !self.work.is_awaited() && self.waits.load(Ordering::Acquire) == waits {
                return true;
            }
        }
    }
}

/// Notifies other processes, one call at a time and with pauses.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    busy: AtomicBool,
    again: AtomicBool,
}

/// How long a process waits between two notifications. The first one is sent at once.
const NOTIFY_AGAIN_AFTER: Duration = Duration::from_millis(2);

impl Notifier {
    /// Reports whether the caller must call [`run`](Notifier::run). Otherwise another task is running it and will see
    /// the change.
    pub fn begin(&self) -> bool {
        self.again.store(true, Ordering::SeqCst);
        !self.busy.swap(true, Ordering::SeqCst)
    }

    /// Reports whether the caller notifies others itself, of its own work and all earlier work. It must call
    /// [`run`](Notifier::run) after that.
    pub fn begin_telling(&self) -> bool {
        let begun = !self.busy.swap(true, Ordering::SeqCst);
        if begun {
            self.again.store(false, Ordering::SeqCst);
        }
        begun
    }

    /// Records whether that notification arrived.
    pub async fn told(&self, arrived: bool) {
        if arrived {
            tokio::time::sleep(NOTIFY_AGAIN_AFTER).await
        } else {
            self.again.store(true, Ordering::SeqCst)
        }
    }

    /// Notifies others until nothing new has come.
    pub async fn run<F: Future<Output = ()>>(&self, tell: impl Fn() -> F) {
        loop {
            while self.again.swap(false, Ordering::SeqCst) {
                tell().await;
                tokio::time::sleep(NOTIFY_AGAIN_AFTER).await;
            }
            self.busy.store(false, Ordering::SeqCst);
            // Something may have come between the two.
            if !self.again.load(Ordering::SeqCst) || self.busy.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    }
}
