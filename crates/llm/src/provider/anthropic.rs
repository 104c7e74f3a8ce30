//! Messages of Anthropic.

use serde::Deserialize;
use serde_json::{Value, json};

use super::instructions_with_schema;
use crate::limits::MAX_TOKENS_DEFAULT;
use crate::request::Request;
use crate::service::answer::{Answer, Priced, Reply, TokenUsage};
use crate::service::parameters::{AnswerForm, Parameters};

/// The version of the interface, which each request names.
pub const VERSION: &str = "2023-06-01";

/// The body of a message.
pub fn body(request: &Request, parameters: Parameters) -> Value {
    let (instructions, messages) = request.parted();
    let mut body = json!({
        "model": request.model,
        "messages": messages,
        "max_tokens": request.max_tokens.unwrap_or(MAX_TOKENS_DEFAULT),
    });
    if let Some(instructions) = instructions_with_schema(instructions, request, parameters) {
        body["system"] = instructions.into();
    }
    if let Some(temperature) = request.temperature.filter(|_| parameters.has_temperature) {
        body["temperature"] = temperature.into();
    }
    if let Some(schema) = request
        .schema
        .as_ref()
        .filter(|_| parameters.form == AnswerForm::Schema)
    {
        body["output_config"] = json!({ "format": { "type": "json_schema", "schema": schema } });
    }
    body
}

/// The answer to a message.
#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    content: Vec<Value>,
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default)]
    usage: Option<MessageUsage>,
    #[serde(default)]
    model: Option<String>,
}

#[derive(Debug, Deserialize, Clone, Copy, Default)]
struct MessageUsage {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
}

impl Priced for Message {
    /// The tokens. This provider does not count the cached ones among those that were sent.
    fn usage(&self) -> Option<TokenUsage> {
        let usage = self.usage?;
        let cached = usage.cache_read_input_tokens.unwrap_or_default();
        let written = usage.cache_creation_input_tokens.unwrap_or_default();
        Some(TokenUsage {
            prompt_tokens: usage.input_tokens.unwrap_or_default() + cached + written,
            completion_tokens: usage.output_tokens.unwrap_or_default(),
            cached_tokens: cached,
        })
    }
}

impl Message {
    /// The reply to a job's request.
    pub fn reply(self) -> Reply {
        let usage = self.usage();
        let texts = self.content.iter().filter(|block| block["type"] == "text");
        let content: String = texts.filter_map(|block| block["text"].as_str()).collect();
        let reason = self.stop_reason.as_deref().unwrap_or_default();
        let answer = match reason {
            "refusal" if content.trim().is_empty() => Err("it gave no reason".to_owned()),
            "refusal" => Err(content),
            _ => Ok(Answer {
                content,
                is_cut: ["max_tokens", "model_context_window_exceeded"].contains(&reason),
            }),
        };
        Reply {
            answer,
            usage,
            model: self.model,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_an_answer() {
        let message = |stop_reason: &str| -> Message {
            serde_json::from_value(json!({
                "type": "message",
                "model": "m-1",
                "content": [{"type": "thinking", "thinking": "?"}, {"type": "text", "text": "Hu"}, {"type": "text", "text": "m"}],
                "stop_reason": stop_reason,
                "usage": {"input_tokens": 3, "output_tokens": 2, "cache_read_input_tokens": 40},
            }))
            .expect("a message")
        };
        let reply = message("end_turn").reply();
        let usage = reply.usage.expect("the tokens are counted");
        assert_eq!(
            (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens),
            (43, 40, 2)
        );
        assert_eq!(reply.model.as_deref(), Some("m-1"));
        assert!(
            reply
                .answer
                .is_ok_and(|answer| answer.content == "Hum" && !answer.is_cut)
        );
        assert!(
            message("max_tokens")
                .reply()
                .answer
                .is_ok_and(|answer| answer.is_cut)
        );
        assert_eq!(message("refusal").reply().answer, Err("Hum".to_owned()));
    }
}
