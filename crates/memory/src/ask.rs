//! Answers a question with a model, from the messages that the knowledge base recalls.
//!
//! The model or the rules turn the question into a search query. The query recalls messages. The model answers from as
//! many messages as the token budget holds, and cites them by number. Citations of messages that the model was not
//! shown are left out. Where the model cites nothing, the messages that share the words of the answer are cited. An
//! answer that no message supports does not count as an answer.

pub mod chat;
mod citations;
mod rerank;

use std::sync::LazyLock;

use gristmill_model::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::MemoryError;
use crate::knowledge::{FacetValue, Knowledge};
use crate::query::SearchQuery;
use crate::recall::{RecallOptions, Recalled, RecalledMessage, Relations, recall_query};
use crate::service::{ChatRequest, Service, TOKEN_CHARACTERS, Usage, parse_answer};
use crate::store::KnowledgeStore;
pub use citations::Citation;
use citations::{cited, supporting};
pub use rerank::recall_reranked;

/// Default of [`AskOptions::context_tokens_max`]: it fits the smallest contexts of hosted models.
pub const CONTEXT_TOKENS_DEFAULT: usize = 6_000;

/// Default of [`AskOptions::answer_tokens_max`].
pub const ANSWER_TOKENS_DEFAULT: u32 = 800;

/// Maximum tokens of a search query. A longer query comes from a model that does not find an end.
const QUERY_TOKENS_MAX: u32 = 600;

/// Knowledge takes at most one of this many parts of the budget. The messages take the rest.
const KNOWLEDGE_SHARE: usize = 4;

/// The model's instructions for search queries.
const QUERY_INSTRUCTIONS: &str = "You turn a question about a collection of messages into a search query. Answer with \
    JSON alone. Make one search expression for each thing that is asked. `rewrittenQuery`: the question, understandable \
    on its own. `filters`: what to look for. `entitySearchTerms`: specific people, places, works or things that the \
    question names, or `*` with a type where it asks for all of a type. `actionSearchTerm`: who did what to what, where \
    the question is about that; for what somebody said about something the verb is `say`. `searchTerms`: other words \
    worth looking for, not those that only ask. `timeRange`: only where the question names a time.";

/// The model's instructions for answers.
const ANSWER_INSTRUCTIONS: &str = "You answer a question from numbered messages, and from nothing else. Answer with \
    JSON alone. `answered`: whether the messages answer the question. `answer`: the answer in a few plain sentences, or \
    why there is none. `citations`: the numbers of the messages that the answer rests on.";

static QUERY_SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("query/search_query_schema.json")).unwrap_or_default()
});

static ANSWER_SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "type": "object",
        "properties": {
            "answered": { "type": "boolean" },
            "answer": { "type": "string" },
            "citations": { "type": "array", "items": { "type": "integer" } },
        },
        "required": ["answered", "answer", "citations"],
    })
});

/// The part that turns a question into a search query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QuestionParser {
    /// The model. The rules take over where its answer is unusable.
    #[default]
    Model,
    /// The rules of [`understand`](crate::query::understand).
    Rules,
}

/// Options of [`ask`].
#[derive(Debug, Clone, PartialEq)]
pub struct AskOptions {
    /// Options of recalling messages.
    pub recall: RecallOptions,
    /// The parser of the question.
    pub parser: QuestionParser,
    /// Maximum tokens of the knowledge and messages that the model is shown, by estimate.
    pub context_tokens_max: usize,
    /// Maximum tokens of the answer.
    pub answer_tokens_max: u32,
    /// The time at which the question is asked: `yesterday` counts from it.
    pub asked_at: Option<Timestamp>,
    /// Whether the model ranks the first messages again before it answers.
    pub rerank: bool,
}

