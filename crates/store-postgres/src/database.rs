//! The connections of one handle: operations and queries survive server restarts, lost connections and conflicts.
//!
//! Each connection that writes numbers its operations in its own row. After a COMMIT without an answer, the row shows
//! whether the transaction was committed, before anything is sent again.

pub(crate) mod absence;
pub(crate) mod answers;
pub(crate) mod clock;
pub(crate) mod columns;
pub(crate) mod connection;
pub(crate) mod handle_cache;
pub(crate) mod listener;
pub(crate) mod news;
pub(crate) mod packed_text;
pub(crate) mod pools;
pub(crate) mod rows;
pub(crate) mod session;
pub(crate) mod shortage;
pub(crate) mod snapshot;
pub(crate) mod statement;
pub(crate) mod sums;
pub(crate) mod transaction;
pub(crate) mod writability;
pub(crate) mod writes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use gristmill_model::{BatchId, Clock, Timestamp};
use gristmill_postgres_link::SharedAddress;
use gristmill_postgres_link::limits::{RECONNECT_WAIT_FIRST, RECONNECT_WAIT_MAX};
use gristmill_store::rules::waiting::{Unclaimed, WaitingWorkers};
use gristmill_store::{OutcomeWatch, StoreError};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_postgres::Row;

use crate::database::absence::Absence;
use crate::database::answers::Pending;
use crate::database::clock::{DatabaseClock, NOW};
use crate::database::connection::{Connection, Mark, Pooled};
use crate::database::handle_cache::HandleCache;
use crate::database::pools::{Pools, Purpose};
use crate::database::session::Waits;
use crate::database::shortage::Shortage;
use crate::database::snapshot::Snapshot;
use crate::database::transaction::{Durability, NotCommitted, Transaction};
use crate::failure::{Failure, Remedy, Result};
use crate::limits::CONFLICTS_MAX;
use crate::query::ended::EndedListener;
use crate::worker::wake::{Notifier, Wake};

const WAKE: &str = "SELECT gristmill.wake()";
/// How much later other processes are notified of work that somebody in this process waits for.
const OTHERS_AFTER: Duration = Duration::from_millis(2);

/// A handle's connections, and its memory.
#[derive(Debug)]
pub(crate) struct Database {
    pub address: SharedAddress,
    pub clock: Arc<dyn Clock>,
    pub cache: Arc<HandleCache>,
    pub wake: Wake,
    /// Waiting workers: the statement that stores jobs also claims them for these workers.
    pub waiting: WaitingWorkers,
    pub ended: EndedListener,
    /// Held while new lanes are made.
    pub new_lanes: Mutex<()>,
    /// How long an operation waits for a lock of another transaction.
    pub lock_wait: Duration,
    notifier: Notifier,
    pools: Pools,
    absence: Absence,
    /// How long operations try to reach an unreachable database.
    unreachable_max: Option<Duration>,
    closed: AtomicBool,
}

/// The result of one attempt.
pub(crate) enum Attempt<T, Unsure = T> {
    Done(T),
    /// Nothing was done.
    Failed(Failure),
    /// It was done if the marked transaction was committed.
    Unknown(Unsure, Mark, Failure),
}

/// The result of an operation.
pub(crate) enum Known<T, Unsure> {
    /// It was done and answered.
    Answered(T),
    /// It was committed, and its answer was lost. Holds the value of the writer's row.
    Committed(Unsure, i64),
}

/// How long an operation has been trying.
#[derive(Debug)]
pub(crate) struct Patience {
    began: Instant,
    /// The limit, if any.
    most: Option<Duration>,
    wait: Duration,
    conflicts: u32,
}

impl Patience {
    fn new(most: Option<Duration>) -> Self {
        Patience {
            most,
            began: Instant::now(),
            wait: RECONNECT_WAIT_FIRST,
            conflicts: 0,
        }
    }

