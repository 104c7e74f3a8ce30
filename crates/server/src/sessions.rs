//! The sessions of agents' workers: their owners, and the answers that may not have arrived yet.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use gristmill_engine::live_logs::Interest;
use gristmill_model::{Followed, WorkerId};
use gristmill_store::{NewWorker, Store, WorkerRow};
use tokio::sync::watch;

use crate::caller::Caller;
use crate::error::ApiError;
use crate::limits::{ANSWERS_KEPT_MAX, SESSIONS_MAX};

/// An answer that is computed or complete.
type Answer = Shared<BoxFuture<'static, Result<Bytes, ApiError>>>;

/// The workers that this server has served.
#[derive(Debug, Default)]
pub struct Sessions {
    sessions: Mutex<HashMap<WorkerId, Arc<Session>>>,
    uses: AtomicU64,
}

/// The session of one worker.
pub struct Session {
    /// Its id.
    pub worker: WorkerId,
    owner: Owner,
    answers: Mutex<Answers>,
    used: AtomicU64,
    heartbeat: AtomicU64,
    /// The version of the list of followed jobs in the last answer to an exchange.
    told: AtomicU64,
    /// The number of the last request that found nothing to claim, now or later.
    found_nothing: watch::Sender<u64>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Session")
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}

/// The owner of a worker. The worker's row stores it, so that every server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    subject: String,
    token: String,
}

#[derive(Default)]
struct Answers {
    /// Requests up to this number are finished.
    floor: u64,
    kept: BTreeMap<u64, Kept>,
}

#[derive(Clone)]
struct Kept {
    answer: Answer,
    waiters: watch::Sender<usize>,
}

/// Counts a request that waits for an answer, until it is dropped.
pub struct Waiter(watch::Sender<usize>);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.send_modify(|waiters| {
            debug_assert!(*waiters > 0, "each waiting request is counted");
            *waiters -= 1;
        });
    }
}

/// The prefix of the token's id in the row of a worker over HTTP.
const TOKEN_PREFIX: &str = "token:";

/// The row of an agent's worker. Its owner comes from the token, whatever the agent reports.
pub fn new_worker(caller: &Caller, name: &str, host: &str, process_id: u32) -> NewWorker {
    NewWorker {
        name: format!("{}/{name}", caller.access.subject),
        // This is never just the name of this machine, because the process does not run here.
        host: format!("{host}, over HTTP"),
        process_id,
        process_started: format!("{TOKEN_PREFIX}{}", caller.token),
        queues: Vec::new(),
        kinds: Vec::new(),
    }
}

impl Owner {
    fn of(row: &WorkerRow) -> Option<Owner> {
        let token = row.worker.process_started.strip_prefix(TOKEN_PREFIX)?;
        let (subject, _) = row.worker.name.split_once('/')?;
        Some(Owner {
            subject: subject.to_owned(),
            token: token.to_owned(),
        })
    }

