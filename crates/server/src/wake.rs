//! Claims that wait for work.
//!
//! Waiting claims of the same queues and kinds stand in line at one gate. When there may be work, the first claim of a
//! line tries. The next one tries only if the first got jobs. A submit therefore costs one claim for each gate, not one
//! for each waiting agent.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use gristmill_model::{Clock, Lease, Timestamp};
use gristmill_store::{Exchanged, StoreError, Want};
use tokio::sync::watch;

/// The key of a gate: sorted queues and kinds, and a minimum priority.
type Key = (Vec<Arc<str>>, Vec<Arc<str>>, Option<i16>);

/// All gates.
#[derive(Debug, Default)]
pub struct Wake {
    gates: Mutex<HashMap<Key, Weak<Gate>>>,
    /// The number of claims that wait at the gates.
    waiting: watch::Sender<usize>,
}

/// A waiting claim, counted until it is dropped.
struct Waiting<'a>(&'a watch::Sender<usize>);

impl<'a> Waiting<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| {
            debug_assert!(*count > 0, "each waiting claim is counted");
            *count -= 1;
        });
    }
}

#[derive(Debug)]
struct Gate {
    /// Counts the times at which there may have been work.
    moments: watch::Sender<u64>,
    /// The result of the last empty claim. The holder of the lock claims.
    dry: tokio::sync::Mutex<Dry>,
}

/// The result of an empty claim.
#[derive(Debug, Default)]
struct Dry {
    /// The moment after which the claim was made.
    since: u64,
    /// The time at which more can be claimed.
    next_run_at: Option<Timestamp>,
    /// True if jobs wait until others have ended.
    limited: bool,
}

/// Reports whether a claim got no jobs, and no later claim is known to get some.
pub fn is_nothing(exchanged: &Exchanged) -> bool {
    let jobs = exchanged.lease.as_ref().map_or(0, Lease::jobs);
    jobs == 0 && exchanged.next_run_at.is_none() && !exchanged.limited
}

impl Wake {
    /// Notes that there may be work.
    pub fn ring(&self) {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.retain(|_, gate| match gate.upgrade() {
            Some(gate) => {
                gate.moments.send_modify(|moment| *moment += 1);
                true
            }
            None => false,
        });
    }

    /// Rings when the store has work, for which `wait_for_work` waits, and regularly for jobs that other processes
    /// submitted. Waits at the store only while claims wait here, because a store with a waiting caller notifies it
    /// first, and other workers later. Never returns.
    pub async fn watch<F>(&self, wait_for_work: impl Fn() -> F, every: Duration)
    where
        F: Future<Output = ()>,
    {
        let mut waiting = self.waiting.subscribe();
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            // The sender is in `self`, so it is not gone.
            let _ = waiting.wait_for(|waiting| *waiting > 0).await;
            tokio::select! {
                () = wait_for_work() => {}
                _ = ticks.tick() => {}
                _ = waiting.wait_for(|waiting| *waiting == 0) => continue,
            }
            self.ring();
        }
    }

    fn gate(&self, want: &Want) -> Arc<Gate> {
        let mut key = (want.queues.clone(), want.kinds.clone(), want.priority_min);
        key.0.sort();
        key.1.sort();
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = gates.get(&key).and_then(Weak::upgrade) {
            return gate;
        }
        let gate = Arc::new(Gate {
            moments: watch::Sender::new(1),
            dry: tokio::sync::Mutex::default(),
        });
        gates.insert(key, Arc::downgrade(&gate));
        gate
    }

    /// Claims with `claim` until it gets a lease or `ended` resolves, and returns the last answer. `first` is the
    /// answer to the claim before the wait. If it said that more can be claimed later, the wait also ends when this is
    /// no longer true: a worker that should end when nothing is left then learns it at once.
    pub async fn claim_when_there_is_work<C, F>(
        &self,
        want: &Want,
        clock: &dyn Clock,
        first: Exchanged,
        claim: C,
        ended: impl Future<Output = ()>,
    ) -> Result<Exchanged, StoreError>
    where
        C: Fn() -> F,
        F: Future<Output = Result<Exchanged, StoreError>>,
    {
        let _waiting = Waiting::new(&self.waiting);
        let gate = self.gate(want);
        let mut moments = gate.moments.subscribe();
        // Work may have come between the first claim and the gate, so the first moment counts as new.
        let mut seen = 0;
        let expects = !is_nothing(&first);
        let mut last = first;
        let mut claimed_at = *gate.moments.borrow();
        let mut ended = std::pin::pin!(ended);
        loop {
            tokio::select! {
                () = &mut ended => return Ok(last),
                moment = moments.wait_for(|moment| *moment > seen) => drop(moment),
                () = until(last.next_run_at, clock) => {}
            }
            let mut dry = tokio::select! {
                () = &mut ended => return Ok(last),
                turn = gate.dry.lock() => turn,
            };
            let due = last.next_run_at.is_some_and(|at| at <= clock.now());
            let moment = *gate.moments.borrow();
            seen = moment;
            if dry.since >= moment && !due {
                // An earlier claim found nothing, and no work has come since.
                if dry.since > claimed_at {
                    (last.next_run_at, last.limited) = (dry.next_run_at, dry.limited);
                }
            } else {
                claimed_at = moment;
                last = claim().await?;
                if last.lease.as_ref().is_some_and(|lease: &Lease| lease.jobs() > 0) {
                    return Ok(last);
                }
                assert!(
                    dry.since <= moment,
                    "moments at a gate only grow, from {} to {moment}",
                    dry.since
                );
                *dry = Dry {
                    since: moment,
                    next_run_at: last.next_run_at,
                    limited: last.limited,
                };
            }
            if expects && is_nothing(&last) {
                return Ok(last);
            }
        }
    }
}

