//! Small exchanges of many workers, grouped: exchanges that come while others are in progress share one transaction.
//!
//! An exchange goes at once, in a transaction of its own, if no other is in progress. After a group of several, the
//! next one gathers for a moment, so that a server whose agents report often commits at a steady rate. The exchanges of
//! a group are carried out one after the other, over one connection; each sees what those before it have taken. An
//! exchange of an unregistered worker is refused alone. If the database refuses, none of the group is committed, and
//! each is retried alone, so that it gets its own answer.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use gristmill_batching::{Committer, GroupCommitError, GroupLimits, Submitter, group_commit};
use gristmill_model::{Report, WorkerId};
use gristmill_store::rules::ending::is_simple;
use gristmill_store::{StoreError, Want};
use tokio::sync::Mutex as Turn;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::commit::exchange::Outline;
use crate::database::Database;
use crate::database::pools::Purpose;
use crate::database::transaction::{Durability, Transaction};
use crate::failure::Result;
use crate::graph::family::Origins;
use crate::limits::{
    GROUP_BYTES_MAX, GROUP_EXCHANGES_MAX, GROUPED_EXCHANGE_BYTES_MAX, GROUPED_JOBS_MAX, GROUPS_APART,
    QUEUED_EXCHANGES_BYTES_MAX, QUEUED_EXCHANGES_MAX, STEADY_FROM_EXCHANGES,
};

/// Locks workers in one order before anything else, so that they cannot be deleted until COMMIT.
const WORKERS: &str = "SELECT id FROM gristmill.worker WHERE id = ANY ($1) ORDER BY id FOR KEY SHARE";

/// An exchange that may share a transaction.
#[derive(Debug, Clone)]
pub(crate) struct SmallExchange {
    worker: WorkerId,
    reports: Vec<Report>,
    want: Option<Want>,
}

pub(crate) type ExchangeReply = std::result::Result<Outline, StoreError>;

impl SmallExchange {
    /// Makes one of an exchange whose transaction is short: it reports only a few completed jobs, and wants few.
    /// Otherwise returns the parts, for a transaction of its own.
    pub fn new(
        worker: WorkerId,
        reports: Vec<Report>,
        want: Option<Want>,
    ) -> std::result::Result<Self, (Vec<Report>, Option<Want>)> {
        let bytes: usize = reports.iter().map(Report::weight_bytes).sum();
        let is_small = bytes <= GROUPED_EXCHANGE_BYTES_MAX
            && want.as_ref().is_none_or(|want| want.jobs_max <= GROUPED_JOBS_MAX)
            && reports.iter().all(is_simple);
        if is_small {
            Ok(SmallExchange {
                worker,
                reports,
                want,
            })
        } else {
            Err((reports, want))
        }
    }

    /// The approximate size.
    pub fn weight_bytes(&self) -> usize {
        100 + self.reports.iter().map(Report::weight_bytes).sum::<usize>()
    }

    async fn alone(self, database: &Arc<Database>) -> ExchangeReply {
        database.exchange(self.worker, self.reports, self.want).await
    }
}

/// The queue of small exchanges.
#[derive(Debug)]
pub(crate) struct Exchanger {
    submitter: Mutex<Option<Submitter<SmallExchange, ExchangeReply>>>,
    under_way: AtomicUsize,
    pace: Arc<Pace>,
}

impl Exchanger {
    /// Starts the returned task, which commits groups.
    pub fn begin(database: Arc<Database>) -> (Exchanger, JoinHandle<()>) {
        let (submitter, committer) = group_commit(GroupLimits {
            operations_max: GROUP_EXCHANGES_MAX,
            weight_max: GROUP_BYTES_MAX,
            queue_operations_max: QUEUED_EXCHANGES_MAX,
            queue_weight_max: QUEUED_EXCHANGES_BYTES_MAX,
        });
        let pace = Arc::new(Pace::default());
        let exchanger = Exchanger {
            submitter: Mutex::new(Some(submitter)),
            under_way: AtomicUsize::new(0),
            pace: pace.clone(),
        };
        (exchanger, tokio::spawn(commit_groups(database, committer, pace)))
    }

    /// Carries an exchange out: at once if it is alone, otherwise with a group.
    pub async fn exchange(&self, database: &Arc<Database>, exchange: SmallExchange) -> ExchangeReply {
        let submitter = self.lock().clone().ok_or(StoreError::Closed)?;
        let under_way = UnderWay::new(&self.under_way);
        if under_way.is_alone
            && self.pace.is_quiet()
            && let Ok(_turn) = self.pace.turn.try_lock()
        {
            return exchange.alone(database).await;
        }
        let bytes = exchange.weight_bytes();
        match submitter.submit(exchange, bytes).await {
            Ok(reply) => reply,
            Err(GroupCommitError::Closed) => Err(StoreError::Closed),
            Err(GroupCommitError::Abandoned) => Err(StoreError::Panicked(
                "an exchange was given up in the middle of its transaction".to_owned(),
            )),
        }
    }