    /// Waits before the next attempt; returns the failure if there is none.
    async fn after(&mut self, failure: Failure) -> Result<()> {
        match failure.remedy() {
            Remedy::None => return Err(failure),
            Remedy::Again if self.conflicts == CONFLICTS_MAX => return Err(failure),
            Remedy::Again => {
                self.conflicts += 1;
                tracing::debug!(reason = failure.reason(), "an operation is tried again");
                return Ok(());
            }
            Remedy::Reconnect => {}
        }
        if self.most.is_some_and(|most| self.began.elapsed() >= most) {
            return Err(failure);
        }
        tracing::debug!(reason = failure.reason(), wait = ?self.wait, "the database is reconnected to");
        tokio::time::sleep(self.wait).await;
        self.wait = (self.wait * 2).min(RECONNECT_WAIT_MAX);
        Ok(())
    }

    fn waited_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Database {
    pub fn new(
        address: SharedAddress,
        clock: Arc<dyn Clock>,
        cache: HandleCache,
        waits: Waits,
    ) -> std::result::Result<Self, StoreError> {
        let shortage = Arc::new(Shortage::default());
        Ok(Database {
            pools: Pools::new(&address, waits, shortage.clone())?,
            wake: Wake::new(address.clone(), shortage.clone()),
            waiting: WaitingWorkers::default(),
            ended: EndedListener::new(address.clone(), shortage),
            new_lanes: Mutex::default(),
            lock_wait: waits.lock,
            notifier: Notifier::default(),
            absence: Absence::default(),
            unreachable_max: waits.unreachable,
            address: address.clone(),
            clock,
            cache: Arc::new(cache),
            closed: AtomicBool::new(false),
        })
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Runs queries on one snapshot.
    pub async fn read<T, Query, Answer>(&self, query: Query) -> std::result::Result<T, StoreError>
    where
        Query: Fn(Arc<Snapshot>) -> Answer,
        Answer: Future<Output = Result<T>>,
    {
        let mut patience = self.patience();
        loop {
            let failure = match self.read_once(&query).await {
                Ok(answer) => {
                    self.answered();
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            if let Failure::Refused(StoreError::Damaged { batch, .. }) = &failure {
                self.quarantine(*batch).await;
            }
            self.wait_after(failure, &mut patience).await?;
        }
    }

    async fn read_once<T, Query, Answer>(&self, query: &Query) -> Result<T>
    where
        Query: Fn(Arc<Snapshot>) -> Answer,
        Answer: Future<Output = Result<T>>,
    {
        let connection = self.reader().await?;
        let snapshot = Arc::new(Snapshot::begin(connection));
        let answer = query(snapshot.clone()).await;
        // A query that kept the snapshot, or was cancelled, leaves it to be closed with its connection.
        if let Ok(snapshot) = Arc::try_unwrap(snapshot) {
            snapshot.end(answer.is_ok());
        }
        answer
    }

    /// Carries out an operation in one transaction: as a whole and once, whatever happens to the connection, even if
    /// the caller goes away.
    pub async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        purpose: Purpose,
        durability: Durability,
        work: impl for<'t> Fn(&'t mut Transaction) -> BoxFuture<'t, Result<T>> + Send + Sync + 'static,
    ) -> std::result::Result<T, StoreError> {
        let database = self.clone();
        to_the_end(async move { database.write_until_known(purpose, durability, work).await }).await
    }

    async fn write_until_known<T>(
        self: &Arc<Self>,
        purpose: Purpose,
        durability: Durability,
        work: impl for<'t> Fn(&'t mut Transaction) -> BoxFuture<'t, Result<T>>,
    ) -> std::result::Result<T, StoreError> {
        let work = &work;
        let known = self
            .until_known(move || self.write_once(purpose, durability, work))
            .await?;
        match known {
            Known::Answered(answer) | Known::Committed(answer, _) => Ok(answer),
        }
    }

    /// Attempts an operation until its result is known.
    pub async fn until_known<T, Unsure, Outcome>(
        &self,
        attempt: impl Fn() -> Outcome,
    ) -> std::result::Result<Known<T, Unsure>, StoreError>
    where
        Outcome: Future<Output = Attempt<T, Unsure>>,
    {
        let mut patience = self.patience();
        loop {
            let failure = match attempt().await {
                Attempt::Done(answer) => {
                    self.answered();
                    return Ok(Known::Answered(answer));
                }
                Attempt::Failed(failure) => failure,
                Attempt::Unknown(unsure, mark, failure) => {
                    match self.look_up(&mark, failure, &mut patience).await? {
                        Some(operation) => return Ok(Known::Committed(unsure, operation)),
                        None => continue,
                    }
                }
            };
            if let Failure::LanesGone(lanes) = &failure {
                self.restore_lanes(lanes).await?;
            }
            self.wait_after(failure, &mut patience).await?;
        }
    }

    async fn write_once<T>(
        self: &Arc<Self>,
        purpose: Purpose,
        durability: Durability,
        work: &impl for<'t> Fn(&'t mut Transaction) -> BoxFuture<'t, Result<T>>,
    ) -> Attempt<T> {
        let connection = match self.writer(purpose).await {
            Ok(connection) => connection,
            Err(failure) => return Attempt::Failed(failure),
        };
        let begun = Transaction::begin(connection, self.cache.clone(), self.now(), durability).await;
        let mut transaction = match begun {
            Ok(transaction) => transaction,
            Err(failure) => return Attempt::Failed(failure),
        };
        let answer = match work(&mut transaction).await {
            Ok(answer) => transaction.release_keys().await.map(|()| answer),
            Err(failure) => Err(failure),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                let failure = transaction.cause(failure).await;
                let failure = Transaction::lanes_gone(&self.cache, &transaction.lanes_used, failure);
                transaction.roll_back().await;
                return Attempt::Failed(failure);
            }
        };
        let woke = transaction.writes.news.wakes();
        let lanes_used = std::mem::take(&mut transaction.lanes_used);
        match transaction.finish().await {
            Ok(()) => {
                if woke {
                    self.work_came();
                }
                Attempt::Done(answer)
            }
            Err(NotCommitted::Failed(failure)) => {
                Attempt::Failed(Transaction::lanes_gone(&self.cache, &lanes_used, failure))
            }
            Err(NotCommitted::Unknown(mark, failure)) => {
                if woke {
                    self.work_came();
                }
                Attempt::Unknown(answer, mark, failure)
            }
        }
    }

    /// The value of the writer's row after a transaction whose connection was lost; `None` if it was not committed.
    /// Waits until that is decided, because the server may still work on it.
    pub async fn look_up(
        &self,
        mark: &Mark,
        lost: Failure,
        patience: &mut Patience,
    ) -> std::result::Result<Option<i64>, StoreError> {
        let unknown = |failure: &Failure, patience: &Patience| StoreError::Unknown {
            database: self.address.as_str().to_owned(),
            waited_ms: patience.waited_ms(),
            reason: failure.reason(),
        };
        let mut failure = lost;
        loop {
            let reason = failure.reason();
            if let Err(failure) = self.await_again(failure, patience).await {
                return Err(unknown(&failure, patience));
            }
            failure = match self.look_up_once(mark).await {
                Ok(committed) => {
                    self.answered();
                    tracing::info!(
                        committed = committed.is_some(),
                        reason,
                        "looked up what became of a lost COMMIT"
                    );
                    return Ok(committed);
                }
                // Whatever the failure is: without an answer nothing is known.
                Err(failure) if failure.remedy() == Remedy::None => return Err(unknown(&failure, patience)),
                Err(failure) => failure,
            };
        }
    }

    async fn look_up_once(&self, mark: &Mark) -> Result<Option<i64>> {
        let connection = self.writer(Purpose::Work).await?;
        // If the network is cut, the server may wait for the lost connection for hours, with its locks.
        connection
            .rows(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE application_name LIKE 'gristmill ' || $1 || '%' AND pid <> pg_backend_pid()",
                &[&&*mark.writer],
            )
            .await?;
        let rows = connection
            .rows(
                "SELECT operation FROM gristmill.writer WHERE id = $1 FOR UPDATE",
                &[&&*mark.writer],
            )
            .await?;
        // No row: the server that took over has never seen this writer.
        let operation: Option<i64> = rows.first().map(|row| row.try_get(0)).transpose()?;
        Ok(operation.filter(|operation| mark.is_committed(*operation)))
    }

    /// Waits before the next attempt; returns the error if there is none.
    pub async fn wait_after(
        &self,
        failure: Failure,
        patience: &mut Patience,
    ) -> std::result::Result<(), StoreError> {
        let waited = self.await_again(failure, patience).await;
        waited.map_err(|failure| self.error(failure, patience))
    }

    /// The patience of a new operation.
    pub fn patience(&self) -> Patience {
        Patience::new(self.unreachable_max)
    }

    /// Waits before the next attempt, and logs that the database is unreachable; returns the failure if there is no
    /// next attempt.
    async fn await_again(&self, failure: Failure, patience: &mut Patience) -> Result<()> {
        if failure.remedy() == Remedy::Reconnect {
            self.absence
                .note(self.address.as_str(), &failure.reason(), Instant::now());
        }
        if matches!(failure, Failure::Silent(_)) {
            self.pools.distrust();
        }
        // A store that closes does not wait for its database.
        self.check_open()?;
        patience.after(failure).await
    }

    /// Records that the database has answered.
    fn answered(&self) {
        self.absence.end(self.address.as_str(), Instant::now());
    }

    /// Takes a connection for an operation.
    pub async fn writer(&self, purpose: Purpose) -> Result<Pooled> {
        self.check_open()?;
        self.pools.writer(purpose).await
    }

    async fn reader(&self) -> Result<Pooled> {
        self.check_open()?;
        self.pools.reader().await
    }

    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            Err(StoreError::Closed.into())
        } else {
            Ok(())
        }
    }

    /// Runs statements outside of a transaction, such as those that add a lane.
    pub async fn alone<T, Work, Answer>(
        &self,
        purpose: Purpose,
        work: Work,
    ) -> std::result::Result<T, StoreError>
    where
        Work: Fn(Pooled) -> Answer,
        Answer: Future<Output = Result<T>>,
    {
        let mut patience = self.patience();
        loop {
            let answer = match self.writer(purpose).await {
                Ok(connection) => work(connection).await,
                Err(failure) => Err(failure),
            };
            match answer {
                Ok(answer) => {
                    self.answered();
                    return Ok(answer);
                }
                Err(failure) => self.wait_after(failure, &mut patience).await?,
            }
        }
    }

    /// Wakes the waiters for work in this process and in others.
    fn work_came(self: &Arc<Self>) {
        let is_awaited = self.wake.is_awaited();
        self.wake.work_came();
        if !self.notifier.begin() {
            return;
        }
        let database = self.clone();
        tokio::spawn(async move {
            // Waiters of this process come first.
            if is_awaited {
                tokio::time::sleep(OTHERS_AFTER).await
            } else {
                tokio::task::yield_now().await
            }
            database.notifier.run(|| database.wake_others()).await;
        });
    }

    /// Notifies others right behind a commit that was sent over this connection, unless another task does so, or
    /// somebody in this process waits for work. For [`work_came_over`](Database::work_came_over).
    pub async fn tell_others_over(&self, connection: &Connection) -> Option<Result<Pending<Vec<Row>>>> {
        if !self.wake.is_awaited() && self.notifier.begin_telling() {
            Some(connection.send(WAKE, Vec::new()).await)
        } else {
            None
        }
    }

    /// Does the same as [`work_came`](Database::work_came), after others were notified over a connection.
    pub fn work_came_over(self: &Arc<Self>, connection: Pooled, told: Option<Result<Pending<Vec<Row>>>>) {
        let Some(told) = told else { return self.work_came() };
        self.wake.work_came();
        let database = self.clone();
        tokio::spawn(async move {
            let told = match told {
                Ok(told) => told.await.map(drop),
                Err(failure) => Err(failure),
            };
            drop(connection);
            database.notifier.told(told.is_ok()).await;
            database.notifier.run(|| database.wake_others()).await;
        });
    }

    async fn wake_others(&self) {
        let woken = match self.writer(Purpose::Work).await {
            Ok(connection) => connection.rows(WAKE, &[]).await.map(drop),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = woken {
            tracing::debug!(
                reason = failure.reason(),
                "other processes find what was submitted by looking for it"
            );
        }
    }

    /// Listens for jobs that other processes submit. Behind a pooler, waiters poll for them instead.
    pub fn listen(self: &Arc<Self>) {
        if !self.address.is_pooled() && self.wake.begin_listening() {
            let database = self.clone();
            tokio::spawn(async move { database.wake.listen().await });
        }
    }

    /// Gives back the jobs that were claimed for a worker that no longer waits. Without a runtime, they come back once
    /// the worker has ended.
    pub fn give_back(self: &Arc<Self>, unclaimed: Unclaimed) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let database = self.clone();
        runtime.spawn(async move {
            let given_back = database.exchange(unclaimed.worker, unclaimed.reports(), None).await;
            if let Err(error) = given_back {
                tracing::warn!(%error, worker = unclaimed.worker.0, "what was claimed in vain comes back once its worker has ended");
            }
        });
    }

    /// Begins to wait for a batch.
    pub fn watch_outcomes(self: &Arc<Self>, batch: BatchId) -> OutcomeWatch {
        let watch = self.ended.watch(batch);
        if self.ended.begin_listening() {
            let database = self.clone();
            tokio::spawn(async move { database.ended.listen().await });
        }
        watch
    }

    /// Sets a clock by the clock of the database.
    pub async fn compare_clocks(&self, clock: &DatabaseClock) -> std::result::Result<(), StoreError> {
        self.alone(Purpose::Signal, |connection| async move {
            clock
                .compare(async {
                    let row = connection.rows(NOW, &[]).await?.into_iter().next();
                    let row = row.ok_or_else(|| Failure::Damaged("a clock gave no time".to_owned()))?;
                    Ok(row.try_get(0)?)
                })
                .await
        })
        .await
    }

    /// The error that callers see.
    fn error(&self, failure: Failure, patience: &Patience) -> StoreError {
        if failure.is_locked() {
            return StoreError::Locked {
                path: self.address.as_str().into(),
                waited_ms: patience.waited_ms(),
            };
        }
        match failure.remedy() {
            Remedy::Reconnect if failure.read_only().is_none() => StoreError::Unreachable {
                database: self.address.as_str().to_owned(),
                waited_ms: patience.waited_ms(),
                reason: failure.reason(),
            },
            _ => failure.at(self.address.as_str()),
        }
    }

    /// Refuses new operations, and closes the connections after the current ones.
    pub async fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.wake.close();
        self.ended.close();
        self.pools.close().await;
    }
}

/// Continues an operation even if the caller goes away.
pub(crate) async fn to_the_end<T: Send + 'static>(
    operation: impl Future<Output = std::result::Result<T, StoreError>> + Send + 'static,
) -> std::result::Result<T, StoreError> {
    match tokio::spawn(operation).await {
        Ok(answer) => answer,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => Err(StoreError::Panicked(gristmill_store::rules::panic_text(&*panic))),
            Err(_) => Err(StoreError::Closed),
        },
    }
}
