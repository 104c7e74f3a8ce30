//! Workers of one process that wait for jobs. Each registers a wish, and the transaction that stores matching jobs
//! claims them for it, with one sync for both.
//!
//! On SQLite, this is an ordinary claim before COMMIT. On PostgreSQL, it is the statement of a lone submit, if the wish
//! covers the whole batch, nothing else is due and no control applies. The lease is handed over in memory after COMMIT.
//!
//! A wish is in one of three places: in this list, in a transaction that claims for it, or answered. If the worker has
//! left by then, the store releases its claim.
//! the claim of a worker that is gone by then.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gristmill_model::limits::WAITING_WANTS_MAX;
use gristmill_model::{Lease, Report, WorkerId};
use tokio::sync::oneshot;

use crate::{Exchanged, Want};

/// The waiting workers, in the order of their arrival.
#[derive(Debug, Default)]
pub struct WaitingWorkers {
    list: Mutex<List>,
    /// Number of workers on the list, which a transaction reads without the lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct List {
    workers: Vec<WaitingWorker>,
    ids_given: u64,
}

/// A waiting worker.
#[derive(Debug)]
pub struct WaitingWorker {
    id: u64,
    /// The worker.
    pub worker: WorkerId,
    /// The jobs that it wants.
    pub want: Want,
    answer: oneshot::Sender<Exchanged>,
}

/// A claim that its worker did not take.
#[derive(Debug)]
pub struct Unclaimed {
    /// The worker.
    pub worker: WorkerId,
    lease: Lease,
}

impl WaitingWorkers {
    /// Whether no worker waits.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Takes the first accepted wish off the list. It must be answered. If it is dropped, its worker claims by itself.
    pub fn take(&self, mut accepts: impl FnMut(&WaitingWorker) -> bool) -> Option<WaitingWorker> {
        if self.is_empty() {
            return None;
        }
        let mut list = self.list();
        let place = list.workers.iter().position(&mut accepts)?;
        let taken = list.workers.remove(place);
        assert!(list.workers.iter().all(|other| other.id != taken.id));
        self.count.store(list.workers.len(), Ordering::Release);
        Some(taken)
    }

    /// Waits until a transaction has claimed for the worker, or until `work` resolves (`None`). If the caller leaves
    /// meanwhile, its claim goes to `give_back`.
    pub async fn wait(
        &self,
        worker: WorkerId,
        want: Want,
        work: impl Future<Output = ()>,
        give_back: impl Fn(Unclaimed),
    ) -> Option<Exchanged> {
        let Some((id, answer)) = self.add(worker, want) else {
            work.await;
            return None;
        };
        let mut place = Place {
            waiting: self,
            id,
            worker,
            answer,
            give_back,
        };
        tokio::select! {
            biased;
            answer = &mut place.answer => return answer.ok(),
            () = work => {}
        }
        if self.withdraw(id) {
            return None;
        }
        // A transaction is claiming at this moment.
        (&mut place.answer).await.ok()
    }

    /// Adds a wish; `None` if too many workers wait.
    fn add(&self, worker: WorkerId, want: Want) -> Option<(u64, oneshot::Receiver<Exchanged>)> {
        let (sender, receiver) = oneshot::channel();
        let mut list = self.list();
        if list.workers.len() >= WAITING_WANTS_MAX {
            return None;
        }
        list.ids_given += 1;
        let id = list.ids_given;
        list.workers.push(WaitingWorker {
            id,
            worker,
            want,
            answer: sender,
        });
        assert!(
            list.workers.len() <= WAITING_WANTS_MAX,
            "a limited number of workers waits on the list"
        );
        debug_assert!(
            list.workers.is_sorted_by(|worker, next| worker.id < next.id),
            "workers wait in the order of their arrival"
        );
        self.count.store(list.workers.len(), Ordering::Release);
        Some((id, receiver))
    }

