//! Short texts, such as the lines of a chat, that one call reads together. Each keeps its own knowledge.
//!
//! The extraction of each text waits a moment for others. The first of them to wake makes the call for all, and the
//! others get their parts of its answer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::knowledge::Extraction;
use crate::service::ServiceError;
use crate::service::limiter::{CALLING, Calling};

/// The time for which an extraction waits for others: little beside a call of a model.
pub(super) const GATHERED_FOR: Duration = Duration::from_millis(20);

/// Maximum bytes of a text that is read together with others. Longer ones are worth a call of their own.
const SHORT_BYTES_MAX: usize = 1_000;

/// Maximum bytes of the texts of one call, so that the answer to all of them stays within the limits of most models.
const TOGETHER_BYTES_MAX: usize = 4_000;

/// What the model is told beside the instructions for one text.
pub(super) const INSTRUCTIONS: &str = "The user sends several parts that follow one another, as a JSON list with a \
    number `n` and a `text` each. Answer with one object for each part in the list `texts`, with its number `n` and with \
    the knowledge of that part alone.";

/// Whether a text is read together with others.
pub(super) fn is_short(text: &str) -> bool {
    text.len() <= SHORT_BYTES_MAX
}

/// A text's part of an answer.
#[derive(Debug)]
pub(super) enum Part {
    /// Its knowledge.
    Found(Extraction),
    /// The answer leaves it out, so it is read alone.
    Alone,
    /// The service gives no answer.
    Failed(ServiceError),
}

/// A text that waits for a call.
#[derive(Debug)]
pub(super) struct Waiting {
    number: u64,
    pub text: String,
    called: Option<Arc<Calling>>,
    pub answer: oneshot::Sender<Part>,
}

/// The texts that wait.
#[derive(Debug, Default)]
pub(super) struct Together(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    last: u64,
    waiting: VecDeque<Waiting>,
}

impl Together {
    /// Adds a text. Returns its number, and the end at which its part arrives.
    pub fn add(&self, text: &str) -> (u64, oneshot::Receiver<Part>) {
        let (answer, arrives) = oneshot::channel();
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queue.last += 1;
        let number = queue.last;
        queue.waiting.push_back(Waiting {
            number,
            text: text.to_owned(),
            called: CALLING.try_with(Arc::clone).ok(),
            answer,
        });
        (number, arrives)
    }

    /// Takes the text with this number and those that wait longest, at most `texts_max`; `None` if another call has
    /// taken it. A call of this task counts as a call for all of them.
    pub fn take(&self, number: u64, texts_max: usize) -> Option<Vec<Waiting>> {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = queue
            .waiting
            .iter()
            .position(|waiting| waiting.number == number)?;
        let own = queue.waiting.remove(at)?;
        let mut bytes = own.text.len();
        let mut taken = vec![own];
        while taken.len() < texts_max
            && let Some(next) = queue.waiting.front()
            && bytes + next.text.len() <= TOGETHER_BYTES_MAX
            && let Some(next) = queue.waiting.pop_front()
        {
            // An extraction that was given up takes no answer.
            if next.answer.is_closed() {
                continue;
            }
            bytes += next.text.len();
            taken.push(next);
        }
        taken.sort_by_key(|waiting| waiting.number);
        let others = taken.iter().filter(|waiting| waiting.number != number);
        let others: Vec<Arc<Calling>> = others.filter_map(|waiting| waiting.called.clone()).collect();
        // Outside of a job, the flag does not exist.
        let _ = CALLING.try_with(|called| called.counts_for(others));
        Some(taken)
    }
}

/// Writes texts as the list that the model is sent.
pub(super) fn list(texts: &[Waiting]) -> String {
    let parts = (1..)
        .zip(texts)
        .map(|(n, waiting)| json!({ "n": n, "text": waiting.text }));
    Value::Array(parts.collect()).to_string()
}

/// The schema of the answer for several texts, from the schema for one.
pub(super) fn schema(one: &Value) -> Value {
    let mut part = one.clone();
    let definitions = part.as_object_mut().and_then(|part| part.remove("$defs"));
    part["properties"]["n"] = json!({ "type": "integer" });
    if let Some(required) = part["required"].as_array_mut() {
        required.insert(0, "n".into());
    }
    json!({
        "type": "object",
        "properties": { "texts": { "type": "array", "items": part } },
        "required": ["texts"],
        "$defs": definitions,
    })
}

/// The answer for several texts.
#[derive(Debug, Deserialize)]
pub(super) struct Parts {
    texts: Vec<Numbered>,
}

#[derive(Debug, Deserialize)]
struct Numbered {
    n: Value,
    #[serde(flatten)]
    extraction: Extraction,
}

impl Parts {
    /// The parts in the order of the texts; `None` for a text that the answer leaves out.
    pub fn in_order(self, count: usize) -> Vec<Option<Extraction>> {
        let mut parts: Vec<Option<Extraction>> = (0..count).map(|_| None).collect();
        for numbered in self.texts {
            // Some models write numbers as texts.
            let n = numbered
                .n
                .as_u64()
                .or_else(|| numbered.n.as_str()?.trim().parse().ok());
            let index = n.and_then(|n| usize::try_from(n).ok()?.checked_sub(1));
            if let Some(part) = index.and_then(|index| parts.get_mut(index))
                && part.is_none()
            {
                *part = Some(numbered.extraction);
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_taken_once_and_with_those_that_wait() {
        let together = Together::default();
        let (numbers, arriving): (Vec<u64>, Vec<_>) =
            (0..5).map(|n| together.add(&format!("text {n}"))).unzip();
        let mut arriving = arriving;
        // The third extraction was given up.
        drop(arriving.remove(2));
        let taken = together.take(numbers[3], 3).expect("it waits");
        let texts: Vec<&str> = taken.iter().map(|waiting| waiting.text.as_str()).collect();
        assert_eq!(texts, ["text 0", "text 1", "text 3"]);
        assert!(together.take(numbers[0], 3).is_none(), "another call reads it");
        let rest = together.take(numbers[4], 3).expect("it waits");
        assert_eq!(rest.len(), 1);
        assert_eq!(list(&rest), "[{\"n\":1,\"text\":\"text 4\"}]");
    }

    #[test]
    fn parts_belong_to_their_texts() {
        let parts: Parts = serde_json::from_str(
            "{\"texts\": [{\"n\": \"2\", \"topics\": [\"drums\"]}, {\"n\": 1, \"topics\": [\"bees\"]}, {\"n\": 9}, {\"n\": 1}]}",
        )
        .expect("parts");
        let topics: Vec<Option<Vec<String>>> = parts
            .in_order(3)
            .into_iter()
            .map(|part| Some(part?.topics))
            .collect();
        assert_eq!(
            topics,
            [
                Some(vec!["bees".to_owned()]),
                Some(vec!["drums".to_owned()]),
                None
            ]
        );
    }
}
