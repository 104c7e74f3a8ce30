//! One request to a model: the payload of a job of the kind `llm`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::limits::{MEDIUM_BYTES, MODEL_BYTES_MAX, TOKEN_CHARACTERS};
use crate::schema::Schema;

/// A provider, by its wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// OpenAI, and the many servers that are compatible with its chat completions.
    #[default]
    Openai,
    /// Anthropic.
    Anthropic,
}

impl Provider {
    /// All providers.
    pub const ALL: [Provider; 2] = [Provider::Openai, Provider::Anthropic];
}

impl fmt::Display for Provider {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Provider::Openai => "openai",
            Provider::Anthropic => "anthropic",
        })
    }
}

impl FromStr for Provider {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Provider::ALL
            .into_iter()
            .find(|provider| provider.to_string() == text);
        known.ok_or_else(|| "write openai, for OpenAI and compatible servers, or anthropic".to_owned())
    }
}

/// One request to a model. Either `prompt`, `messages` or `body` says what is asked.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The provider whose wire format the service speaks.
    #[serde(default)]
    pub provider: Provider,
    /// The model's name.
    #[serde(default)]
    pub model: String,
    /// The instructions, before the messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The text of the user: short for one message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The messages, each with `role` and `content`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<Value>>,
    /// The whole request in the provider's own form. It is sent as it is, with the model if it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Map<String, Value>>,
    /// The JSON schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Maximum tokens of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// The temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Tells requests apart that are equal otherwise, so that each gets an answer of its own. It is not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<u64>,
}

/// The reason why a request cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRequest(String);

impl Request {
    /// Checks that the request can be sent.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`] with the field and the remedy.
    pub fn check(&self) -> Result<(), InvalidRequest> {
        let refused = |reason: &str| Err(InvalidRequest(reason.to_owned()));
        let asks = [
            self.prompt.is_some(),
            self.messages.is_some(),
            self.body.is_some(),
        ];
        match asks.into_iter().filter(|asks| *asks).count() {
            0 => return refused("the request asks nothing: give it a `prompt`, `messages` or a `body`"),
            1 => {}
            _ => return refused("give the request one of `prompt`, `messages` and `body`"),
        }
        let names_model = self.body.as_ref().is_some_and(|body| body.contains_key("model"));
        if self.model.trim().is_empty() && !names_model {
            return refused("the request names no model: give it a `model`");
        }
        if self.asked_model().len() > MODEL_BYTES_MAX {
            return Err(InvalidRequest(format!(
                "`model` has more than {MODEL_BYTES_MAX} bytes: it is no name"
            )));
        }
        if let Some(body) = &self.body {
            if self.system.is_some() || self.max_tokens.is_some() || self.temperature.is_some() {
                return refused(
                    "a `body` is sent as it is: put `system`, `max_tokens` and `temperature` into it, in the provider's form",
                );
            }
            if body
                .get("stream")
                .is_some_and(|stream| *stream == Value::Bool(true))
            {
                return refused("the `body` asks for a stream, and a job has one value: leave `stream` out");
            }
        }
        if let Some(body) = &self.body {
            let is_list = |name: &str| {
                body.get(name)
                    .and_then(Value::as_array)
                    .is_some_and(|list| !list.is_empty())
            };
            if is_list("tools") || is_list("functions") {
                return refused(
                    "the `body` has tools, which nobody runs here: leave them out, or call the model in a job of your own",
                );
            }
            if body.get("n").and_then(Value::as_f64).is_some_and(|n| n > 1.0) {
                return refused(
                    "the `body` asks for several answers, and a job has one: leave `n` out, and make a request for each, with \
                     a `sample` of its own",
                );
            }
        }
        if self.messages.as_ref().is_some_and(Vec::is_empty) {
            return refused("`messages` is empty: give it one message at least");
        }
        for (index, message) in self.messages.iter().flatten().enumerate() {
            if !message["role"].is_string() || message.get("content").is_none() {
                return Err(InvalidRequest(format!(
                    "messages[{index}] is no message: each is an object with `role` and `content`"
                )));
            }
        }
        if self.max_tokens == Some(0) {
            return refused("`max_tokens` is 0: an answer has one token at least");
        }
        if let Some(schema) = &self.schema {
            Schema::new(schema).map_err(|reason| InvalidRequest(format!("`schema`: {reason}")))?;
        }
        Ok(())
    }

    /// The name of the model that is asked.
    pub fn asked_model(&self) -> &str {
        let of_body = self.body.as_ref().and_then(|body| body.get("model")?.as_str());
        of_body.unwrap_or(&self.model)
    }

