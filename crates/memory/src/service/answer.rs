//! The answers of a service: completions, embeddings, and the JSON in a model's words.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Places in an answer at which JSON is looked for. Prose seldom has more braces before it.
const JSON_BEGINNINGS_MAX: usize = 64;

/// An answer that states its cost.
pub(super) trait Priced: DeserializeOwned {
    fn usage(&self) -> TokenUsage;
}

#[derive(Deserialize)]
pub(super) struct Completion {
    pub choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<TokenUsage>,
}

#[derive(Deserialize)]
pub(super) struct Choice {
    pub message: ChoiceMessage,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct ChoiceMessage {
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
    usage: Option<TokenUsage>,
}

#[derive(Deserialize)]
pub(super) struct Embedding {
    #[serde(default)]
    pub index: Option<usize>,
    pub embedding: Vec<f32>,
}

#[derive(Deserialize, Clone, Copy, Default)]
pub(super) struct TokenUsage {
    #[serde(default)]
    pub prompt_tokens: u64,
    #[serde(default)]
    pub completion_tokens: u64,
}

impl Priced for Completion {
    fn usage(&self) -> TokenUsage {
        self.usage.unwrap_or_default()
    }
}

impl Priced for Embeddings {
    fn usage(&self) -> TokenUsage {
        self.usage.unwrap_or_default()
    }
}

/// The words of a model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// The text.
    pub content: String,
    /// Whether the limit of tokens cut it off.
    pub is_cut: bool,
}

impl Completion {
    /// The first choice with words, or the model's reason for giving none.
    pub fn answer(self) -> Result<Answer, String> {
        let mut declined = None;
        let mut is_cut = false;
        for choice in self.choices {
            let reason = choice.finish_reason.as_deref().unwrap_or_default();
            is_cut |= reason == "length" || reason == "max_tokens";
            let content = text(&choice.message.content);
            if !content.trim().is_empty() {
                return Ok(Answer { content, is_cut });
            }
            if let Some(refusal) = choice.message.refusal.filter(|refusal| !refusal.is_empty()) {
                declined = Some(refusal);
            } else if reason == "content_filter" {
                declined = Some("its filter held the answer back".to_owned());
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
        assert!(answer(json!({"message": {"content": ""}, "finish_reason": "content_filter"})).is_err());
    }
}
