//! Messages of Zulip: the files `messages-000001.json` of an export of an organisation, or answers of its API.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Document, said};
use crate::error::MemoryError;
use crate::message::Message;
use crate::source::json_message::name_of;
use crate::source::{Item, ReadOptions, html, moment};

#[derive(Deserialize)]
struct Export<'t> {
    #[serde(borrow, alias = "zerver_message")]
    messages: Vec<&'t RawValue>,
}

#[derive(Deserialize)]
struct Entry<'t> {
    #[serde(borrow, default)]
    sender_full_name: Option<Cow<'t, str>>,
    #[serde(default)]
    sender: Option<u64>,
    #[serde(borrow, default)]
    subject: Cow<'t, str>,
    #[serde(borrow)]
    content: Cow<'t, str>,
    #[serde(borrow, default)]
    content_type: Option<Cow<'t, str>>,
    #[serde(default)]
    display_recipient: Value,
    #[serde(default)]
    recipient: Option<u64>,
    #[serde(alias = "date_sent")]
    timestamp: f64,
}

/// The names in `realm.json`, which stands beside the messages of an export.
#[derive(Debug, Default)]
pub struct Realm {
    people: HashMap<u64, String>,
    streams: HashMap<u64, String>,
}

#[derive(Deserialize)]
struct RealmFile {
    #[serde(default)]
    zerver_userprofile: Vec<Value>,
    #[serde(default)]
    zerver_userprofile_crossrealm: Vec<Value>,
    #[serde(default)]
    zerver_stream: Vec<Value>,
    #[serde(default)]
    zerver_recipient: Vec<Value>,
}

/// The type of recipients that are streams.
const STREAM: u64 = 2;

impl Realm {
    /// Reads `realm.json`; no names if it is malformed.
    pub fn of(text: &str) -> Realm {
        let Ok(file) = serde_json::from_str::<RealmFile>(text) else {
            return Realm::default();
        };
        let named = |rows: &[Value], field: &str| -> HashMap<u64, String> {
            let rows = rows.iter();
            rows.filter_map(|row| Some((row["id"].as_u64()?, name_of(&row[field])?)))
                .collect()
        };
        let mut people = named(&file.zerver_userprofile, "full_name");
        people.extend(named(&file.zerver_userprofile_crossrealm, "full_name"));
        let streams = named(&file.zerver_stream, "name");
        let recipients = file
            .zerver_recipient
            .iter()
            .filter(|row| row["type"].as_u64() == Some(STREAM));
        let streams = recipients
            .filter_map(|row| {
                Some((
                    row["id"].as_u64()?,
                    streams.get(&row["type_id"].as_u64()?)?.clone(),
                ))
            })
            .collect();
        Realm { people, streams }
    }
}

/// Whether the first bytes of a JSON text are messages of Zulip.
pub fn is_export(beginning: &str) -> bool {
    beginning.contains("\"zerver_message\"")
        || (beginning.contains("\"sender_full_name\"") && beginning.contains("\"display_recipient\""))
}

/// Reads the messages of an export. The topic is the subject, and the stream a tag.
///
/// # Errors
///
/// [`MemoryError::Invalid`] if the text is not such an export.
pub fn read(name: &str, text: &str, realm: &Realm, options: &ReadOptions) -> Result<Vec<Item>, MemoryError> {
    let document = Document::new(name, text);
    let export: Export<'_> = document.frame("messages of Zulip")?;
    Ok(document.messages(&export.messages, |entry: Entry<'_>| {
        let speaker = match (&entry.sender_full_name, entry.sender) {
            (Some(name), _) => Some(name.to_string()),
            (None, Some(id)) => Some(
                realm
                    .people
                    .get(&id)
                    .cloned()
                    .unwrap_or_else(|| format!("user {id}")),
            ),
            (None, None) => None,
        };
        let stream = match &entry.display_recipient {
            Value::String(name) => Some(name.clone()),
            _ => entry.recipient.and_then(|id| realm.streams.get(&id).cloned()),
        };
        let is_html = entry.content_type.as_deref() == Some("text/html");
        let text = if is_html {
            html::text(&entry.content)
        } else {
            entry.content.to_string()
        };
        let channel = stream.map(|name| format!("#{name}"));
        let moment = moment::of_number(entry.timestamp);
        let topic = Some(entry.subject.trim()).filter(|topic| !topic.is_empty());
        let thread = channel
            .as_deref()
            .zip(topic)
            .map(|(stream, topic)| format!("{stream} > {topic}"));
        Ok(Some(Message {
            thread,
            subject: Some(entry.subject.to_string()).filter(|topic| !topic.trim().is_empty()),
            ..said(speaker, &text, moment, channel.as_deref(), options)
        }))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_an_export_with_the_names_of_its_realm() {
        let realm = Realm::of(
            r#"{"zerver_userprofile": [{"id": 7, "full_name": "Ada King"}], "zerver_stream": [{"id": 3, "name": "hives"}],
                "zerver_recipient": [{"id": 4, "type": 2, "type_id": 3}, {"id": 5, "type": 1, "type_id": 7}]}"#,
        );
        let text = r#"{"zerver_message": [{"id": 1, "sender": 7, "recipient": 4, "subject": "Sounds", "content": "Do they hum?",
            "date_sent": 1682926200.0},
                       {"id": 2, "sender": 9, "recipient": 5, "subject": "", "content": "All day.", "date_sent": 1682926260.5}],
                        "zerver_usermessage": []}"#;
        assert!(is_export(text));
        let found = read("messages-000001.json", text, &realm, &ReadOptions::default()).expect("an export");
        let first = found[0].as_ref().expect("a message");
        assert_eq!(
            (first.speaker.as_deref(), first.subject.as_deref()),
            (Some("Ada King"), Some("Sounds"))
        );
        assert_eq!(first.tags, ["#hives"]);
        assert_eq!(
            found[1].as_ref().expect("a message").speaker.as_deref(),
            Some("user 9")
        );
    }

    #[test]
    fn reads_answers_of_the_api() {
        let text = r#"{"result": "success", "messages": [{"sender_full_name": "Ada", "subject": "Sounds", "display_recipient": "hives",
                       "content": "<p>Do they <b>hum</b>?</p>", "content_type": "text/html", "timestamp": 1682926200}]}"#;
        assert!(is_export(text));
        let found = read("m.json", text, &Realm::default(), &ReadOptions::default()).expect("an export");
        assert_eq!(found[0].as_ref().expect("a message").text(), "Do they hum?");
    }
}
