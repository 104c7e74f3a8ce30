//! A JSON document with a list of messages or of conversations: the answers of APIs, and the exports of assistants.

use serde_json::Value;

use crate::error::MemoryError;
use crate::message::Message;
use crate::source::json_message::{self, ConversationMessages};
use crate::source::{Item, ReadOptions};

/// The fields of an object that may hold the list.
const LIST_FIELDS: [&str; 8] = [
    "messages",
    "conversations",
    "value",
    "data",
    "items",
    "results",
    "MessageList",
    "chat_messages",
];

/// Whether the first bytes of a JSON text may be a list of messages: an array, or a field with one, and a field with a text.
pub fn may_be_list(beginning: &str) -> bool {
    let has = |name: &str| beginning.contains(&format!("\"{name}\""));
    let is_list = beginning.trim_start().starts_with('[') || LIST_FIELDS.iter().any(|field| has(field));
    is_list
        && ["text", "content", "body", "message", "mapping"]
            .iter()
            .any(|field| has(field))
        && !has("semanticRefs")
}

/// Reads the messages of a list, or of an object that has one. A message that cannot be read is one failure.
///
/// # Errors
///
/// [`MemoryError::Invalid`] if the text is not JSON, or has no list of objects.
pub fn read(name: &str, text: &str, options: &ReadOptions) -> Result<Vec<Item>, MemoryError> {
    let document: Value = serde_json::from_str(text).map_err(|error| {
        MemoryError::invalid(
            format!("{name}, line {}", error.line().max(1)),
            format!("it is not JSON: {error}; for a JSON object on each line, use --format jsonl"),
        )
    })?;
    if document["semanticRefs"].is_array() {
        return Err(MemoryError::invalid(
            name,
            "it is an exported knowledge base; import it with `gristmill memory import`",
        ));
    }
    let list = match &document {
        Value::Array(list) => Some(list),
        Value::Object(fields) => LIST_FIELDS
            .iter()
            .find_map(|field| fields.get(*field)?.as_array()),
        _ => None,
    };
    let Some(list) = list.filter(|list| list.iter().any(Value::is_object)) else {
        return Err(MemoryError::invalid(
            name,
            "its JSON has no list of messages, and is none of the exports that are read; write one message such as \
             {\"text\": \"…\", \"speaker\": \"…\"} on each line, and ingest that as jsonl",
        ));
    };
    let mut messages = Vec::with_capacity(list.len());
    for (number, item) in (1..).zip(list) {
        let mut add = |message: &Value| {
            let place = format!("message {number}");
            messages.push(match json_message::message(message, options) {
                Ok(message) => Ok(Message {
                    place: Some(place),
                    ..message
                }),
                Err(reason) => Err(MemoryError::unread(name, place, reason)),
            });
        };
        if let Some(tree) = item["mapping"].as_object() {
            in_order(item, tree).iter().for_each(&mut add);
        } else if let Some(conversation) = ConversationMessages::of(item) {
            conversation.for_each(|message| add(&message));
        } else {
            add(item);
        }
    }
    Ok(messages)
}

/// The messages of a conversation with ChatGPT, which is a tree: each branch that was not taken is left out.
fn in_order(conversation: &Value, tree: &serde_json::Map<String, Value>) -> Vec<Value> {
    let mut at = conversation["current_node"].as_str();
    let mut path = Vec::new();
    // A forged tree may have a circle.
    for _ in 0..tree.len() {
        let Some(node) = at.and_then(|id| tree.get(id)) else {
            break;
        };
        path.push(node);
        at = node["parent"].as_str();
    }
    let title = &conversation["title"];
    let messages = path.into_iter().rev().filter_map(|node| {
        let message = node["message"].as_object()?;
        let mut message = message.clone();
        let words = json_message::text_of(&message["content"], 0).unwrap_or_default();
        // Hidden instructions have no words.
        (!words.trim().is_empty()).then(|| {
            message.insert("subject".to_owned(), title.clone());
            Value::Object(message)
        })
    });
    messages.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let read = read("x.json", text, &ReadOptions::default()).expect("a list");
        let shown = read.into_iter().map(|message| match message {
            Ok(message) => format!(
                "{}: {}",
                message.speaker.as_deref().unwrap_or("-"),
                message.text()
            ),
            Err(error) => error.to_string(),
        });
        shown.collect()
    }

    #[test]
    fn other_json_is_no_list() {
        assert!(
            may_be_list("[{\"text\": \"Bees\"}]") && may_be_list("{\"messages\": [{\"content\": \"Bees\"}]}")
        );
        assert!(!may_be_list("{\"name\": \"bees\", \"dependencies\": {}}") && !may_be_list("[1, 2]"));
    }

    #[test]
    fn reads_lists_of_messages() {
        assert_eq!(
            shown(r#"[{"text": "Bees hum.", "speaker": "Ada"}, 7]"#)[0],
            "Ada: Bees hum."
        );
        assert!(shown(r#"[{"text": "Bees hum."}, 7]"#)[1].starts_with("x.json, message 2: "));
        assert_eq!(
            shown(r#"{"value": [{"body": {"content": "Hum"}, "from": {"user": {"displayName": "Ada"}}}]}"#),
            ["Ada: Hum"]
        );
        let error = read("x.json", r#"{"mood": "good"}"#, &ReadOptions::default())
            .expect_err("no list")
            .to_string();
        assert!(error.starts_with("x.json: its JSON has no list"), "{error}");
    }

    #[test]
    fn reads_conversations_of_assistants() {
        let chatgpt = r#"[{"title": "Bees", "create_time": 1682926200.5, "current_node": "c", "mapping": {
            "a": {"id": "a", "message": null, "parent": null, "children": ["b"]},
            "b": {"id": "b", "message": {"author": {"role": "user", "name": null}, "create_time": 1682926200.5,
                "content": {"content_type": "text", "parts": ["Do they hum?"]}}, "parent": "a", "children": ["c", "d"]},
            "d": {"id": "d", "message": {"author": {"role": "assistant"}, "content": {"content_type": "text", "parts": ["No."]}},
                "parent": "b"},
            "c": {"id": "c", "message": {"author": {"role": "assistant"}, "content": {"content_type": "text", "parts": ["All day."]}},
                "parent": "b"}}}]"#;
        assert_eq!(shown(chatgpt), ["user: Do they hum?", "assistant: All day."]);
        let claude = r#"[{"uuid": "1", "name": "Bees", "created_at": "2023-05-01T07:30:00Z", "chat_messages": [{"uuid": "2",
            "sender": "human", "text": "Do they hum?", "created_at": "2023-05-01T07:30:00Z"}]}]"#;
        assert_eq!(shown(claude), ["human: Do they hum?"]);
    }
}