    /// Takes no more exchanges; the waiting ones are still carried out.
    pub fn close(&self) {
        self.lock().take();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Submitter<SmallExchange, ExchangeReply>>> {
        self.submitter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts an exchange for as long as its caller waits.
struct UnderWay<'a> {
    count: &'a AtomicUsize,
    is_alone: bool,
}

impl<'a> UnderWay<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        let is_alone = count.fetch_add(1, Ordering::AcqRel) == 0;
        UnderWay { count, is_alone }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The pace of the groups: one at a time, so that no exchange of this process passes over slices that another one is taking.
#[derive(Debug, Default)]
struct Pace {
    turn: Turn<()>,
    /// When the next group may begin, if groups are large.
    next_at: Mutex<Option<Instant>>,
}

impl Pace {
    fn next_at(&self) -> Option<Instant> {
        *self.next_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_quiet(&self) -> bool {
        self.next_at().is_none_or(|next_at| next_at <= Instant::now())
    }

    /// Records that a group of this many exchanges begins.
    fn begins(&self, exchanges: usize) {
        let next_at = (exchanges >= STEADY_FROM_EXCHANGES).then(|| Instant::now() + GROUPS_APART);
        *self.next_at.lock().unwrap_or_else(PoisonError::into_inner) = next_at;
    }
}

/// Commits one group after the other, until all handles are gone or the store is closed.
async fn commit_groups(
    database: Arc<Database>,
    mut committer: Committer<SmallExchange, ExchangeReply>,
    pace: Arc<Pace>,
) {
    while let Some(group) = committer.next_group_async().await {
        let mut gathered = Vec::from_iter(group);
        if let Some(next_at) = pace.next_at() {
            tokio::time::sleep_until(next_at).await;
        }
        let turn = pace.turn.lock().await;
        while gathered.len() < GROUP_EXCHANGES_MAX
            && let Some(more) = committer.try_next_group()
        {
            gathered.extend(more);
        }
        pace.begins(gathered.len());
        let (exchanges, responders): (Vec<_>, Vec<_>) = gathered.into_iter().unzip();
        let replies = carry_out(&database, exchanges).await;
        assert_eq!(replies.len(), responders.len(), "each exchange has a reply");
        drop(turn);
        for (responder, reply) in responders.into_iter().zip(replies) {
            responder.reply(reply);
        }
    }
}

/// Carries out all exchanges in one transaction, or each in its own if that fails.
async fn carry_out(database: &Arc<Database>, mut exchanges: Vec<SmallExchange>) -> Vec<ExchangeReply> {
    if exchanges.len() == 1
        && let Some(exchange) = exchanges.pop()
    {
        return vec![exchange.alone(database).await];
    }
    let exchanges = Arc::new(exchanges);
    match together(database, exchanges.clone()).await {
        Ok(replies) => replies,
        // Nobody knows whether it was committed, so none may be retried; or each would fail in the same way.
        Err(error @ (StoreError::Unknown { .. } | StoreError::Unreachable { .. } | StoreError::Closed)) => {
            exchanges.iter().map(|_| Err(error.clone())).collect()
        }
        // One of them waits for a transaction that may last: the others do not wait behind it in turn.
        Err(StoreError::Locked { .. }) => {
            let alone = exchanges.iter().cloned().map(|exchange| exchange.alone(database));
            futures::future::join_all(alone).await
        }
        Err(error) => {
            tracing::debug!(%error, exchanges = exchanges.len(), "exchanges are carried out one by one");
            // One after the other: concurrent claims would pass over slices that the others are taking.
            let mut replies = Vec::with_capacity(exchanges.len());
            for exchange in exchanges.iter().cloned() {
                replies.push(exchange.alone(database).await);
            }
            replies
        }
    }
}

async fn together(
    database: &Arc<Database>,
    exchanges: Arc<Vec<SmallExchange>>,
) -> std::result::Result<Vec<ExchangeReply>, StoreError> {
    let durability = if exchanges.iter().all(|exchange| exchange.reports.is_empty()) {
        Durability::Needless
    } else {
        Durability::Promised
    };
    database
        .write(Purpose::Work, durability, move |transaction| {
            let exchanges = exchanges.clone();
            async move { transaction.exchange_all(&exchanges).await }.boxed()
        })
        .await
}

impl Transaction {
    async fn exchange_all(&mut self, exchanges: &[SmallExchange]) -> Result<Vec<ExchangeReply>> {
        let workers: Vec<i64> = exchanges.iter().map(|exchange| exchange.worker.0).collect();
        let rows = self.query(WORKERS, &[&workers]).await?;
        let known: BTreeSet<i64> = rows
            .iter()
            .map(|row| Ok(row.try_get(0)?))
            .collect::<Result<_>>()?;
        let origins = Origins::default();
        // Each claim may leave a part of a slice to the next one.
        self.writes.news.changed_slices = true;
        let mut replies = Vec::with_capacity(exchanges.len());
        for exchange in exchanges {
            if exchange.want.is_some() && !known.contains(&exchange.worker.0) {
                replies.push(Err(StoreError::WorkerUnknown(exchange.worker)));
                continue;
            }
            self.flush_behind().await?;
            let want = exchange.want.as_ref();
            let outline = self.exchange(exchange.worker, &exchange.reports, want, &origins);
            replies.push(Ok(outline.await?));
        }
        Ok(replies)
    }
}
