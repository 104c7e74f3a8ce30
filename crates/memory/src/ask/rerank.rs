//! Lets a model rank the first recalled messages again, in one call.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::ask::shown;
use crate::error::MemoryError;
use crate::limits::{RERANKED_CHARACTERS_MAX, RERANKED_MESSAGES, RERANKED_TOKENS_MAX};
use crate::query::SearchQuery;
use crate::recall::{RecallOptions, Recalled, RecalledMessage, Relations, put_first, recall_query};
use crate::service::{ChatRequest, Service, Usage};
use crate::store::KnowledgeStore;

/// The model's instructions.
const INSTRUCTIONS: &str = "You are shown numbered messages and a question. Tell the numbers of the messages that answer the question \
    or help to answer it, best first. Leave out the others. Answer with JSON alone: `order`, a list of numbers.";

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "type": "object",
        "properties": { "order": { "type": "array", "items": { "type": "integer" } } },
        "required": ["order"],
    })
});

/// The JSON that the model answers with.
#[derive(Deserialize)]
struct Written {
    order: Vec<Value>,
}

/// Recalls messages as [`recall_query`] does, and moves the messages that the model of `service` names to the front.
///
/// # Errors
///
/// [`MemoryError::Service`] if the model does not answer, and errors of the store.
pub async fn recall_reranked(
    store: &dyn KnowledgeStore,
    service: &Service,
    question: &str,
    query: Option<SearchQuery>,
    relations: &Relations<'_>,
    options: &RecallOptions,
    usage: &mut Usage,
) -> Result<Recalled, MemoryError> {
    let widened = RecallOptions {
        messages_max: options.messages_max.map(|max| max.max(RERANKED_MESSAGES)),
        ..options.clone()
    };
    let mut recalled = recall_query(store, question, query, relations, &widened).await?;
    rerank(service, question, &mut recalled.messages, usage).await?;
    recalled
        .messages
        .truncate(options.messages_max.unwrap_or(usize::MAX));
    Ok(recalled)
}

/// Moves the messages that the model of `service` names to the front. The scores keep their places, so that they
/// descend. An unusable answer leaves the order unchanged.
async fn rerank(
    service: &Service,
    question: &str,
    messages: &mut Vec<RecalledMessage>,
    usage: &mut Usage,
) -> Result<(), MemoryError> {
    let count = messages.len().min(RERANKED_MESSAGES);
    if count < 2 {
        return Ok(());
    }
    let mut text = String::new();
    for (number, message) in (1..=count).zip(messages.iter()) {
        let shown = shown(number, message);
        text.extend(shown.trim_end().chars().take(RERANKED_CHARACTERS_MAX));
        text.push_str("\n\n");
    }
    text.push_str(&format!("The question: {question}"));
    let request = ChatRequest {
        instructions: INSTRUCTIONS,
        text: &text,
        schema_name: "order",
        schema: &SCHEMA,
        output_tokens_max: Some(RERANKED_TOKENS_MAX),
    };
    if let Some(written) = service.chat_json::<Written>(&request, usage).await? {
        put_first(
            messages,
            places(written.order.iter().filter_map(Value::as_u64), count),
            "model",
        );
    }
    Ok(())
}

/// The places of the messages with these numbers. Only the first `count` messages have numbers.
fn places(numbers: impl Iterator<Item = u64>, count: usize) -> impl Iterator<Item = usize> {
    let places = numbers.filter_map(|number| usize::try_from(number).ok()?.checked_sub(1));
    places.filter(move |place| *place < count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Message, MessageOrdinal};
    use crate::store::StoredMessage;

    #[test]
    fn named_messages_come_first_with_descending_scores() {
        let messages = (0..4).map(|number| {
            let stored = StoredMessage {
                ordinal: MessageOrdinal(number),
                source: "notes".to_owned(),
                position: number,
                message: Message::new(number.to_string()),
            };
            RecalledMessage::new(f64::from(10 - number), stored)
        });
        let mut messages: Vec<RecalledMessage> = messages.collect();
        // 4 is beyond the three shown messages, and 0 is no number.
        put_first(
            &mut messages,
            places([3, 4, 3, 0, 2, u64::MAX].into_iter(), 3),
            "model",
        );
        let order: Vec<u32> = messages.iter().map(|message| message.message.position).collect();
        assert_eq!(order, [2, 1, 0, 3]);
        let scores: Vec<f64> = messages.iter().map(|message| message.score).collect();
        assert_eq!(scores, [10.0, 9.0, 8.0, 7.0]);
    }
}
