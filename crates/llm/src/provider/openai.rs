//! Chat completions of OpenAI and compatible servers.

use serde_json::{Value, json};

use super::instructions_with_schema;
use crate::request::Request;
use crate::service::parameters::{AnswerForm, Parameters, TokensField};

/// The body of a chat completion.
pub fn body(request: &Request, parameters: Parameters) -> Value {
    let (instructions, mut messages) = match parameters.has_system_role {
        true => (request.system.clone(), request.all_messages()),
        false => request.parted(),
    };
    if let Some(instructions) = instructions_with_schema(instructions, request, parameters) {
        let first = messages.first_mut().map(|message| &mut message["content"]);
        match first {
            Some(Value::String(text)) if !parameters.has_system_role => {
                *text = format!("{instructions}\n\n{text}");
            }
            _ => {
                let role = if parameters.has_system_role {
                    "system"
                } else {
                    "user"
                };
                messages.insert(0, json!({ "role": role, "content": instructions }));
            }
        }
    }
    let mut body = json!({ "model": request.model, "messages": messages });
    if let Some(temperature) = request.temperature.filter(|_| parameters.has_temperature) {
        body["temperature"] = temperature.into();
    }
    match (request.max_tokens, parameters.tokens) {
        (Some(tokens), TokensField::MaxTokens) => body["max_tokens"] = tokens.into(),
        (Some(tokens), TokensField::MaxCompletionTokens) => body["max_completion_tokens"] = tokens.into(),
        _ => {}
    }
    match (&request.schema, parameters.form) {
        (Some(schema), AnswerForm::Schema) => {
            let named = json!({ "name": "answer", "schema": schema });
            body["response_format"] = json!({ "type": "json_schema", "json_schema": named });
        }
        (Some(schema), AnswerForm::Object) => {
            body["response_format"] = json!({ "type": "json_object", "schema": schema });
        }
        _ => {}
    }
    body
}
