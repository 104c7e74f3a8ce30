//! Equal requests of one batch: the first is sent, and the others take its answer.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gristmill_model::{BatchId, JobError};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

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

#[derive(Debug, Default)]
struct Known {
    by_key: HashMap<Key, watch::Receiver<Option<Outcome>>>,
    /// The keys in the order in which they came. The oldest are forgotten first.
    order: VecDeque<Key>,
}

impl Known {
    fn add(&mut self, key: Key, outcome: watch::Receiver<Option<Outcome>>) {
        if self.by_key.insert(key, outcome).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > EQUAL_ANSWERS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            // Requests that wait for its answer keep their receivers.
            self.by_key.remove(&oldest);
        }
    }

    fn forget(&mut self, key: Key) {
        if self.by_key.remove(&key).is_some() {
            self.order.retain(|other| *other != key);
        }
    }
}

impl EqualRequests {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The outcome of an equal request that runs or was answered, or else of `call`. If the one that calls is given up, the
    /// next one calls. A failure is shared by those that wait, and is not kept.
    pub async fn once<R: Future<Output = Outcome>>(&self, key: Key, call: impl FnOnce() -> R) -> Outcome {
        let sender = loop {
            let mut waiting = {
                let mut known = self.known();
                match known.by_key.get(&key) {
                    Some(outcome) => outcome.clone(),
                    None => {
                        let (sender, outcome) = watch::channel(None);
                        known.add(key, outcome);
                        break sender;
                    }
                }
            };
            let ended = waiting
                .wait_for(Option::is_some)
                .await
                .map(|outcome| outcome.clone());
            match ended {
                Ok(Some(outcome)) => return outcome.map(|answered| answered.for_another()),
                Ok(None) => {}
                // The one that called was given up.
                Err(_) => {
                    let mut known = self.known();
                    if known
                        .by_key
                        .get(&key)
                        .is_some_and(|outcome| outcome.same_channel(&waiting))
                    {
                        known.forget(key);
                    }
                }
            }
        };
        let outcome = call().await;
        let is_kept = outcome.as_ref().is_ok_and(|answered| {
            let json = answered.json.as_ref().map_or(0, |json| json.to_string().len());
            answered.text.as_ref().map_or(json, String::len) <= EQUAL_ANSWER_BYTES_MAX
        });
        if !is_kept {
            self.known().forget(key);
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
    use crate::service::TokenUsage;

    fn answered(text: &str) -> Answered {
        Answered {
            text: Some(text.to_owned()),
            json: None,
            model: "m".to_owned(),
            tokens: TokenUsage {
                prompt_tokens: 3,
                ..TokenUsage::default()
            },
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
        let (first, second) = tokio::join!(equal.once(key, call), equal.once(key, call));
        let third = equal.once(key, call).await;
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert_eq!(first, Ok(answered("Hum")));
        for shared in [second, third] {
            let shared = shared.expect("an answer");
            assert!(shared.shared && shared.cost == Some(0.0) && shared.tokens.prompt_tokens == 0);
        }
        for other in [Key::new(BatchId(2), "\"a\""), Key::new(BatchId(1), "\"b\"")] {
            assert!(!equal.once(other, call).await.expect("an answer").shared);
        }
    }

    #[tokio::test]
    async fn a_failure_is_not_kept_and_a_call_that_is_given_up_is_taken_over() {
        let equal = EqualRequests::default();
        let key = Key::new(BatchId(1), "1");
        let failed = equal
            .once(key, || async { Err(JobError::new("schema", "no")) })
            .await;
        assert!(failed.is_err());
        let mut first = Box::pin(equal.once(key, std::future::pending));
        assert!(futures::poll!(&mut first).is_pending());
        let mut second = Box::pin(equal.once(key, || async { Ok(answered("Hum")) }));
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        assert!(!second.await.expect("an answer").shared);
    }

    #[tokio::test]
    async fn few_and_small_answers_are_kept() {
        let equal = EqualRequests::default();
        let large = "x".repeat(EQUAL_ANSWER_BYTES_MAX + 1);
        let key = Key::new(BatchId(1), "large");
        for _ in 0..2 {
            let own = equal.once(key, || async { Ok(answered(&large)) }).await;
            assert!(!own.expect("an answer").shared);
        }
        for n in 0..2 * EQUAL_ANSWERS_MAX {
            let key = Key::new(BatchId(1), &n.to_string());
            equal
                .once(key, || async { Ok(answered("x")) })
                .await
                .expect("an answer");
        }
        assert_eq!(equal.known().by_key.len(), EQUAL_ANSWERS_MAX);
    }
}
