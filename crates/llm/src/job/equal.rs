//! Equal requests of one batch: the first is sent, and the others take its answer.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gristmill_model::{BatchId, JobError, JobId};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::cost::unpaid;
use crate::answered::Answered;
use crate::limits::{EQUAL_ANSWER_BYTES_MAX, EQUAL_ANSWERS_MAX};

/// A request of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; 32]);

impl Key {
    /// The key of a payload.
    pub fn new(batch: BatchId, payload: &str) -> Key {
        let mut digest = Sha256::new();
        digest.update(batch.to_string().as_bytes());
        digest.update([0]);
        digest.update(payload.as_bytes());
        Key(digest.finalize().into())
    }
}

type Outcome = Result<Answered, JobError>;

/// The requests that run, and the last answers.
#[derive(Debug, Default)]
pub struct EqualRequests {
    known: Mutex<Known>,
}

/// A request that runs or was answered, and the job that asked it.
#[derive(Debug, Clone)]
struct Asked {
    by: JobId,
    outcome: watch::Receiver<Option<Outcome>>,
}

#[derive(Debug, Default)]
struct Known {
    by_key: HashMap<Key, Asked>,
    /// The keys in the order in which they came. The oldest are forgotten first.
    order: VecDeque<Key>,
}

impl Known {
    fn add(&mut self, key: Key, asked: Asked) {
        if self.by_key.insert(key, asked).is_none() {
            self.order.push_back(key);
        }
        // Requests that run stay: others wait for them. A worker runs a limited number.
        for _ in 0..self.order.len() {
            if self.order.len() <= EQUAL_ANSWERS_MAX {
                break;
            }
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            let runs =
                |asked: &Asked| asked.outcome.borrow().is_none() && asked.outcome.has_changed().is_ok();
            match self.by_key.get(&oldest) {
                Some(asked) if runs(asked) => self.order.push_back(oldest),
                _ => drop(self.by_key.remove(&oldest)),
            }
        }
    }

    /// Forgets this request, unless it was asked anew in the meantime.
    fn forget(&mut self, key: Key, outcome: &watch::Receiver<Option<Outcome>>) {
        let is_it = |asked: &Asked| asked.outcome.same_channel(outcome);
        if self.by_key.get(&key).is_some_and(is_it) {
            self.by_key.remove(&key);
            self.order.retain(|other| *other != key);
        }
    }
}