    fn is(&self, caller: &Caller) -> bool {
        *self.subject == *caller.access.subject && *self.token == *caller.token
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashMap<WorkerId, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of a worker, which must be the caller's.
    pub async fn of_caller(
        &self,
        store: &dyn Store,
        caller: &Caller,
        worker: WorkerId,
    ) -> Result<Arc<Session>, ApiError> {
        let known = self.lock().get(&worker).cloned();
        let session = match known {
            Some(session) => session,
            None => {
                let rows = store.workers().await?;
                let row = rows
                    .iter()
                    .find(|row| row.id == worker)
                    .ok_or(ApiError::WorkerUnknown(worker.0))?;
                let owner = Owner::of(row).ok_or_else(|| not_yours(worker))?;
                if !owner.is(caller) {
                    return Err(not_yours(worker));
                }
                self.remember(worker, owner)
            }
        };
        if !session.owner.is(caller) {
            return Err(not_yours(worker));
        }
        session
            .used
            .store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Ok(session)
    }

    /// Starts the session of a worker that the caller has just registered.
    pub fn begin(&self, caller: &Caller, worker: WorkerId) {
        let owner = Owner {
            subject: caller.access.subject.to_string(),
            token: caller.token.to_string(),
        };
        self.remember(worker, owner);
    }

    fn remember(&self, worker: WorkerId, owner: Owner) -> Arc<Session> {
        let mut sessions = self.lock();
        if sessions.len() >= SESSIONS_MAX {
            let oldest = sessions
                .values()
                .min_by_key(|session| session.used.load(Ordering::Relaxed));
            if let Some(oldest) = oldest.map(|session| session.worker) {
                sessions.remove(&oldest);
            }
        }
        let used = AtomicU64::new(self.uses.fetch_add(1, Ordering::Relaxed));
        let session = Session {
            worker,
            owner,
            answers: Mutex::default(),
            used,
            heartbeat: AtomicU64::new(0),
            told: AtomicU64::new(0),
            found_nothing: watch::Sender::new(0),
        };
        // Two requests may have looked the worker up at the same time. The first session wins.
        let session = sessions
            .entry(worker)
            .or_insert_with(|| Arc::new(session))
            .clone();
        assert!(
            sessions.len() <= SESSIONS_MAX,
            "{} sessions exceed their limit",
            sessions.len()
        );
        session
    }

    /// Forgets a worker that has left or was lost.
    pub fn end(&self, worker: WorkerId) {
        self.lock().remove(&worker);
    }
}

fn not_yours(worker: WorkerId) -> ApiError {
    ApiError::forbidden(
        format!("worker {worker} was not registered with this token"),
        "register your own worker",
    )
}

impl Session {
    /// The answer to request `number`: the kept one, or the answer of `start`. `start` runs to its end even if nobody
    /// waits for it, and gets the number of waiting callers. A failed request is not kept.
    pub fn answer<F>(
        self: &Arc<Self>,
        number: u64,
        acknowledged: u64,
        start: impl FnOnce(watch::Receiver<usize>) -> F,
    ) -> Result<(Answer, Waiter), ApiError>
    where
        F: Future<Output = Result<Bytes, ApiError>> + Send + 'static,
    {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.acknowledge(acknowledged);
        if let Some(kept) = answers.kept.get(&number) {
            kept.waiters.send_modify(|waiters| *waiters += 1);
            return Ok((kept.answer.clone(), Waiter(kept.waiters.clone())));
        }
        if number <= answers.floor {
            return Err(ApiError::Stale {
                worker: self.worker.0,
                number,
            });
        }
        let waiters = watch::Sender::new(1);
        let (work, session) = (start(waiters.subscribe()), self.clone());
        let task = tokio::spawn(async move {
            let answer = work.await;
            if answer.is_err() {
                session
                    .answers
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .kept
                    .remove(&number);
            }
            answer
        });
        let answer = async move { task.await.unwrap_or(Err(ApiError::Stopping)) }
            .boxed()
            .shared();
        answers.keep(
            number,
            Kept {
                answer: answer.clone(),
                waiters: waiters.clone(),
            },
        );
        Ok((answer, Waiter(waiters)))
    }

    /// Notes that request `number` found nothing to claim, now or later. The waits of earlier requests then end, so
    /// that the worker learns whether one of them claimed the last jobs.
    pub fn found_nothing(&self, number: u64) {
        self.found_nothing.send_if_modified(|last| {
            let is_later = number > *last;
            *last = number.max(*last);
            is_later
        });
    }

    /// Resolves when a request after `number` has found nothing to claim.
    pub async fn later_found_nothing(&self, number: u64) {
        let mut found = self.found_nothing.subscribe();
        // The session holds the sender, so it is not gone.
        let _ = found.wait_for(|last| *last > number).await;
    }

    /// The list of followed jobs, if it has changed since the last answer. If this answer is lost, a heartbeat has the list.
    pub fn news_of(&self, interest: &Interest) -> Option<Vec<Followed>> {
        let (version, followed) = interest.newer_than(self.told.load(Ordering::Relaxed))?;
        assert!(version > 0, "news have a version");
        self.told.store(version, Ordering::Relaxed);
        Some(followed)
    }

