//! The providers whose wire formats are spoken.

pub mod anthropic;
mod openai;

use serde_json::Value;

pub use crate::request::Provider;
use crate::request::Request;
use crate::service::parameters::{AnswerForm, Parameters};

impl Provider {
    /// The provider's own address.
    pub const fn base_url(self) -> &'static str {
        match self {
            Provider::Openai => "https://api.openai.com/v1",
            Provider::Anthropic => "https://api.anthropic.com/v1",
        }
    }

    /// The beginning of its variables in the environment, as its own packages read them: `OPENAI` for `OPENAI_API_KEY` and
    /// `OPENAI_BASE_URL`.
    pub const fn variables(self) -> &'static str {
        match self {
            Provider::Openai => "OPENAI",
            Provider::Anthropic => "ANTHROPIC",
        }
    }

    /// The path of a live call.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Provider::Openai => "chat/completions",
            Provider::Anthropic => "messages",
        }
    }

    /// The address of a path. Anthropic's own packages want an address without the version, and others one with it; both do.
    pub(crate) fn address(self, base_url: &str, path: &str) -> String {
        let base_url = base_url.trim_end_matches('/');
        match self {
            Provider::Openai => format!("{base_url}/{path}"),
            Provider::Anthropic => format!("{}/v1/{path}", base_url.trim_end_matches("/v1")),
        }
    }

    /// The body of a request that has none of its own, with the parameters that the service takes.
    pub fn body(self, request: &Request, parameters: Parameters) -> Value {
        match self {
            Provider::Openai => openai::body(request, parameters),
            Provider::Anthropic => anthropic::body(request, parameters),
        }
    }
}

/// The instructions of a request, with its schema if the service knows no field for it.
fn instructions_with_schema(
    instructions: Option<String>,
    request: &Request,
    parameters: Parameters,
) -> Option<String> {
    let Some(schema) = request
        .schema
        .as_ref()
        .filter(|_| parameters.form != AnswerForm::Schema)
    else {
        return instructions;
    };
    let words = format!("Answer with JSON alone, of this schema: {schema}");
    Some(match instructions {
        Some(instructions) => format!("{instructions}\n\n{words}"),
        None => words,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::service::parameters::TokensField;

    fn request() -> Request {
        Request {
            model: "m".to_owned(),
            system: Some("Be brief.".to_owned()),
            messages: Some(vec![
                json!({"role": "system", "content": [{"type": "text", "text": "Hum."}]}),
                json!({"role": "user", "content": "Bees?"}),
            ]),
            schema: Some(json!({"type": "object"})),
            max_tokens: Some(9),
            temperature: Some(0.5),
            ..Request::default()
        }
    }

    #[test]
    fn writes_the_wire_formats() {
        let all = Parameters::default();
        assert_eq!(
            Provider::Openai.body(&request(), all),
            json!({
                "model": "m",
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "system", "content": [{"type": "text", "text": "Hum."}]},
                    {"role": "user", "content": "Bees?"},
                ],
                "max_tokens": 9,
                "temperature": 0.5,
                "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}},
            })
        );
        assert_eq!(
            Provider::Anthropic.body(&request(), all),
            json!({
                "model": "m",
                "system": "Be brief.\n\nHum.",
                "messages": [{"role": "user", "content": "Bees?"}],
                "max_tokens": 9,
                "temperature": 0.5,
                "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
            })
        );
    }

    #[test]
    fn leaves_out_refused_parameters() {
        let few = Parameters {
            form: AnswerForm::Text,
            tokens: TokensField::MaxCompletionTokens,
            has_temperature: false,
            has_system_role: false,
        };
        let body = Provider::Openai.body(&request(), few);
        assert_eq!(body["max_completion_tokens"], 9);
        assert_eq!(body.get("temperature"), None);
        assert_eq!(body["messages"].as_array().map(Vec::len), Some(1));
        let text = body["messages"][0]["content"].as_str().expect("a text");
        assert!(
            text.starts_with("Be brief.\n\nHum.\n\nAnswer with JSON") && text.ends_with("\n\nBees?"),
            "{text}"
        );
        let body = Provider::Anthropic.body(&request(), few);
        assert_eq!((body.get("temperature"), body.get("output_config")), (None, None));
        assert_eq!(body["max_tokens"], 9, "this provider needs it");
    }

    #[test]
    fn an_address_may_have_its_version() {
        for base_url in ["http://a/v1", "http://a", "http://a/"] {
            assert_eq!(
                Provider::Anthropic.address(base_url, "messages"),
                "http://a/v1/messages"
            );
        }
        assert_eq!(
            Provider::Openai.address("http://a/v1/", "models"),
            "http://a/v1/models"
        );
    }
}
