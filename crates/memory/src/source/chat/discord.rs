//! Channels of Discord, as DiscordChatExporter writes them in JSON.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Document, Threads, said, with_attachments};
use crate::error::MemoryError;
use crate::message::Message;
use crate::source::{Item, ReadOptions, moment};

#[derive(Deserialize)]
struct Export<'t> {
    #[serde(borrow)]
    channel: Channel<'t>,
    #[serde(borrow)]
    messages: Vec<&'t RawValue>,
}

#[derive(Deserialize)]
struct Channel<'t> {
    #[serde(borrow, default)]
    name: Option<Cow<'t, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'t> {
    #[serde(borrow, default)]
    id: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    reference: Option<Reference<'t>>,
    #[serde(borrow, rename = "type", default)]
    kind: Cow<'t, str>,
    #[serde(borrow)]
    timestamp: Cow<'t, str>,
    #[serde(borrow, default)]
    content: Cow<'t, str>,
    #[serde(borrow)]
    author: Author<'t>,
    #[serde(borrow, default)]
    attachments: Vec<Attachment<'t>>,
    #[serde(borrow, default)]
    embeds: Vec<Embed<'t>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference<'t> {
    #[serde(borrow, default)]
    message_id: Option<Cow<'t, str>>,
}

#[derive(Deserialize)]
struct Author<'t> {
    #[serde(borrow, default)]
    name: Cow<'t, str>,
    #[serde(borrow, default)]
    nickname: Option<Cow<'t, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attachment<'t> {
    #[serde(borrow, default)]
    file_name: Cow<'t, str>,
}

#[derive(Deserialize)]
struct Embed<'t> {
    #[serde(borrow, default)]
    title: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    description: Option<Cow<'t, str>>,
}

/// The types of messages that people and bots write. Discord itself reports the others.
const WRITTEN: [&str; 8] = [
    "",
    "Default",
    "Reply",
    "ChatInputCommand",
    "ContextMenuCommand",
    "ApplicationCommand",
    "ThreadStarterMessage",
    "0",
];

/// Whether the first bytes of a JSON text are an export of DiscordChatExporter.
pub fn is_export(beginning: &str) -> bool {
    ["\"guild\"", "\"channel\"", "\"messages\"", "\"categoryId\""]
        .iter()
        .filter(|key| beginning.contains(**key))
        .count()
        >= 3
}

/// Reads the messages of an export. What Discord reports, such as pins and joins, is left out.
///
/// # Errors
///
/// [`MemoryError::Invalid`] if the text is not such an export.
pub fn read(name: &str, text: &str, options: &ReadOptions) -> Result<Vec<Item>, MemoryError> {
    let document = Document::new(name, text);
    let export: Export<'_> = document.frame("an export of DiscordChatExporter")?;
    let channel = export.channel.name.as_deref().map(|name| format!("#{name}"));
    let mut threads = Threads::default();
    let id_of = |number: &str| format!("discord/{number}");
    let messages = document.messages(&export.messages, |entry: Entry<'_>| {
        let message = message(&entry, channel.as_deref(), options)?;
        Ok(message.map(|message| {
            let id = entry.id.as_deref().map(id_of);
            let answered = entry
                .reference
                .as_ref()
                .and_then(|reference| reference.message_id.as_deref());
            let thread = id
                .as_deref()
                .and_then(|id| threads.thread_of(id, answered.map(id_of).as_deref()));
            Message {
                id,
                thread,
                ..message
            }
        }))
    });
    Ok(threads.with_roots(messages))
}

fn message(
    entry: &Entry<'_>,
    channel: Option<&str>,
    options: &ReadOptions,
) -> Result<Option<Message>, String> {
    if !WRITTEN.contains(&&*entry.kind) {
        return Ok(None);
    }
    let moment = moment::parse(&entry.timestamp, options.zone_minutes).ok_or_else(|| {
        format!(
            "`{}` is not a time such as 2023-05-01T09:30:00+02:00",
            entry.timestamp
        )
    })?;
    let mut text = entry.content.clone().into_owned();
    for embed in &entry.embeds {
        for words in [&embed.title, &embed.description].into_iter().flatten() {
            text.push('\n');
            text.push_str(words);
        }
    }
    let text = with_attachments(&text, entry.attachments.iter().map(|file| &*file.file_name));
    let author = &entry.author;
    let speaker = author.nickname.as_deref().filter(|name| !name.is_empty());
    let speaker = speaker.unwrap_or(&author.name).to_owned();
    Ok(Some(said(Some(speaker), &text, Some(moment), channel, options)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPORT: &str = r#"{
  "guild": {"id": "1", "name": "Bees", "iconUrl": ""},
  "channel": {"id": "2", "type": "GuildTextChat", "categoryId": "3", "category": "Text", "name": "hives", "topic": null},
  "dateRange": {"after": null, "before": null},
  "exportedAt": "2023-05-02T00:00:00+00:00",
  "messages": [
    {"id": "5", "type": "Default", "timestamp": "2023-05-01T09:30:00.123+02:00", "timestampEdited": null, "isPinned": false,
        "content": "Do they hum?",
     "author": {"id": "9", "name": "ada", "discriminator": "0000", "nickname": "Ada King", "isBot": false},
         "attachments": [{"id": "1", "url": "x", "fileName": "hive.png", "fileSizeBytes": 1}], "embeds": []},
    {"id": "6", "type": "ChannelPinnedMessage", "timestamp": "2023-05-01T09:31:00+02:00", "content": "Pinned a message.",
        "author": {"id": "9", "name": "ada", "nickname": null}},
    {"id": "7", "type": "Reply", "timestamp": "soon", "content": "All day.", "author": {"id": "8", "name": "bob"}},
    {"id": "8", "type": "Reply", "timestamp": "2023-05-01T09:32:00+02:00", "content": "All day.", "author": {"id": "8",
        "name": "bob"}, "reference": {"messageId": "5"}}
  ], "messageCount": 4}"#;

    #[test]
    fn reads_an_export() {
        assert!(is_export(EXPORT));
        let found = read("hives.json", EXPORT, &ReadOptions::default()).expect("an export");
        assert_eq!(found.len(), 3, "{found:?}");
        let first = found[0].as_ref().expect("a message");
        assert_eq!(first.text(), "Do they hum?\n[attachment: hive.png]");
        assert_eq!(
            (first.speaker.as_deref(), first.tags.as_slice()),
            (Some("Ada King"), &["#hives".to_owned()][..])
        );
        assert_eq!(first.moment.expect("a time").zone_minutes, Some(120));
        let error = found[1].as_ref().expect_err("no time").to_string();
        assert!(
            error.starts_with("hives.json, message 3, line 13: `soon`"),
            "{error}"
        );
        assert_eq!(
            found[2].as_ref().expect("a message").speaker.as_deref(),
            Some("bob")
        );
        assert_eq!(found[2].as_ref().expect("a message").thread, first.id);
        assert_eq!(
            first.thread, first.id,
            "a question belongs to the thread of its answers"
        );
    }
}