    /// An estimate of the tokens that are sent.
    pub(crate) fn prompt_tokens(&self) -> u64 {
        let texts = [&self.system, &self.prompt];
        let mut bytes: usize = texts.into_iter().flatten().map(String::len).sum();
        bytes += self.messages.iter().flatten().map(text_bytes).sum::<usize>();
        bytes += self
            .body
            .iter()
            .flat_map(Map::values)
            .map(text_bytes)
            .sum::<usize>();
        (bytes / TOKEN_CHARACTERS + 1) as u64
    }

    /// The instructions, with those that stand among the messages, and the messages without them.
    pub(crate) fn parted(&self) -> (Option<String>, Vec<Value>) {
        let mut instructions: Vec<String> = self.system.iter().cloned().collect();
        let mut messages = Vec::new();
        for message in self.messages.iter().flatten() {
            match (message["role"].as_str(), text_of(&message["content"])) {
                (Some("system" | "developer"), Some(text)) => instructions.push(text),
                _ => messages.push(message.clone()),
            }
        }
        messages.extend(self.prompt_message());
        let instructions = (!instructions.is_empty()).then(|| instructions.join("\n\n"));
        (instructions, messages)
    }

    /// The messages as they are, without the instructions of `system`.
    pub(crate) fn all_messages(&self) -> Vec<Value> {
        let messages = self.messages.iter().flatten().cloned();
        messages.chain(self.prompt_message()).collect()
    }

    fn prompt_message(&self) -> Option<Value> {
        let prompt = self.prompt.as_ref()?;
        Some(json!({ "role": "user", "content": prompt }))
    }

    /// Takes over what `defaults` says and this request does not.
    pub fn or(self, defaults: &Request, own: &BTreeSet<String>) -> Request {
        let is_body = self.body.is_some();
        Request {
            provider: match own.contains("provider") {
                true => self.provider,
                false => defaults.provider,
            },
            model: match own.contains("model") {
                true => self.model,
                false => defaults.model.clone(),
            },
            system: self
                .system
                .or_else(|| defaults.system.clone().filter(|_| !is_body)),
            schema: self.schema.or_else(|| defaults.schema.clone()),
            max_tokens: self.max_tokens.or(defaults.max_tokens.filter(|_| !is_body)),
            temperature: self.temperature.or(defaults.temperature.filter(|_| !is_body)),
            ..self
        }
    }
}

/// The text of a message, if it has nothing else.
fn text_of(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts: Option<Vec<&str>> = parts
                .iter()
                .map(|part| part["text"].as_str().filter(|_| part["type"] == "text"))
                .collect();
            Some(texts?.join("\n\n"))
        }
        _ => None,
    }
}

/// The bytes of the texts in a value. A picture or a sound counts as a text of some size, and not by its base64.
fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) if text.starts_with("data:") => MEDIUM_BYTES,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| match name.as_str() {
                "data" if value.is_string() => MEDIUM_BYTES,
                _ => text_bytes(value),
            })
            .sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_picture_is_not_estimated_by_its_base64() {
        let picture = "A".repeat(1 << 20);
        let parts = [
            json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{picture}")}}),
            json!({"type": "image", "source": {"type": "base64", "data": picture}}),
        ];
        for part in parts {
            let request = Request {
                messages: Some(vec![json!({"role": "user", "content": [part]})]),
                ..Request::default()
            };
            let tokens = request.prompt_tokens();
            assert!((1_000..2_000).contains(&tokens), "{tokens}");
        }
    }

    #[test]
    fn a_request_that_cannot_be_sent_says_why() {
        for (text, reason) in [
            (r#"{"model": "m"}"#, "asks nothing"),
            (r#"{"prompt": "a"}"#, "names no model"),
            (r#"{"model": "m", "prompt": "a", "messages": []}"#, "one of"),
            (r#"{"model": "m", "messages": []}"#, "is empty"),
            (r#"{"model": "m", "messages": [{"role": "user"}]}"#, "messages[0]"),
            (r#"{"model": "m", "body": {}, "system": "a"}"#, "as it is"),
            (r#"{"model": "m", "body": {"stream": true}}"#, "stream"),
            (r#"{"model": "m", "body": {"n": 2}}"#, "several answers"),
            (r#"{"model": "m", "body": {"tools": [{}]}}"#, "tools"),
            (r#"{"model": "m", "prompt": "a", "max_tokens": 0}"#, "max_tokens"),
            (r#"{"model": "m", "prompt": "a", "schema": 3}"#, "`schema`"),
        ] {
            let error = request(text).check().expect_err(text);
            assert!(error.to_string().contains(reason), "{text}: {error}");
        }
        for text in [
            r#"{"model": "m", "prompt": "a"}"#,
            r#"{"provider": "anthropic", "model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}"#,
            r#"{"body": {"model": "m", "messages": []}, "schema": {"type": "object"}}"#,
        ] {
            assert_eq!(request(text).check(), Ok(()), "{text}");
        }
        assert!(serde_json::from_str::<Request>(r#"{"modle": "m"}"#).is_err());
    }
}
