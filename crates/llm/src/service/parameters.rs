//! The parameters of a request that not all services and models take. One that is refused is left out from then on.

use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

/// A request for a chat completion.
#[derive(Debug, Clone, Copy)]
pub struct ChatRequest<'a> {
    /// The model's instructions.
    pub instructions: &'a str,
    /// The text to which the instructions apply.
    pub text: &'a str,
    /// The schema's name.
    pub schema_name: &'a str,
    /// The schema of the answer.
    pub schema: &'a Value,
    /// Maximum tokens of the answer; the service's own limit if `None`.
    pub output_tokens_max: Option<u32>,
}

/// The way in which the form of an answer is requested. Not all services know the strictest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerForm {
    /// `json_schema`, which the newest services know.
    Schema,
    /// `json_object` with a schema, which llama.cpp's Python server knows.
    Object,
    /// No field of the request: only the instructions describe the form.
    Text,
}

/// The field that limits the tokens of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokensField {
    /// The older name, which most services know.
    MaxTokens,
    /// The name for models that think before they answer.
    MaxCompletionTokens,
    /// No field: the service's own limit holds.
    None,
}

/// The parameters that a service takes, as far as it has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// The way in which the form of an answer is requested.
    pub form: AnswerForm,
    /// The field that limits the tokens of an answer.
    pub tokens: TokensField,
    /// Whether the field `temperature` is known.
    pub has_temperature: bool,
    /// Whether messages may have the role `system`.
    pub has_system_role: bool,
}

impl Default for Parameters {
    /// All of them, in the form that most services know.
    fn default() -> Self {
        Parameters {
            form: AnswerForm::Schema,
            tokens: TokensField::MaxTokens,
            has_temperature: true,
            has_system_role: true,
        }
    }
}

/// Most changes of the parameters that refusals can cause.
pub(super) const CHANGES_MAX: usize = 8;

/// The parameters that all calls of a service share.
#[derive(Debug, Default)]
pub(super) struct Learned(Mutex<Parameters>);

impl Learned {
    /// The parameters for the next request.
    pub fn now(&self) -> Parameters {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns from a refusal of a request with these parameters. Returns whether the request makes sense again, with others.
    pub fn learn(&self, used: Parameters, refusal: &str) -> bool {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *now != used {
            // Another call has learned it in the meantime.
            return true;
        }
        let refusal = refusal.to_lowercase();
        let names = |words: &[&str]| words.iter().any(|word| refusal.contains(word));
        let mut next = used;
        if used.has_temperature && names(&["temperature"]) {
            next.has_temperature = false;
        } else if used.tokens != TokensField::None
            && names(&["max_tokens", "max_completion_tokens"])
            && !names(&["too large", "at most", "maximum"])
        {
            next.tokens = match used.tokens {
                TokensField::MaxTokens => TokensField::MaxCompletionTokens,
                _ => TokensField::None,
            };
        } else if used.form != AnswerForm::Text
            && names(&[
                "response_format",
                "json_schema",
                "json_object",
                "structured output",
                "output_config",
                "output_format",
                "grammar",
            ])
        {
            next.form = match used.form {
                AnswerForm::Schema => AnswerForm::Object,
                _ => AnswerForm::Text,
            };
        } else if used.has_system_role && names(&["system"]) && names(&["role"]) {
            next.has_system_role = false;
        }
        let is_changed = next != used;
        *now = next;
        is_changed
    }
}

impl Parameters {
    /// Writes a request with these parameters.
    pub fn body(self, model: &str, request: &ChatRequest<'_>) -> Value {
        let instructions = match self.form {
            AnswerForm::Schema => request.instructions.to_owned(),
            AnswerForm::Object | AnswerForm::Text => {
                format!(
                    "{}\n\nThe JSON's schema: {}",
                    request.instructions, request.schema
                )
            }
        };
        let messages = match self.has_system_role {
            true => json!([
                { "role": "system", "content": instructions },
                { "role": "user", "content": request.text },
            ]),
            false => json!([{ "role": "user", "content": format!("{instructions}\n\n{}", request.text) }]),
        };
        let mut body = json!({ "model": model, "messages": messages });
        if self.has_temperature {
            body["temperature"] = 0.into();
        }
        match self.form {
            AnswerForm::Schema => {
                body["response_format"] = json!({
                    "type": "json_schema",
                    "json_schema": { "name": request.schema_name, "schema": request.schema },
                });
            }
            AnswerForm::Object => {
                body["response_format"] = json!({ "type": "json_object", "schema": request.schema });
            }
            AnswerForm::Text => {}
        }
        match (request.output_tokens_max, self.tokens) {
            (Some(tokens), TokensField::MaxTokens) => body["max_tokens"] = tokens.into(),
            (Some(tokens), TokensField::MaxCompletionTokens) => body["max_completion_tokens"] = tokens.into(),
            _ => {}
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(learned: &Learned) -> Value {
        let request = ChatRequest {
            instructions: "Extract.",
            text: "Bees hum.",
            schema_name: "x",
            schema: &json!({}),
            output_tokens_max: Some(100),
        };
        learned.now().body("m", &request)
    }

    #[test]
    fn a_refused_parameter_is_dropped_and_stays_so() {
        let learned = Learned::default();
        let first = learned.now();
        assert_eq!(
            (&body(&learned)["temperature"], &body(&learned)["max_tokens"]),
            (&json!(0), &json!(100))
        );
        for (refusal, field) in [
            (
                "Unsupported value: 'temperature' does not support 0 with this model.",
                "temperature",
            ),
            (
                "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
                "max_tokens",
            ),
            (
                "Invalid parameter: 'response_format' of type 'json_schema'",
                "json_schema",
            ),
        ] {
            assert!(learned.learn(learned.now(), refusal), "{refusal}");
            assert!(
                !body(&learned).to_string().contains(&format!("\"{field}\"")),
                "{}",
                body(&learned)
            );
        }
        assert_eq!(body(&learned)["max_completion_tokens"], 100);
        assert!(
            learned.learn(first, "temperature"),
            "a call that began before is made again"
        );
        assert!(learned.learn(learned.now(), "messages[0].role does not support 'system'"));
        assert_eq!(body(&learned)["messages"].as_array().map(Vec::len), Some(1));
        // The limit is the user's. Without it, the answer could cost more.
        let too_many = "max_tokens is too large: 100000. This model supports at most 16384 completion tokens";
        for refusal in ["the text is too long", too_many] {
            assert!(
                !learned.learn(learned.now(), refusal),
                "nothing is learned from it"
            );
        }
    }
}
