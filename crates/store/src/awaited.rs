//! Batches whose outcomes a process awaits.
//!
//! Without waiters, reports cost nothing extra. On PostgreSQL, a row of `awaited` makes the trigger of reports notify
//! for that batch alone. On SQLite, the commits of a process wake its own waiters. While it has waiters, it polls the
//! file for changes of other processes every few milliseconds.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gristmill_model::BatchId;
use gristmill_model::limits::AWAITED_BATCHES_MAX;
use tokio::sync::{Notify, watch};

/// The awaited batches of one store handle.
#[derive(Debug, Default)]
pub struct Awaited {
    batches: Mutex<HashMap<BatchId, watch::Sender<()>>>,
    /// Notified when a batch begins or ceases to be awaited.
    changed: Notify,
}

/// Watches one batch for ended jobs. From [`Store::watch_outcomes`](crate::Store::watch_outcomes).
#[derive(Debug)]
pub struct OutcomeWatch {
    awaited: Arc<Awaited>,
    batch: BatchId,
    /// The news of the batch; `None` if too many batches are awaited.
    news: Option<watch::Receiver<()>>,
}

impl OutcomeWatch {
    /// Resolves when jobs of the batch may have ended since the last call, or since the watch began. The future may be
    /// dropped and called again without a loss. Never resolves if too many batches are awaited
    /// ([`AWAITED_BATCHES_MAX`]).
    pub async fn changed(&mut self) {
        let told = match &mut self.news {
            Some(news) => news.changed().await.is_ok(),
            None => false,
        };
        if !told {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for OutcomeWatch {
    fn drop(&mut self) {
        if self.news.take().is_some() {
            self.awaited.leave(self.batch);
        }
    }
}

impl Awaited {
    /// Begins to await a batch.
    pub fn watch(self: &Arc<Self>, batch: BatchId) -> OutcomeWatch {
        let mut batches = self.lock();
        let news = match batches.get(&batch) {
            Some(sender) => Some(sender.subscribe()),
            None if batches.len() >= AWAITED_BATCHES_MAX => None,
            None => {
                let (sender, news) = watch::channel(());
                batches.insert(batch, sender);
                self.changed.notify_one();
                Some(news)
            }
        };
        assert!(
            batches.len() <= AWAITED_BATCHES_MAX,
            "a limited number of batches is awaited"
        );
        drop(batches);
        OutcomeWatch {
            awaited: self.clone(),
            batch,
            news,
        }
    }

    fn leave(&self, batch: BatchId) {
        let mut batches = self.lock();
        if batches
            .get(&batch)
            .is_some_and(|sender| sender.receiver_count() == 0)
        {
            batches.remove(&batch);
            self.changed.notify_one();
        }
    }

    /// Wakes the watches of these batches.
    pub fn wake(&self, ended: impl IntoIterator<Item = BatchId>) {
        let batches = self.lock();
        for batch in ended {
            if let Some(sender) = batches.get(&batch) {
                sender.send_replace(());
            }
        }
    }

    /// Wakes all watches.
    pub fn wake_all(&self) {
        self.lock().values().for_each(|sender| {
            sender.send_replace(());
        });
    }

    /// The awaited batches.
    pub fn batches(&self) -> BTreeSet<BatchId> {
        self.lock().keys().copied().collect()
    }

    /// Whether no batch is awaited.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Number of awaited batches.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Resolves when the awaited batches have changed since the last call. For one caller only.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BatchId, watch::Sender<()>>> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn only_watches_of_the_batch_are_woken_and_the_last_one_forgets_it() {
        let awaited = Arc::new(Awaited::default());
        let (one, two) = (BatchId(1), BatchId(2));
        let (mut first, mut second, mut other) = (awaited.watch(one), awaited.watch(one), awaited.watch(two));
        awaited.wake([one, BatchId(3)]);
        assert!(first.changed().now_or_never().is_some());
        assert!(first.changed().now_or_never().is_none(), "each news is told once");
        assert!(second.changed().now_or_never().is_some());
        assert!(other.changed().now_or_never().is_none());
        awaited.wake_all();
        assert!(other.changed().now_or_never().is_some());
        drop(first);
        assert_eq!(awaited.batches(), [one, two].into());
        drop((second, other));
        assert_eq!(awaited.len(), 0);
    }

    #[test]
    fn watches_beyond_the_limit_are_never_woken() {
        let awaited = Arc::new(Awaited::default());
        let last = i64::try_from(AWAITED_BATCHES_MAX).unwrap();
        let _watches: Vec<_> = (0..last).map(|batch| awaited.watch(BatchId(batch))).collect();
        let mut beyond = awaited.watch(BatchId(last));
        awaited.wake_all();
        assert!(beyond.changed().now_or_never().is_none());
        drop(beyond);
        assert_eq!(awaited.len(), AWAITED_BATCHES_MAX);
        let mut known = awaited.watch(BatchId(0));
        awaited.wake([BatchId(0)]);
        assert!(known.changed().now_or_never().is_some());
    }
}