impl Default for AskOptions {
    fn default() -> Self {
        AskOptions {
            recall: RecallOptions::default(),
            parser: QuestionParser::Model,
            context_tokens_max: CONTEXT_TOKENS_DEFAULT,
            answer_tokens_max: ANSWER_TOKENS_DEFAULT,
            asked_at: None,
            rerank: false,
        }
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The question.
    pub question: String,
    /// Whether the recalled messages answer the question.
    pub answered: bool,
    /// The answer, or the reason why there is none.
    pub text: String,
    /// The messages that support the answer, in the order of their citations.
    pub citations: Vec<Citation>,
    /// Number of messages that the model was shown.
    pub messages_shown: usize,
    /// Number of messages that were recalled.
    pub messages_recalled: usize,
    /// The search query that recalled them.
    pub query: SearchQuery,
    /// Tokens and calls that the answer took.
    pub usage: Usage,
}

/// The JSON that the model answers with.
#[derive(Debug, Deserialize)]
struct Written {
    #[serde(default = "yes")]
    answered: bool,
    answer: String,
    #[serde(default)]
    citations: Vec<Value>,
}

fn yes() -> bool {
    true
}

/// Answers a question with the model of `service`.
///
/// # Errors
///
/// [`MemoryError::Service`] if the model does not answer, and errors of the store.
pub async fn ask(
    store: &dyn KnowledgeStore,
    service: &Service,
    question: &str,
    relations: &Relations<'_>,
    options: &AskOptions,
) -> Result<Answer, MemoryError> {
    let mut usage = Usage::default();
    let query = match options.parser {
        QuestionParser::Rules => None,
        QuestionParser::Model => search_query(store, service, question, options.asked_at, &mut usage).await?,
    };
    let how = &options.recall;
    let recalled = if options.rerank {
        recall_reranked(store, service, question, query, relations, how, &mut usage).await?
    } else {
        recall_query(store, question, query, relations, how).await?
    };
    let context = Context::new(&recalled, options.context_tokens_max);
    let mut answer = Answer {
        question: question.to_owned(),
        answered: false,
        text: String::new(),
        citations: Vec::new(),
        messages_shown: context.messages,
        messages_recalled: recalled.messages.len(),
        query: recalled.query,
        usage,
    };
    if context.messages == 0 {
        answer.text = "nothing in the knowledge base is about that".to_owned();
        return Ok(answer);
    }
    let text = format!("{}\n\nThe question: {question}", context.text);
    let request = ChatRequest {
        instructions: ANSWER_INSTRUCTIONS,
        text: &text,
        schema_name: "answer",
        schema: &ANSWER_SCHEMA,
        output_tokens_max: Some(options.answer_tokens_max),
    };
    let content = service.chat(&request, &mut answer.usage).await?;
    match parse_answer::<Written>(&content) {
        Ok(written) => {
            answer.answered = written.answered;
            answer.text = written.answer.trim().to_owned();
            let told = written.citations.iter().filter_map(|number| match number {
                Value::String(text) => text.parse().ok(),
                number => number.as_u64(),
            });
            answer.ground(told, &recalled.messages[..context.messages]);
        }
        // A model that ignores the requested form has still answered.
        Err(_) if !content.trim().is_empty() && !content.trim_start().starts_with('{') => {
            answer.answered = true;
            answer.text = content.trim().to_owned();
            answer.ground(std::iter::empty(), &recalled.messages[..context.messages]);
        }
        Err(reason) => {
            return Err(MemoryError::invalid(
                "the model's answer",
                format!("it is not the requested JSON: {reason}; try another model"),
            ));
        }
    }
    Ok(answer)
}

impl Answer {
    /// Sets the citations: the messages whose numbers the model named, or else the messages that share the words of the
    /// answer. An answer without citations does not count as an answer.
    fn ground(&mut self, told: impl Iterator<Item = u64>, shown: &[RecalledMessage]) {
        self.citations = cited(told, &self.text, shown);
        if self.text.is_empty() {
            self.answered = false;
            self.text = "the messages do not answer that".to_owned();
        }
        if self.answered && self.citations.is_empty() {
            self.citations = supporting(&self.text, &self.question, shown);
            if self.citations.is_empty() {
                self.answered = false;
                self.text = format!("no message says so, and the model named none: {}", self.text);
            }
        }
        assert!(
            !self.answered || !self.citations.is_empty(),
            "an answer cites at least one message"
        );
    }
}

/// Asks the model for the search query of a question; `None` if its answer is unusable or an empty query.
///
/// # Errors
///
/// [`MemoryError::Service`], and errors of the store.
pub async fn search_query(
    store: &dyn KnowledgeStore,
    service: &Service,
    question: &str,
    asked_at: Option<Timestamp>,
    usage: &mut Usage,
) -> Result<Option<SearchQuery>, MemoryError> {
    let mut text = String::new();
    if let Some((first, last)) = times(store).await? {
        text = format!("The messages are from {first} to {last}. ");
    }
    if let Some(now) = asked_at {
        text.push_str(&format!("It is {now} now. "));
    }
    text.push_str(&format!("The question: {question}"));
    let request = ChatRequest {
        instructions: QUERY_INSTRUCTIONS,
        text: &text,
        schema_name: "search_query",
        schema: &QUERY_SCHEMA,
        output_tokens_max: Some(QUERY_TOKENS_MAX),
    };
    let query: Option<SearchQuery> = service.chat_json(&request, usage).await?;
    Ok(query.filter(|query| {
        let mut filters = query
            .search_expressions
            .iter()
            .flat_map(|expression| &expression.filters);
        filters.next().is_some()
    }))
}

/// The times of the first and the last message.
async fn times(store: &dyn KnowledgeStore) -> Result<Option<(Timestamp, Timestamp)>, MemoryError> {
    let columns = store.columns().await?;
    let times = (0..columns.message_end()).filter_map(|message| columns.time(message));
    Ok(times.fold(None, |range, at| match range {
        None => Some((at, at)),
        Some((first, last)) => Some((first.min(at), last.max(at))),
    }))
}

/// The recalled messages that a model reads.
struct Context {
    text: String,
    messages: usize,
}

impl Context {
    /// Takes the best messages that fit the budget, and the knowledge beside them.
    fn new(recalled: &Recalled, tokens_max: usize) -> Context {
        let characters_max = tokens_max.saturating_mul(TOKEN_CHARACTERS);
        let mut known = String::new();
        for line in recalled.distinct_knowledge().iter().filter_map(line) {
            if known.len() + line.len() > characters_max / KNOWLEDGE_SHARE {
                break;
            }
            known.push_str(&line);
        }
        assert!(
            known.len() <= characters_max / KNOWLEDGE_SHARE,
            "knowledge stays within its share of the budget"
        );
        let mut text = String::new();
        let mut messages = 0;
        for message in &recalled.messages {
            let shown = shown(messages + 1, message);
            if messages > 0 && known.len() + text.len() + shown.len() > characters_max {
                break;
            }
            // The first message is cut to the budget, so that the model has something to answer from.
            let room = characters_max.saturating_sub(known.len() + text.len());
            text.extend(shown.chars().take(room));
            messages += 1;
        }
        assert!(
            messages <= recalled.messages.len(),
            "the model is shown recalled messages only"
        );
        if !known.is_empty() {
            text = format!("What is known:\n{known}\nThe messages:\n{text}");
        }
        Context { text, messages }
    }
}

/// Formats a message with its number, speaker, time, subject and source.
fn shown(number: usize, recalled: &RecalledMessage) -> String {
    let message = &recalled.message.message;
    let mut head = format!("[{number}]");
    for part in [
        message.speaker.clone(),
        message.moment.map(|moment| moment.at.to_string()),
        message.subject.clone(),
        Some(recalled.message.source.clone()),
    ]
    .into_iter()
    .flatten()
    {
        head.push_str(&format!(" {part};"));
    }
    format!("{}\n{}\n\n", head.trim_end_matches(';'), message.text().trim())
}

/// Formats an entity with its types and facets on one line.
fn line(knowledge: &Knowledge) -> Option<String> {
    let Knowledge::Entity(entity) = knowledge else {
        return None;
    };
    let facets = entity.facets.iter().map(|facet| {
        let value = facet.value.as_ref().map(FacetValue::text).unwrap_or_default();
        format!("; {}: {value}", facet.name)
    });
    let facets: String = facets.collect();
    Some(format!("{} ({}){facets}\n", entity.name, entity.types.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recalled(texts: &[&str]) -> Recalled {
        Recalled {
            messages: citations::tests::recalled(texts),
            ..Recalled::default()
        }
    }

    #[test]
    fn the_schemas_are_schemas() {
        assert_eq!(QUERY_SCHEMA["properties"]["searchExpressions"]["type"], "array");
        assert_eq!(ANSWER_SCHEMA["required"][0], "answered");
    }

    #[test]
    fn shows_the_messages_that_fit_the_budget() {
        let long = "x".repeat(300);
        let recalled = recalled(&["Bees hum.", &long, "Drums."]);
        assert_eq!(Context::new(&recalled, 1_000).messages, 3);
        let some = Context::new(&recalled, 40);
        assert_eq!(some.messages, 1);
        assert!(
            some.text.len() <= 160 && some.text.contains("Bees hum."),
            "{}",
            some.text
        );
        let cut = Context::new(&self::recalled(&[&long]), 20);
        assert_eq!((cut.messages, cut.text.len()), (1, 80));
    }
}