    /// Takes a wish off the list. Returns whether it was still there.
    fn withdraw(&self, id: u64) -> bool {
        self.take(|waiting| waiting.id == id).is_some()
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitingWorker {
    /// Hands over a committed claim. Returns it if the worker no longer waits.
    pub fn answer(self, exchanged: Exchanged) -> Option<Unclaimed> {
        let refused = self.answer.send(exchanged).err()?;
        Unclaimed::of(self.worker, refused)
    }
}

impl Unclaimed {
    fn of(worker: WorkerId, exchanged: Exchanged) -> Option<Unclaimed> {
        let lease = exchanged.lease?;
        Some(Unclaimed { worker, lease })
    }

    /// Makes the reports that release it.
    pub fn reports(&self) -> Vec<Report> {
        let slices = self.lease.slices.iter();
        let reports = slices.map(|slice| Report {
            released: slice.positions.clone(),
            ..Report::new(slice.lease, slice.batch, slice.attempt)
        });
        assert!(self.lease.slices.iter().all(|slice| slice.attempt > 0));
        reports.collect()
    }
}

/// A place on the list, which its caller may leave at any moment.
struct Place<'w, GiveBack: Fn(Unclaimed)> {
    waiting: &'w WaitingWorkers,
    id: u64,
    worker: WorkerId,
    answer: oneshot::Receiver<Exchanged>,
    give_back: GiveBack,
}

impl<GiveBack: Fn(Unclaimed)> Drop for Place<'_, GiveBack> {
    fn drop(&mut self) {
        if self.waiting.withdraw(self.id) {
            return;
        }
        // From here on, the claiming transaction learns that the worker has left.
        self.answer.close();
        if let Ok(exchanged) = self.answer.try_recv()
            && let Some(unclaimed) = Unclaimed::of(self.worker, exchanged)
        {
            (self.give_back)(unclaimed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::pending;
    use std::pin::pin;
    use std::sync::Arc;

    use futures::FutureExt;
    use gristmill_model::LeaseId;

    use super::*;

    fn want() -> Want {
        Want {
            jobs_max: 1,
            queues: vec![Arc::from("default")],
            kinds: Vec::new(),
            priority_min: None,
        }
    }

    fn claimed() -> Exchanged {
        Exchanged {
            lease: Some(Lease {
                id: LeaseId(5),
                slices: Vec::new(),
            }),
            ..Exchanged::default()
        }
    }

    #[test]
    fn an_answer_arrives_once() {
        let waiting = WaitingWorkers::default();
        {
            let mut call = pin!(waiting.wait(WorkerId(1), want(), pending(), |_| panic!("it was taken")));
            assert!(call.as_mut().now_or_never().is_none());
            let taken = waiting.take(|_| true).unwrap();
            assert!(waiting.is_empty());
            assert!(taken.answer(claimed()).is_none());
            assert_eq!(call.now_or_never(), Some(Some(claimed())));
        }
        assert!(waiting.is_empty());
    }

    #[test]
    fn no_job_is_lost_with_a_caller() {
        // The caller leaves before its wish is taken, before it is answered, and after that.
        for stage in 0..3 {
            let waiting = WaitingWorkers::default();
            let returned = RefCell::new(Vec::new());
            let give_back = |unclaimed: Unclaimed| returned.borrow_mut().push(unclaimed.lease.id);
            let mut call = Box::pin(waiting.wait(WorkerId(1), want(), pending(), give_back));
            assert!(call.as_mut().now_or_never().is_none());
            let taken = (stage > 0).then(|| waiting.take(|_| true).unwrap());
            match (stage, taken) {
                (2, Some(taken)) => {
                    assert!(taken.answer(claimed()).is_none());
                    drop(call);
                    assert_eq!(returned.take(), [LeaseId(5)]);
                }
                (_, taken) => {
                    drop(call);
                    let unclaimed = taken.and_then(|taken| taken.answer(claimed()));
                    assert_eq!(unclaimed.is_some(), stage == 1);
                    assert!(returned.take().is_empty());
                }
            }
            assert!(waiting.is_empty());
        }
    }

    #[test]
    fn a_wake_up_waits_for_a_claiming_transaction() {
        let waiting = WaitingWorkers::default();
        let (tell, told) = oneshot::channel::<()>();
        let work = async { drop(told.await) };
        let mut call = pin!(waiting.wait(WorkerId(1), want(), work, |_| panic!("it was taken")));
        assert!(call.as_mut().now_or_never().is_none());
        let taken = waiting.take(|_| true).unwrap();
        tell.send(()).unwrap();
        assert!(call.as_mut().now_or_never().is_none(), "it is being claimed for");
        drop(taken);
        assert_eq!(call.now_or_never(), Some(None), "it looks by itself");
    }
}