impl EqualRequests {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The outcome of an equal request that runs or was answered, or else of `call`. If the one that calls is given up, the
    /// next one calls. A failure is shared by those that wait, and is not kept. A job that lost its lease after its answer
    /// gets the answer as its own.
    pub async fn once<R: Future<Output = Outcome>>(
        &self,
        key: Key,
        job: JobId,
        call: impl FnOnce() -> R,
    ) -> Outcome {
        let (sender, own) = loop {
            let asked = {
                let mut known = self.known();
                match known.by_key.get(&key) {
                    Some(asked) => asked.clone(),
                    None => {
                        let (sender, outcome) = watch::channel(None);
                        let own = outcome.clone();
                        known.add(key, Asked { by: job, outcome });
                        break (sender, own);
                    }
                }
            };
            let mut waiting = asked.outcome;
            let ended = waiting
                .wait_for(Option::is_some)
                .await
                .map(|outcome| outcome.clone());
            match ended {
                Ok(Some(outcome)) if asked.by == job => return outcome,
                Ok(Some(Ok(answered))) => return Ok(answered.for_another()),
                Ok(Some(Err(failed))) => return Err(unpaid(failed)),
                Ok(None) => {}
                // The one that called was given up.
                Err(_) => self.known().forget(key, &waiting),
            }
        };
        let outcome = call().await;
        let is_kept = outcome.as_ref().is_ok_and(|answered| {
            let json = answered.json.as_ref().map_or(0, |json| json.to_string().len());
            answered.text.as_ref().map_or(json, String::len) <= EQUAL_ANSWER_BYTES_MAX
        });
        if !is_kept {
            self.known().forget(key, &own);
        }
        sender.send_replace(Some(outcome.clone()));
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::answered::Lane;
    use crate::job::cost::paid;
    use crate::service::TokenUsage;

    fn job(position: u32) -> JobId {
        JobId {
            batch: BatchId(1),
            position,
        }
    }

    fn answered(text: &str) -> Answered {
        Answered {
            text: Some(text.to_owned()),
            json: None,
            model: "m".to_owned(),
            tokens: Some(TokenUsage {
                prompt_tokens: 3,
                ..TokenUsage::default()
            }),
            cost: Some(1.0),
            lane: Lane::Live,
            cut: false,
            shared: false,
            dropped: Vec::new(),
        }
    }

    #[tokio::test]
    async fn equal_requests_of_a_batch_are_sent_once() {
        let (equal, calls) = (EqualRequests::default(), AtomicU32::new(0));
        let key = Key::new(BatchId(1), "\"a\"");
        let call = || async {
            calls.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok(answered("Hum"))
        };
        let (first, second) = tokio::join!(equal.once(key, job(7), call), equal.once(key, job(8), call));
        let third = equal.once(key, job(8), call).await;
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert_eq!(first, Ok(answered("Hum")));
        for shared in [second, third] {
            let shared = shared.expect("an answer");
            assert!(
                shared.shared && shared.cost == Some(0.0) && shared.tokens == Some(TokenUsage::default())
            );
        }
        for other in [Key::new(BatchId(2), "\"a\""), Key::new(BatchId(1), "\"b\"")] {
            assert!(!equal.once(other, job(8), call).await.expect("an answer").shared);
        }
    }

    #[tokio::test]
    async fn a_failure_is_not_kept_and_a_call_that_is_given_up_is_taken_over() {
        let equal = EqualRequests::default();
        let key = Key::new(BatchId(1), "1");
        let failed = equal
            .once(key, job(7), || async { Err(JobError::new("schema", "no")) })
            .await;
        assert!(failed.is_err());
        let mut first = Box::pin(equal.once(key, job(7), std::future::pending));
        assert!(futures::poll!(&mut first).is_pending());
        let mut second = Box::pin(equal.once(key, job(8), || async { Ok(answered("Hum")) }));
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        assert!(!second.await.expect("an answer").shared);
    }

    #[tokio::test]
    async fn a_job_that_runs_again_pays_for_its_own_answer() {
        let equal = EqualRequests::default();
        let key = Key::new(BatchId(1), "1");
        for _ in 0..2 {
            let own = equal.once(key, job(7), || async { Ok(answered("Hum")) }).await;
            assert_eq!(own, Ok(answered("Hum")));
        }
        let failing = || async {
            tokio::task::yield_now().await;
            Err(JobError::new("schema", paid("no", None, None)))
        };
        let key = Key::new(BatchId(1), "2");
        let (first, second) =
            tokio::join!(equal.once(key, job(7), failing), equal.once(key, job(8), failing));
        assert!(first.is_err_and(|failed| failed.message.contains("paid all the same")));
        assert!(second.is_err_and(|failed| failed.message == "no (an equal request has the cost)"));
    }

    #[tokio::test]
    async fn requests_that_run_are_not_forgotten_for_others() {
        let equal = EqualRequests::default();
        let key = |n: usize| Key::new(BatchId(1), &n.to_string());
        let mut first = Box::pin(equal.once(key(0), job(7), std::future::pending));
        assert!(futures::poll!(&mut first).is_pending());
        for n in 1..2 * EQUAL_ANSWERS_MAX {
            equal
                .once(key(n), job(7), || async { Ok(answered("x")) })
                .await
                .expect("an answer");
        }
        assert!(equal.known().by_key.contains_key(&key(0)));
        assert_eq!(equal.known().by_key.len(), EQUAL_ANSWERS_MAX);
    }

    #[tokio::test]
    async fn few_and_small_answers_are_kept() {
        let equal = EqualRequests::default();
        let large = "x".repeat(EQUAL_ANSWER_BYTES_MAX + 1);
        let key = Key::new(BatchId(1), "large");
        for _ in 0..2 {
            let own = equal.once(key, job(8), || async { Ok(answered(&large)) }).await;
            assert!(!own.expect("an answer").shared);
        }
        for n in 0..2 * EQUAL_ANSWERS_MAX {
            let key = Key::new(BatchId(1), &n.to_string());
            equal
                .once(key, job(7), || async { Ok(answered("x")) })
                .await
                .expect("an answer");
        }
        assert_eq!(equal.known().by_key.len(), EQUAL_ANSWERS_MAX);
    }
}
