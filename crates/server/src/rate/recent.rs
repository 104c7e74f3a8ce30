//! Shared answers to questions that make the store read all of its batches. Callers that accept a recent answer share one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::ApiError;
use crate::limits::{AGE_MS_MAX, RECENT_ANSWERS_MAX, RECENT_FOR_TIMES_ITS_COST};

/// The last answers to a few questions.
#[derive(Debug)]
pub struct Recent<Question, Answer>(Mutex<Vec<Arc<Kept<Question, Answer>>>>);

/// The last answer to one question. Callers that ask at the same time wait for one query of the store.
#[derive(Debug)]
struct Kept<Question, Answer> {
    question: Question,
    last: tokio::sync::Mutex<Option<Looked<Answer>>>,
}

/// The result of one query of the store.
#[derive(Debug)]
struct Looked<Answer> {
    answer: Answer,
    at: Instant,
    took: Duration,
}

impl<Question, Answer> Default for Recent<Question, Answer> {
    fn default() -> Self {
        Recent(Mutex::default())
    }
}

impl<Question: PartialEq, Answer: Clone> Recent<Question, Answer> {
    /// Returns an answer that is at most `age_ms_max` old, or at most [`RECENT_FOR_TIMES_ITS_COST`] times the duration
    /// of its query. Without an age, always queries the store.
    pub async fn get<Failure: Into<ApiError>>(
        &self,
        question: Question,
        age_ms_max: Option<u64>,
        look: impl Future<Output = Result<Answer, Failure>>,
    ) -> Result<Answer, ApiError> {
        let Some(age_ms_max) = age_ms_max else {
            return look.await.map_err(Into::into);
        };
        if age_ms_max > AGE_MS_MAX {
            return Err(ApiError::invalid(
                format!("`age_ms_max` is {age_ms_max}"),
                format!("give 0 to {AGE_MS_MAX}"),
            ));
        }
        let age_max = Duration::from_millis(age_ms_max);
        let kept = self.kept(question);
        let mut last = kept.last.lock().await;
        if let Some(looked) = &*last
            && looked.at.elapsed() <= age_max.max(looked.took * RECENT_FOR_TIMES_ITS_COST)
        {
            return Ok(looked.answer.clone());
        }
        let began = Instant::now();
        let answer = look.await.map_err(Into::into)?;
        *last = Some(Looked {
            answer: answer.clone(),
            at: Instant::now(),
            took: began.elapsed(),
        });
        Ok(answer)
    }

    /// The entry of a question, which then counts as the latest. The entry that was unused longest makes room.
    fn kept(&self, question: Question) -> Arc<Kept<Question, Answer>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = match all.iter().position(|kept| kept.question == question) {
            Some(place) => all.remove(place),
            None => {
                if all.len() >= RECENT_ANSWERS_MAX {
                    all.remove(0);
                }
                Arc::new(Kept {
                    question,
                    last: tokio::sync::Mutex::default(),
                })
            }
        };
        assert!(all.len() < RECENT_ANSWERS_MAX, "few questions have answers");
        all.push(kept.clone());
        kept
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A store that takes a while to answer, and the number of its queries.
    #[derive(Default)]
    struct Counting {
        looks: AtomicU32,
        took_ms: u64,
    }

    impl Counting {
        async fn look(&self) -> Result<u32, ApiError> {
            tokio::time::sleep(Duration::from_millis(self.took_ms)).await;
            Ok(self.looks.fetch_add(1, Ordering::Relaxed) + 1)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_shared_while_it_is_recent() {
        let (recent, store) = (Recent::default(), Counting::default());
        let ask = async |age_ms_max| recent.get((), age_ms_max, store.look()).await.unwrap();
        assert_eq!(ask(Some(500)).await, 1);
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(ask(Some(500)).await, 1);
        assert_eq!(ask(Some(499)).await, 2, "another is content with less");
        assert_eq!(ask(None).await, 3, "without an age, the answer is new");
        tokio::time::advance(Duration::from_millis(501)).await;
        assert_eq!(ask(Some(500)).await, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_is_kept_for_longer() {
        let recent = Recent::default();
        let store = Counting {
            took_ms: 100,
            ..Counting::default()
        };
        let ask = || recent.get((), Some(0), store.look());
        let (one, other) = tokio::join!(ask(), ask());
        assert_eq!((one.unwrap(), other.unwrap()), (1, 1), "both wait for one look");
        tokio::time::advance(Duration::from_millis(100) * RECENT_FOR_TIMES_ITS_COST).await;
        assert_eq!(ask().await.unwrap(), 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(ask().await.unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn questions_have_their_own_answers_and_a_limit() {
        let (recent, store) = (Recent::default(), Counting::default());
        let ask = async |question: usize| recent.get(question, Some(1_000), store.look()).await.unwrap();
        assert_eq!((ask(0).await, ask(1).await, ask(0).await), (1, 2, 1));
        for question in 2..=RECENT_ANSWERS_MAX {
            ask(question).await;
        }
        let looks = store.looks.load(Ordering::Relaxed);
        assert_eq!(ask(0).await, 1, "it was asked after question 1");
        assert_eq!(ask(1).await, looks + 1, "question 1 made room");
    }

    #[tokio::test]
    async fn a_failure_is_not_kept_and_an_age_is_bounded() {
        let (recent, store) = (Recent::default(), Counting::default());
        let failed: Result<u32, ApiError> = recent
            .get((), Some(1_000), async { Err(ApiError::NotReady) })
            .await;
        assert!(matches!(failed, Err(ApiError::NotReady)));
        assert_eq!(recent.get((), Some(1_000), store.look()).await.unwrap(), 1);
        let refused = recent.get((), Some(AGE_MS_MAX + 1), store.look()).await;
        assert!(refused.unwrap_err().to_string().contains("age_ms_max"));
    }
}