/// Resolves at `at` by `clock`, or never.
async fn until(at: Option<Timestamp>, clock: &dyn Clock) {
    match at {
        Some(at) => {
            let left_ms = at.since_ms(clock.now()).max(1);
            tokio::time::sleep(Duration::from_millis(left_ms.unsigned_abs())).await;
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use gristmill_model::{LeaseId, LeasedSlice, PackedArray, Positions, SystemClock};

    use super::*;

    fn want(queue: &str) -> Want {
        Want {
            jobs_max: 1,
            queues: vec![queue.into()],
            kinds: Vec::new(),
            priority_min: None,
        }
    }

    fn lease() -> Exchanged {
        let slice = LeasedSlice {
            lease: LeaseId(1),
            batch: gristmill_model::BatchId(1),
            kind: "k".into(),
            queue: "default".into(),
            group: None,
            positions: Positions::all(1),
            payloads: PackedArray::parse("[1]").unwrap(),
            attempt: 1,
            rescues: 0,
            timeout_ms: None,
            priority: 0,
            retry: gristmill_model::RetryPolicy::default(),
            submitted_at: Timestamp(0),
            memos: None,
            deadline: None,
            labels: None,
            traceparent: None,
        };
        Exchanged {
            lease: Some(Lease {
                id: LeaseId(1),
                slices: vec![slice],
            }),
            ..Exchanged::default()
        }
    }

    /// Waits until all tasks wait for something else. The tasks of these tests run in turn on one thread.
    async fn settle() {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn waiting_claims_share_one_try_and_each_success_lets_one_more_try() {
        let (wake, claims, jobs) = (
            Arc::new(Wake::default()),
            Arc::new(AtomicU32::new(0)),
            Arc::new(AtomicU32::new(0)),
        );
        let (stop, _) = watch::channel(false);
        let mut waiting = Vec::new();
        for _ in 0..10 {
            let (wake, claims, jobs, mut stopped) =
                (wake.clone(), claims.clone(), jobs.clone(), stop.subscribe());
            waiting.push(tokio::spawn(async move {
                let claim = || async {
                    claims.fetch_add(1, Ordering::SeqCst);
                    let got =
                        jobs.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                    Ok(got.map_or_else(|_| Exchanged::default(), |_| lease()))
                };
                let ended = async {
                    let _ = stopped.wait_for(|stopped| *stopped).await;
                };
                let want = want("a");
                wake.claim_when_there_is_work(&want, &SystemClock, Exchanged::default(), claim, ended)
                    .await
                    .unwrap()
            }));
        }
        settle().await;
        assert_eq!(
            claims.load(Ordering::SeqCst),
            1,
            "the first looks whether something came, for all"
        );
        wake.ring();
        settle().await;
        assert_eq!(claims.load(Ordering::SeqCst), 2);
        jobs.store(3, Ordering::SeqCst);
        wake.ring();
        settle().await;
        assert_eq!(claims.load(Ordering::SeqCst), 2 + 3 + 1);
        assert_eq!(waiting.iter().filter(|task| task.is_finished()).count(), 3);
        stop.send_replace(true);
        let mut got = 0;
        for task in waiting {
            got += task.await.unwrap().lease.map_or(0, |lease| lease.jobs());
        }
        assert_eq!(got, 3);
        wake.ring();
        assert!(
            wake.gates.lock().unwrap().is_empty(),
            "gates that nobody waits at are forgotten"
        );
    }

    #[tokio::test]
    async fn a_wait_for_others_to_end_ends_when_nothing_waits_any_more() {
        let (wake, limited) = (
            Arc::new(Wake::default()),
            Arc::new(std::sync::atomic::AtomicBool::new(true)),
        );
        let claimed = |limited: bool| Exchanged {
            limited,
            ..Exchanged::default()
        };
        let waiting = |first: bool| {
            let (wake, limited, first) = (wake.clone(), limited.clone(), claimed(first));
            tokio::spawn(async move {
                let claim = || async { Ok(claimed(limited.load(Ordering::SeqCst))) };
                let want = want("a");
                wake.claim_when_there_is_work(&want, &SystemClock, first, claim, std::future::pending())
                    .await
                    .unwrap()
            })
        };
        let (one, other, for_new) = (waiting(true), waiting(true), waiting(false));
        settle().await;
        wake.ring();
        settle().await;
        assert!(!one.is_finished() && !other.is_finished());
        limited.store(false, Ordering::SeqCst);
        wake.ring();
        assert!(!one.await.unwrap().limited);
        assert!(!other.await.unwrap().limited, "one claim tells both");
        settle().await;
        assert!(!for_new.is_finished(), "it waits for new work");
        // A worker may know of jobs that another process submitted before this server has looked.
        let late = waiting(true);
        settle().await;
        assert!(!late.is_finished());
        for_new.abort();
        late.abort();
    }

    #[tokio::test]
    async fn the_store_is_awaited_only_while_a_claim_waits() {
        let (wake, awaited) = (Arc::new(Wake::default()), Arc::new(AtomicU32::new(0)));
        let watching = tokio::spawn({
            let (wake, awaited) = (wake.clone(), awaited.clone());
            async move {
                let wait_for_work = || async {
                    let _counted = Counted::new(&awaited);
                    std::future::pending::<()>().await;
                };
                wake.watch(wait_for_work, Duration::from_secs(3600)).await;
            }
        });
        settle().await;
        assert_eq!(awaited.load(Ordering::SeqCst), 0, "no claim waits yet");
        let claiming = tokio::spawn({
            let wake = wake.clone();
            async move {
                let claim = || async { Ok(Exchanged::default()) };
                let (want, never) = (want("a"), std::future::pending());
                wake.claim_when_there_is_work(&want, &SystemClock, Exchanged::default(), claim, never)
                    .await
            }
        });
        settle().await;
        assert_eq!(awaited.load(Ordering::SeqCst), 1, "a claim waits");
        claiming.abort();
        settle().await;
        assert_eq!(awaited.load(Ordering::SeqCst), 0, "the claim was given up");
        watching.abort();
    }

    /// Counts itself while it lives.
    struct Counted<'a>(&'a AtomicU32);

    impl<'a> Counted<'a> {
        fn new(count: &'a AtomicU32) -> Self {
            count.fetch_add(1, Ordering::SeqCst);
            Counted(count)
        }
    }

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_job_is_claimed_when_it_is_due() {
        let wake = Wake::default();
        let soon = SystemClock.now().plus_ms(200);
        let claims = AtomicU32::new(0);
        let claim = || async {
            let count = claims.fetch_add(1, Ordering::SeqCst);
            Ok(if count == 0 {
                Exchanged {
                    next_run_at: Some(soon),
                    ..Exchanged::default()
                }
            } else {
                lease()
            })
        };
        let first = Exchanged {
            next_run_at: Some(soon),
            ..Exchanged::default()
        };
        let clock = gristmill_model::ManualClock::new(soon.plus_ms(-200));
        let want = want("a");
        let waiting = wake.claim_when_there_is_work(&want, &clock, first, claim, std::future::pending());
        let mut waiting = std::pin::pin!(waiting);
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        clock.advance_ms(200);
        assert!(waiting.await.unwrap().lease.is_some());
    }
}
