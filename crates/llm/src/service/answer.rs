//! The answers of a service: completions, embeddings, and the JSON in a model's words.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::EXCERPT_CHARACTERS_MAX;

/// Places in an answer at which JSON is looked for. Prose seldom has more braces before it.
const JSON_BEGINNINGS_MAX: usize = 64;

/// An answer that states its cost.
pub(crate) trait Priced: DeserializeOwned {
    /// The tokens, if the service counts them.
    fn usage(&self) -> Option<TokenUsage>;
}

#[derive(Deserialize)]
pub(crate) struct Completion {
    pub choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<CompletionUsage>,
    #[serde(default)]
    model: Option<String>,
}

#[derive(Deserialize, Clone, Copy, Default)]
struct CompletionUsage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize, Clone, Copy, Default)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
pub(crate) struct Choice {
    pub message: ChoiceMessage,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct ChoiceMessage {
    /// A text, or a list of parts with texts.
    #[serde(default)]
    content: Value,
    #[serde(default)]
    refusal: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Embeddings {
    pub data: Vec<Embedding>,
    #[serde(default)]
    usage: Option<CompletionUsage>,
}

#[derive(Deserialize)]
pub(super) struct Embedding {
    #[serde(default)]
    pub index: Option<usize>,
    pub embedding: Vec<f32>,
}

/// The tokens of one call, as the service counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Tokens that were sent.
    #[serde(rename = "input")]
    pub prompt_tokens: u64,
    /// Tokens that were answered.
    #[serde(rename = "output")]
    pub completion_tokens: u64,
    /// Tokens of `prompt_tokens` that the service knew from an earlier call, mostly at a lower price.
    #[serde(rename = "cached", default)]
    pub cached_tokens: u64,
}

impl From<CompletionUsage> for TokenUsage {
    fn from(usage: CompletionUsage) -> TokenUsage {
        let details = usage.prompt_tokens_details.unwrap_or_default();
        let prompt_tokens = usage.prompt_tokens.unwrap_or_default();
        TokenUsage {
            prompt_tokens,
            completion_tokens: usage.completion_tokens.unwrap_or_default(),
            cached_tokens: details.cached_tokens.unwrap_or_default().min(prompt_tokens),
        }
    }
}

impl Priced for Completion {
    fn usage(&self) -> Option<TokenUsage> {
        self.usage.map(TokenUsage::from)
    }
}

impl Priced for Embeddings {
    fn usage(&self) -> Option<TokenUsage> {
        self.usage.map(TokenUsage::from)
    }
}

/// The reply of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Its words, or its reason for giving none.
    pub answer: Result<Answer, String>,
    /// The tokens that are paid; `None` if the service does not count them.
    pub usage: Option<TokenUsage>,
    /// The name of the model that replied, if the service says it.
    pub model: Option<String>,
}

/// The words of a model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// The text.
    pub content: String,
    /// Whether the limit of tokens cut it off.
    pub is_cut: bool,
}

impl Answer {
    /// Its JSON, around which [other words](parse_answer) may stand. A part of the JSON in an answer that is cut off is no
    /// answer.
    ///
    /// # Errors
    ///
    /// The problem, as text.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, String> {
        if !self.is_cut {
            return parse_answer(&self.content);
        }
        let after = self.content.rsplit_once("</think>").map(|(_, after)| after);
        serde_json::from_str(&self.content)
            .or_else(|error| after.map_or(Err(error), serde_json::from_str))
            .map_err(|error| format!("it is cut off: {error}"))
    }
}

impl Completion {
    /// The reply to a job's request.
    pub fn reply(self) -> Reply {
        Reply {
            usage: self.usage(),
            model: self.model.clone(),
            answer: self.answer(),
        }
    }

    /// The first choice with words, or the model's reason for giving none.
    pub fn answer(self) -> Result<Answer, String> {
        let mut declined = None;
        let mut is_cut = false;
        for choice in self.choices {
            let reason = choice.finish_reason.as_deref().unwrap_or_default();
            is_cut |= reason == "length" || reason == "max_tokens";
            let content = text(&choice.message.content);
            // The words before the filter are no answer to what was asked.
            if reason == "content_filter" {
                return Err(held_back(&content));
            }
            if !content.trim().is_empty() {
                return Ok(Answer { content, is_cut });
            }
            if let Some(refusal) = choice.message.refusal.filter(|refusal| !refusal.is_empty()) {
                declined = Some(refusal);
            }
        }
        match declined {
            Some(reason) => Err(reason),
            None => Ok(Answer {
                content: String::new(),
                is_cut,
            }),
        }
    }
}

