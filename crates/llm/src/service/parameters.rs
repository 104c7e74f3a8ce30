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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnswerForm {
    /// `json_schema`, which the newest services know.
    Schema,
    /// `json_object` with a schema, which llama.cpp's Python server knows.
    Object,
    /// No field of the request: only the instructions describe the form.
    Text,
}

/// The field that limits the tokens of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

    /// Takes over what a request was answered without.
    pub fn adopt(&self, used: Parameters) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now = now.fewer(used);
    }

    /// The parameters with which a refused request makes sense again, if there are any. They hold for this request, and for
    /// others only once it is [answered](Learned::adopt): a refusal may be about a value, and not about the parameter.
    pub fn without(&self, used: Parameters, sent: Sent, refusal: &str) -> Option<Parameters> {
        // Another call may have learned it in the meantime.
        let known = used.fewer(self.now());
        match known == used {
            true => used.without(sent, refusal),
            false => Some(known),
        }
    }
}

/// The fields that a request sends. A refusal is about one of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub temperature: bool,
    pub tokens: bool,
    pub form: bool,
    pub system_role: bool,
}

/// Words of a refusal of a parameter. One of its value has others: "must be at most 2".
const NOT_TAKEN: [&str; 12] = [
    "unsupported",
    "not support",
    "no longer support",
    "unknown",
    "unrecognized",
    "unrecognised",
    "extra inputs",
    "extra fields",
    "unexpected",
    "deprecated",
    "not permitted",
    "unavailable",
];

/// Words of a refusal of one way in which the form of an answer is requested, beside [`NOT_TAKEN`].
const NOT_THIS_FORM: [&str; 3] = ["must be", "should be", "invalid parameter"];

/// Words of a refusal of one schema. Others may be taken.
const OF_ONE_SCHEMA: [&str; 3] = ["invalid schema", "in context=", "additionalproperties"];

impl Parameters {
    /// Those that both have.
    pub(super) fn fewer(self, other: Parameters) -> Parameters {
        Parameters {
            form: self.form.max(other.form),
            tokens: self.tokens.max(other.tokens),
            has_temperature: self.has_temperature && other.has_temperature,
            has_system_role: self.has_system_role && other.has_system_role,
        }
    }

    fn without(self, sent: Sent, refusal: &str) -> Option<Parameters> {
        let refusal = refusal.to_lowercase();
        let names = |words: &[&str]| words.iter().any(|word| refusal.contains(word));
        let is_not_taken = names(&NOT_TAKEN);
        let mut next = self;
        if sent.temperature && self.has_temperature && is_not_taken && names(&["temperature"]) {
            next.has_temperature = false;
        } else if sent.tokens
            && self.tokens != TokensField::None
            && is_not_taken
            && names(&["max_tokens", "max_completion_tokens"])
            && !names(&["too large", "at most", "maximum"])
        {
            next.tokens = match self.tokens {
                TokensField::MaxTokens => TokensField::MaxCompletionTokens,
                _ => TokensField::None,
            };
        } else if sent.form
            && self.form != AnswerForm::Text
            && (is_not_taken || names(&NOT_THIS_FORM))
            && !names(&OF_ONE_SCHEMA)
            && names(&[
                "response_format",
                "response format",
                "json_schema",
                "json_object",
                "structured output",
                "output_config",
                "output_format",
                "grammar",
            ])
        {
            next.form = match self.form {
                AnswerForm::Schema => AnswerForm::Object,
                _ => AnswerForm::Text,
            };
        } else if sent.system_role
            && self.has_system_role
            && (is_not_taken || names(&["only", "must be", "should be"]))
            && names(&["system"])
            && names(&["role"])
        {
            next.has_system_role = false;
        }
        (next != self).then_some(next)
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

    const ALL_SENT: Sent = Sent {
        temperature: true,
        tokens: true,
        form: true,
        system_role: true,
    };

    /// Refuses a request, which is answered without the parameter.
    fn learn(learned: &Learned, refusal: &str) -> bool {
        let without = learned.without(learned.now(), ALL_SENT, refusal);
        without.is_some_and(|without| {
            learned.adopt(without);
            true
        })
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
            assert!(learn(&learned, refusal), "{refusal}");
            assert!(
                !body(&learned).to_string().contains(&format!("\"{field}\"")),
                "{}",
                body(&learned)
            );
        }
        assert_eq!(body(&learned)["max_completion_tokens"], 100);
        assert_eq!(
            learned.without(first, ALL_SENT, "no"),
            Some(learned.now()),
            "a call that began before is made again"
        );
        assert!(learn(&learned, "messages[0].role does not support 'system'"));
        assert_eq!(body(&learned)["messages"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn nothing_is_learned_from_the_refusal_of_a_value() {
        for refusal in [
            "the text is too long",
            // The limit is the user's. Without it, the answer could cost more.
            "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
            "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 5 instead.",
            "temperature: Input should be less than or equal to 1",
            "Invalid schema for response_format 'answer': In context=(), 'additionalProperties' is required to be supplied and \
             to be false.",
            "Invalid schema for response_format 'answer': In context=(), 'oneOf' is not permitted.",
        ] {
            assert_eq!(
                Parameters::default().without(ALL_SENT, refusal),
                None,
                "{refusal}"
            );
        }
        let nothing = Sent {
            temperature: false,
            tokens: false,
            form: false,
            system_role: false,
        };
        let refusal = "'temperature' is not supported";
        assert_eq!(Parameters::default().without(nothing, refusal), None);
        let learned = Learned::default();
        let without = learned.without(learned.now(), ALL_SENT, refusal);
        assert!(without.is_some_and(|without| !without.has_temperature));
        assert_eq!(
            learned.now(),
            Parameters::default(),
            "the request was not answered without it"
        );
    }
}
