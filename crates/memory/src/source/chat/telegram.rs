//! The export of Telegram Desktop: `result.json`, of one chat or of all.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Document, Threads, said, with_attachments};
use crate::error::MemoryError;
use crate::message::{Message, Moment};
use crate::source::{Item, ReadOptions, moment};

#[derive(Deserialize)]
struct Export<'t> {
    #[serde(borrow, default)]
    name: Option<Cow<'t, str>>,
    #[serde(default)]
    id: Option<i64>,
    #[serde(borrow, default)]
    messages: Vec<&'t RawValue>,
    #[serde(borrow, default)]
    chats: Option<Chats<'t>>,
    #[serde(borrow, default)]
    left_chats: Option<Chats<'t>>,
}

#[derive(Deserialize)]
struct Chats<'t> {
    #[serde(borrow)]
    list: Vec<Chat<'t>>,
}

#[derive(Deserialize)]
struct Chat<'t> {
    #[serde(borrow, default)]
    name: Option<Cow<'t, str>>,
    #[serde(default)]
    id: Option<i64>,
    #[serde(borrow)]
    messages: Vec<&'t RawValue>,
}

#[derive(Deserialize)]
struct Entry<'t> {
    #[serde(default)]
    id: Option<i64>,
    #[serde(default)]
    reply_to_message_id: Option<i64>,
    #[serde(borrow, rename = "type", default)]
    kind: Cow<'t, str>,
    #[serde(borrow, default)]
    date: Cow<'t, str>,
    #[serde(borrow, default)]
    date_unixtime: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    from: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    forwarded_from: Option<Cow<'t, str>>,
    #[serde(default)]
    text: Value,
    #[serde(borrow, default)]
    file_name: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    media_type: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    photo: Option<Cow<'t, str>>,
}

/// Whether the first bytes of a JSON text are an export of Telegram.
pub fn is_export(beginning: &str) -> bool {
    let has = |part: &str| beginning.contains(part);
    (has("\"from_id\"") || has("\"date_unixtime\"") || has("\"actor_id\"")) && has("\"messages\"")
}

/// Reads the messages of an export. What Telegram reports (`service`) is left out.
///
/// # Errors
///
/// [`MemoryError::Invalid`] if the text is not such an export.
pub fn read(name: &str, text: &str, options: &ReadOptions) -> Result<Vec<Item>, MemoryError> {
    let document = Document::new(name, text);
    let export: Export<'_> = document.frame("an export of Telegram")?;
    let mut messages = chat_messages(
        document,
        export.name.as_deref(),
        export.id,
        &export.messages,
        options,
    );
    let chats = [export.chats, export.left_chats].into_iter().flatten();
    for chat in chats.flat_map(|chats| chats.list) {
        messages.extend(chat_messages(
            document,
            chat.name.as_deref(),
            chat.id,
            &chat.messages,
            options,
        ));
    }
    Ok(messages)
}

fn chat_messages<'t>(
    document: Document<'t>,
    chat: Option<&str>,
    chat_id: Option<i64>,
    list: &[&'t RawValue],
    options: &ReadOptions,
) -> Vec<Item> {
    let mut threads = Threads::default();
    // The numbers of messages count in their chat.
    let id_of = |number: i64| Some(format!("telegram/{}/{number}", chat_id?));
    let messages = document.messages(list, |entry: Entry<'_>| {
        let message = message(&entry, chat, options)?;
        Ok(message.map(|message| {
            let id = entry.id.and_then(id_of);
            let answered = entry.reply_to_message_id.and_then(id_of);
            let thread = id
                .as_deref()
                .and_then(|id| threads.thread_of(id, answered.as_deref()));
            Message {
                id,
                thread,
                ..message
            }
        }))
    });
    threads.with_roots(messages)
}

fn message(entry: &Entry<'_>, chat: Option<&str>, options: &ReadOptions) -> Result<Option<Message>, String> {
    if entry.kind == "service" {
        return Ok(None);
    }
    let mut text = words(&entry.text);
    if let Some(author) = &entry.forwarded_from {
        text = format!("Forwarded from {author}: {text}");
    }
    let attachment = entry
        .file_name
        .as_deref()
        .or(entry.media_type.as_deref())
        .or(entry.photo.as_ref().map(|_| "photo"));
    let text = with_attachments(&text, attachment.into_iter());
    let speaker = entry.from.as_deref().map(str::to_owned);
    Ok(Some(said(
        speaker,
        &text,
        moment_of(entry, options)?,
        chat,
        options,
    )))
}