    /// Reports whether a heartbeat is new. A repeated one must not count twice.
    pub fn is_new_heartbeat(&self, number: u64) -> bool {
        self.heartbeat.fetch_max(number, Ordering::Relaxed) < number
    }
}

impl Answers {
    fn acknowledge(&mut self, number: u64) {
        self.kept = self.kept.split_off(&number.saturating_add(1));
        assert!(self.kept.len() <= ANSWERS_KEPT_MAX, "few answers are kept");
        self.floor = self.floor.max(number);
        self.assert_above_floor();
    }

    fn keep(&mut self, number: u64, kept: Kept) {
        assert!(
            number > self.floor,
            "an answer to request {number} is kept, but requests up to {} are finished",
            self.floor
        );
        let before = self.kept.insert(number, kept);
        assert!(before.is_none(), "request {number} is carried out once");
        while self.kept.len() > ANSWERS_KEPT_MAX {
            if let Some((first, _)) = self.kept.pop_first() {
                self.floor = self.floor.max(first);
            }
        }
        self.assert_above_floor();
    }

    fn assert_above_floor(&self) {
        let first = self.kept.first_key_value();
        assert!(
            first.is_none_or(|(first, _)| *first > self.floor),
            "an answer is kept only until its request is finished"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Arc<Session> {
        Sessions::default().remember(
            WorkerId(1),
            Owner {
                subject: "s".to_owned(),
                token: "t".to_owned(),
            },
        )
    }

    async fn ask(
        session: &Arc<Session>,
        number: u64,
        acknowledged: u64,
        text: &'static str,
    ) -> Result<Bytes, ApiError> {
        let (answer, _waiter) = session.answer(number, acknowledged, |_| async move {
            if text == "fail" {
                Err(ApiError::Stopping)
            } else {
                Ok(Bytes::from_static(text.as_bytes()))
            }
        })?;
        answer.await
    }

    #[tokio::test]
    async fn the_same_number_gets_the_first_answer_until_it_is_acknowledged() {
        let session = session();
        assert_eq!(ask(&session, 2, 0, "two").await.unwrap(), "two");
        assert_eq!(
            ask(&session, 1, 0, "one").await.unwrap(),
            "one",
            "requests may overtake one another"
        );
        assert_eq!(ask(&session, 2, 0, "again").await.unwrap(), "two");
        assert_eq!(ask(&session, 3, 2, "three").await.unwrap(), "three");
        assert!(matches!(
            ask(&session, 2, 2, "late").await,
            Err(ApiError::Stale { number: 2, .. })
        ));
        for number in 4..20 {
            ask(&session, number, 0, "more").await.unwrap();
        }
        assert_eq!(session.answers.lock().unwrap().kept.len(), ANSWERS_KEPT_MAX);
        assert!(matches!(
            ask(&session, 4, 0, "dropped").await,
            Err(ApiError::Stale { .. })
        ));
    }

    #[tokio::test]
    async fn a_failed_request_is_tried_again_and_a_running_one_is_shared() {
        let session = session();
        assert!(ask(&session, 1, 0, "fail").await.is_err());
        assert_eq!(ask(&session, 1, 0, "now").await.unwrap(), "now");

        let (release, released) = tokio::sync::oneshot::channel::<()>();
        let (first, first_waiter) = session
            .answer(2, 0, |mut waiters| async move {
                let _ = released.await;
                let _ = waiters.wait_for(|waiters| *waiters == 1).await;
                Ok(Bytes::from_static(b"slow"))
            })
            .unwrap();
        let (second, _second_waiter) = session
            .answer(2, 0, |_| async { Err(ApiError::Stopping) })
            .unwrap();
        drop((first, first_waiter));
        release.send(()).unwrap();
        assert_eq!(second.await.unwrap(), "slow");
    }

    #[test]
    fn a_repeated_heartbeat_is_not_new() {
        let session = session();
        assert_eq!(
            [1, 2, 2, 1, 3].map(|number| session.is_new_heartbeat(number)),
            [true, true, false, false, true]
        );
    }
}
