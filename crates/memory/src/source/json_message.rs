//! One message as a JSON object, in the shapes that programs write: names of fields differ, and so do their types.

use serde_json::{Map, Value};

use crate::message::{Message, Moment};
use crate::source::chunk::split_if_long;
use crate::source::{ReadOptions, moment};

/// The fields that may hold the text, in the order in which they are looked for.
const TEXT_FIELDS: [&str; 6] = ["text", "body", "content", "message", "msg", "transcript"];

/// The fields that may hold the speaker.
const SPEAKER_FIELDS: [&str; 15] = [
    "speaker",
    "author",
    "sender",
    "from",
    "sender_name",
    "senderName",
    "sender_full_name",
    "user_profile",
    "real_name",
    "username",
    "user_name",
    "user",
    "nick",
    "name",
    "role",
];

/// The fields of a person that may hold the name.
const NAME_FIELDS: [&str; 14] = [
    "name",
    "display_name",
    "displayName",
    "full_name",
    "fullName",
    "real_name",
    "nickname",
    "global_name",
    "username",
    "login",
    "email",
    "emailAddress",
    "address",
    "role",
];

/// The fields that may hold the recipients.
const RECIPIENT_FIELDS: [&str; 4] = ["recipients", "listeners", "to", "toRecipients"];

/// The fields that may hold the time.
const TIME_FIELDS: [&str; 14] = [
    "timestamp",
    "time",
    "date",
    "created_at",
    "createdAt",
    "createdDateTime",
    "create_time",
    "create_at",
    "sent_at",
    "sentAt",
    "timestamp_ms",
    "origin_server_ts",
    "datetime",
    "ts",
];

/// Levels of texts in parts in messages. A deeper text is not looked for.
const TEXT_DEPTH_MAX: usize = 4;

/// Reads the message of an object.
///
/// # Errors
///
/// The problem, as text: the object has no text, or its time is none.
pub(super) fn message(value: &Value, options: &ReadOptions) -> Result<Message, String> {
    let Value::Object(fields) = value else {
        return Err("it is not an object such as {\"text\": \"…\", \"speaker\": \"…\"}".to_owned());
    };
    // Some programs wrap each message: {"type": "user", "message": {"role": "user", "content": …}, "timestamp": …}.
    let inner = fields.get("message").and_then(Value::as_object);
    let layers: Vec<&Map<String, Value>> = [Some(fields), inner].into_iter().flatten().collect();
    let text = layers.iter().rev().find_map(|fields| {
        let mut values = TEXT_FIELDS.iter().filter_map(|field| fields.get(*field));
        let is_none = values.clone().any(Value::is_null).then(String::new);
        values.find_map(|value| text_of(value, 0)).or(is_none)
    });
    let text = text.ok_or_else(|| {
        let names: Vec<&str> = fields.keys().map(String::as_str).take(12).collect();
        format!(
            "it is not a message such as {{\"text\": \"…\", \"speaker\": \"…\"}}: it has no text in {}, only {}",
            TEXT_FIELDS.join(", "),
            if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
        )
    })?;
    let find = |names: &[&str]| -> Option<&Value> {
        names.iter().find_map(|name| {
            let mut values = layers.iter().filter_map(|fields| fields.get(*name));
            values.find(|value| !value.is_null())
        })
    };
    // A name beside a role is a person's, and otherwise often that of a file.
    let has_role = layers.iter().any(|fields| fields.contains_key("role"));
    let mut speaker_fields = SPEAKER_FIELDS
        .iter()
        .filter(|field| **field != "name" || has_role);
    let speaker = speaker_fields.find_map(|field| {
        let values = layers.iter().filter_map(|fields| fields.get(*field));
        values.filter_map(name_of).next()
    });
    Ok(Message {
        text_chunks: split_if_long(&text, options.chunk_characters),
        speaker,
        recipients: find(&RECIPIENT_FIELDS).map_or_else(Vec::new, names_of),
        subject: find(&["subject", "title", "topic"]).and_then(name_of),
        tags: find(&["tags", "labels"]).map_or_else(Vec::new, names_of),
        moment: moment_of(&layers, options)?,
        ..Message::default()
    })
}

fn moment_of(layers: &[&Map<String, Value>], options: &ReadOptions) -> Result<Option<Moment>, String> {
    let mut wrong = None;
    for field in TIME_FIELDS {
        for value in layers.iter().filter_map(|fields| fields.get(field)) {
            let is_empty = value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty());
            if is_empty {
                continue;
            }
            match moment::of_value(value, options.zone_minutes) {
                Some(moment) => return Ok(Some(moment)),
                None => wrong = wrong.or(Some(value)),
            }
        }
    }
    match wrong {
        None => Ok(None),
        Some(value) => Err(format!(
            "{value} is neither a time such as \"2023-05-01T07:00:00Z\" nor seconds or milliseconds since 1970"
        )),
    }
}

/// The text of a field: a string, or the texts of a list of parts. Parts without a text, such as images and calls of tools,
/// are left out.
pub(super) fn text_of(value: &Value, depth: usize) -> Option<String> {
    if depth > TEXT_DEPTH_MAX {
        return None;
    }
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts: Vec<String> = parts.iter().filter_map(|part| text_of(part, depth + 1)).collect();
            let texts: Vec<&str> = texts
                .iter()
                .map(|text| text.trim())
                .filter(|text| !text.is_empty())
                .collect();
            Some(texts.join("\n"))
        }
        Value::Object(fields) => {
            let found = ["text", "value", "parts", "content", "body"]
                .iter()
                .find_map(|field| text_of(fields.get(*field)?, depth + 1));
            let is_html = fields.get("contentType").and_then(Value::as_str) == Some("html");
            found.map(|text| if is_html { super::html::text(&text) } else { text })
        }
        _ => None,
    }
}