/// The text: a string, or a list of strings and of parts with a format, which are written without breaks between them.
fn words(text: &Value) -> String {
    match text {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(words).collect(),
        Value::Object(part) => part.get("text").map(words).unwrap_or_default(),
        _ => String::new(),
    }
}

/// `date` is the local time of the exporting computer, and `date_unixtime` the instant: together they tell the zone.
fn moment_of(entry: &Entry<'_>, options: &ReadOptions) -> Result<Option<Moment>, String> {
    let instant = entry
        .date_unixtime
        .as_deref()
        .and_then(|seconds| moment::parse(seconds, None));
    let local = moment::parse(&entry.date, options.zone_minutes);
    match (instant, local) {
        (Some(instant), _) => {
            let as_utc = moment::parse(&entry.date, None);
            let zone_minutes = as_utc.and_then(|local| {
                let minutes = (local.at.0 - instant.at.0) / 60_000;
                i16::try_from(minutes)
                    .ok()
                    .filter(|minutes| minutes.abs() <= 14 * 60)
            });
            Ok(Some(Moment {
                zone_minutes,
                ..instant
            }))
        }
        (None, Some(local)) => Ok(Some(local)),
        (None, None) if entry.date.is_empty() => Ok(None),
        (None, None) => Err(format!(
            "`{}` is not a date such as 2023-05-01T09:30:00",
            entry.date
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPORT: &str = r#"{"name": "Bees", "type": "private_supergroup", "id": 1, "messages": [
      {"id": 1, "type": "service", "date": "2023-05-01T09:29:00", "date_unixtime": "1682926140", "actor": "Ada", "actor_id": "user1",
          "action": "create_group", "text": ""},
      {"id": 2, "type": "message", "date": "2023-05-01T09:30:00", "date_unixtime": "1682926200", "from": "Ada King",
          "from_id": "user1", "text": ["Do they ", {"type": "bold", "text": "hum"}, "?"]},
      {"id": 3, "type": "message", "date": 7, "from": "Bob", "from_id": "user2", "text": "?"},
      {"id": 4, "type": "message", "date": "2023-05-01T09:31:00", "date_unixtime": "1682926260", "from": "Bob", "from_id": "user2",
          "reply_to_message_id": 2, "forwarded_from": "Cleo", "text": "All day.", "file_name": "bees.mp3"}
    ]}"#;

    #[test]
    fn reads_an_export() {
        assert!(is_export(EXPORT));
        let found = read("result.json", EXPORT, &ReadOptions::default()).expect("an export");
        assert_eq!(found.len(), 3, "{found:?}");
        let first = found[0].as_ref().expect("a message");
        assert_eq!(first.text(), "Do they hum?");
        assert_eq!(
            (first.speaker.as_deref(), first.tags.as_slice()),
            (Some("Ada King"), &["Bees".to_owned()][..])
        );
        let moment = first.moment.expect("a time");
        assert_eq!(
            (moment.at.to_string().as_str(), moment.zone_minutes),
            ("2023-05-01T07:30:00.000Z", Some(120))
        );
        let error = found[1].as_ref().expect_err("a date is a text").to_string();
        assert!(error.starts_with("result.json, message 3, line 6: "), "{error}");
        let last = found[2].as_ref().expect("a message");
        assert_eq!(
            last.text(),
            "Forwarded from Cleo: All day.\n[attachment: bees.mp3]"
        );
        assert_eq!(
            (&last.thread, &first.thread),
            (&first.id, &first.id),
            "an answer is in the thread of its question, and so is the question"
        );
        let all = format!(r#"{{"chats": {{"about": "", "list": [{EXPORT}, {EXPORT}]}}}}"#);
        assert_eq!(
            read("result.json", &all, &ReadOptions::default())
                .expect("an export")
                .len(),
            6
        );
    }
}