/// The beginning of an answer, for an error.
pub(crate) fn excerpt(content: &str) -> String {
    content.chars().take(EXCERPT_CHARACTERS_MAX).collect()
}

fn held_back(content: &str) -> String {
    match excerpt(content).trim() {
        "" => "its filter held the answer back".to_owned(),
        begin => format!("its filter held the rest of the answer back, which begins: {begin}"),
    }
}

fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .map(|part| text(part.get("text").unwrap_or(part)))
            .collect(),
        _ => String::new(),
    }
}

/// Parses the JSON in an answer. Thoughts (`<think>…</think>`), prose and the fences of Markdown around it are passed over.
///
/// # Errors
///
/// The problem, as text.
pub fn parse_answer<T: DeserializeOwned>(content: &str) -> Result<T, String> {
    // A text in the JSON may speak of thoughts.
    if let Ok(parsed) = serde_json::from_str(content) {
        return Ok(parsed);
    }
    let content = content
        .rsplit_once("</think>")
        .map_or(content, |(_, after)| after)
        .trim();
    let whole = match serde_json::from_str(content) {
        Ok(parsed) => return Ok(parsed),
        Err(error) => error,
    };
    let beginnings = content
        .char_indices()
        .filter(|(_, letter)| ['{', '['].contains(letter));
    let mut first = None;
    for (at, _) in beginnings.take(JSON_BEGINNINGS_MAX) {
        let mut values = serde_json::Deserializer::from_str(&content[at..]).into_iter::<T>();
        match values.next() {
            Some(Ok(parsed)) => return Ok(parsed),
            Some(Err(error)) => first = first.or(Some(error)),
            None => {}
        }
    }
    Err(first.unwrap_or(whole).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Deserialize)]
    struct Topics {
        topics: Vec<String>,
    }

    #[test]
    fn finds_the_json_in_an_answer() {
        for content in [
            "{\"topics\": [\"bees\"]}",
            "```json\n{\"topics\": [\"bees\"]}\n```",
            "<think>It is {about} bees: {\"topics\": []}.</think>\n{\"topics\": [\"bees\"]}",
            "{\"note\": \"a </think> in a text\", \"topics\": [\"bees\"]}",
            "Here is the {JSON}, as asked:\n\n```\n{\"topics\": [\"bees\"]}\n```\nAnything else?",
        ] {
            let parsed: Topics = parse_answer(content).unwrap_or_else(|error| panic!("{content}: {error}"));
            assert_eq!(parsed.topics, ["bees"], "{content}");
        }
        for content in [
            "{\"topics\": [\"be",
            "No.",
            "",
            "<think>{\"topics\": [\"bees\"]}</think>",
        ] {
            assert!(parse_answer::<Topics>(content).is_err(), "{content}");
        }
    }

    #[test]
    fn tells_why_an_answer_ends() {
        let answer = |choice: Value| {
            let completion: Completion =
                serde_json::from_value(json!({"choices": [choice]})).expect("a completion");
            completion.answer()
        };
        let cut = answer(json!({"message": {"content": "{\"to"}, "finish_reason": "length"}));
        assert!(cut.is_ok_and(|answer| answer.is_cut));
        let parts = answer(
            json!({"message": {"content": [{"type": "text", "text": "Hum"}]}, "finish_reason": "stop"}),
        );
        assert_eq!(parts.map(|answer| answer.content), Ok("Hum".to_owned()));
        let refused =
            answer(json!({"message": {"content": null, "refusal": "I cannot."}, "finish_reason": "stop"}));
        assert_eq!(refused, Err("I cannot.".to_owned()));
        for content in ["", "How to"] {
            let filtered =
                answer(json!({"message": {"content": content}, "finish_reason": "content_filter"}));
            assert!(
                filtered.is_err_and(|reason| reason.contains("its filter held") && reason.ends_with(content))
            );
        }
    }
}