/// The name of a person: a string, a number as an id, or a field of an object.
pub(super) fn name_of(value: &Value) -> Option<String> {
    match value {
        Value::String(name) if !name.trim().is_empty() => Some(name.trim().to_owned()),
        Value::Number(id) => Some(id.to_string()),
        Value::Object(fields) => NAME_FIELDS
            .iter()
            .find_map(|field| name_of(fields.get(*field)?))
            .or_else(|| name_of(fields.get("user").or_else(|| fields.get("emailAddress"))?))
            .or_else(|| name_of(fields.get("id")?)),
        _ => None,
    }
}

fn names_of(value: &Value) -> Vec<String> {
    match value {
        Value::Array(names) => names.iter().filter_map(name_of).collect(),
        one => name_of(one).into_iter().collect(),
    }
}

/// The messages of a conversation that one object holds: `{"messages": [{"role": …, "content": …}]}`. Each has the
/// title of the conversation as its subject, and the time of the conversation if it has none itself.
pub(super) struct ConversationMessages<'v> {
    conversation: &'v Map<String, Value>,
    messages: std::slice::Iter<'v, Value>,
}

impl<'v> ConversationMessages<'v> {
    /// The messages of an object that has a list of them, and no text of its own.
    pub fn of(value: &'v Value) -> Option<ConversationMessages<'v>> {
        let conversation = value.as_object()?;
        let messages = ["messages", "chat_messages"]
            .iter()
            .find_map(|field| conversation.get(*field)?.as_array())?;
        let is_conversation = TEXT_FIELDS.iter().all(|field| !conversation.contains_key(*field))
            && messages.iter().all(Value::is_object);
        is_conversation.then_some(ConversationMessages {
            conversation,
            messages: messages.iter(),
        })
    }
}

impl Iterator for ConversationMessages<'_> {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let mut message = self.messages.next()?.clone();
        if let Value::Object(fields) = &mut message {
            let title = ["title", "subject", "name"]
                .iter()
                .find_map(|field| self.conversation.get(*field));
            if let Some(title) = title
                && !fields.contains_key("subject")
            {
                fields.insert("subject".to_owned(), title.clone());
            }
            let has_time = TIME_FIELDS.iter().any(|field| fields.contains_key(*field));
            let time = TIME_FIELDS.iter().find_map(|field| self.conversation.get(*field));
            if let Some(time) = time.filter(|_| !has_time) {
                fields.insert("timestamp".to_owned(), time.clone());
            }
        }
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Message {
        message(&value, &ReadOptions::default()).expect("a message")
    }

    #[test]
    fn reads_the_shapes_of_programs() {
        let openai = read(json!({
            "role": "user",
            "content": [{"type": "text", "text": "Do bees hum?"}, {"type": "image_url", "image_url": {"url": "x"}}],
        }));
        assert_eq!(
            (openai.text().as_str(), openai.speaker.as_deref()),
            ("Do bees hum?", Some("user"))
        );
        let none = read(json!({"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]}));
        assert_eq!(none.text(), "", "a message without words is kept");
        let both = read(
            json!({"text": "Hi", "from": "a@bees.example", "author": {"name": "Ada"}, "to": [{"name": "Bob"}]}),
        );
        assert_eq!(
            (both.speaker.as_deref(), both.recipients),
            (Some("Ada"), vec!["Bob".to_owned()])
        );
        let wrapped = read(json!({
            "type": "assistant",
            "timestamp": "2023-05-01T07:30:00.000Z",
            "message": {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}, {"type": "text", "text": "They do."}]},
        }));
        assert_eq!(
            (wrapped.text().as_str(), wrapped.speaker.as_deref()),
            ("They do.", Some("assistant"))
        );
        let teams = read(json!({
            "createdDateTime": "2023-05-01T07:30:00Z",
            "from": {"application": null, "user": {"displayName": "Ada King", "id": "7"}},
            "body": {"contentType": "html", "content": "<p>Bees &amp; drums</p>"},
        }));
        assert_eq!(
            (teams.text().as_str(), teams.speaker.as_deref()),
            ("Bees & drums", Some("Ada King"))
        );
    }

    #[test]
    fn times_have_many_shapes() {
        for time in [
            json!("1682926200"),
            json!(1_682_926_200),
            json!(1_682_926_200_000_u64),
            json!("2023-05-01T09:30:00+0200"),
            json!("2023-05-01 07:30:00 UTC"),
        ] {
            let message = read(json!({"text": "Hi", "ts": time}));
            let at = message.moment.map(|moment| moment.at.to_string());
            assert_eq!(at.as_deref(), Some("2023-05-01T07:30:00.000Z"), "{time}");
        }
        let error =
            message(&json!({"text": "Hi", "time": "soon"}), &ReadOptions::default()).expect_err("no time");
        assert!(error.starts_with("\"soon\" is neither"), "{error}");
        let error = message(&json!({"mood": "good"}), &ReadOptions::default()).expect_err("no text");
        assert!(error.contains("only mood"), "{error}");
    }
}
