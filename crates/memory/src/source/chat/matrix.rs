//! Rooms of Matrix, as Element exports them in JSON: a frame around the events of the protocol.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Document, Threads, said, with_attachments};
use crate::error::MemoryError;
use crate::message::Message;
use crate::source::{Item, ReadOptions, moment};

#[derive(Deserialize)]
struct Export<'t> {
    #[serde(borrow, default)]
    room_name: Option<Cow<'t, str>>,
    #[serde(borrow, alias = "chunk")]
    messages: Vec<&'t RawValue>,
}

#[derive(Deserialize)]
struct Event<'t> {
    #[serde(borrow, default)]
    event_id: Option<Cow<'t, str>>,
    #[serde(borrow, rename = "type", default)]
    kind: Cow<'t, str>,
    #[serde(borrow, default)]
    sender: Cow<'t, str>,
    #[serde(default)]
    origin_server_ts: Option<f64>,
    #[serde(borrow, default)]
    state_key: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    content: Content<'t>,
}

#[derive(Deserialize, Default)]
struct Content<'t> {
    #[serde(borrow, default)]
    msgtype: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    body: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    displayname: Option<Cow<'t, str>>,
    #[serde(borrow, default, rename = "m.new_content")]
    new_content: Option<Box<Content<'t>>>,
    #[serde(borrow, default, rename = "m.relates_to")]
    relates_to: Option<Relation<'t>>,
}

#[derive(Deserialize)]
struct Relation<'t> {
    #[serde(borrow, default, rename = "m.in_reply_to")]
    in_reply_to: Option<Answered<'t>>,
    #[serde(borrow, default)]
    rel_type: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    event_id: Option<Cow<'t, str>>,
}

#[derive(Deserialize)]
struct Answered<'t> {
    #[serde(borrow, default)]
    event_id: Option<Cow<'t, str>>,
}

impl Relation<'_> {
    /// The event that this one belongs to: the beginning of its thread, or the event that it answers.
    fn answered(&self) -> Option<&str> {
        match self.rel_type.as_deref() {
            Some("m.thread") => self.event_id.as_deref(),
            _ => self.in_reply_to.as_ref()?.event_id.as_deref(),
        }
    }
}

/// Whether the first bytes of a JSON text are an export of a Matrix room.
pub fn is_export(beginning: &str) -> bool {
    beginning.contains("\"origin_server_ts\"")
        && (beginning.contains("\"m.room.") || beginning.contains("\"room_name\""))
}

/// Reads the messages of an export. Events other than messages give names only. An edit is a message of its own.
///
/// # Errors
///
/// [`MemoryError::Invalid`] if the text is not such an export.
pub fn read(name: &str, text: &str, options: &ReadOptions) -> Result<Vec<Item>, MemoryError> {
    let document = Document::new(name, text);
    let export: Export<'_> = document.frame("an export of a Matrix room")?;
    let room = export.room_name.as_deref();
    let mut names: HashMap<String, String> = HashMap::new();
    let mut threads = Threads::default();
    let messages = document.messages(&export.messages, |event: Event<'_>| {
        if event.kind == "m.room.member" {
            let member = event.state_key.as_deref().unwrap_or(&event.sender);
            if let Some(name) = event
                .content
                .displayname
                .as_deref()
                .filter(|name| !name.is_empty())
            {
                names.insert(member.to_owned(), name.to_owned());
            }
        }
        let message = message(&event, room, &names, options)?;
        Ok(message.map(|message| {
            let id = event.event_id.as_deref().map(str::to_owned);
            let answered = event.content.relates_to.as_ref().and_then(Relation::answered);
            let thread = id.as_deref().and_then(|id| threads.thread_of(id, answered));
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
    event: &Event<'_>,
    room: Option<&str>,
    names: &HashMap<String, String>,
    options: &ReadOptions,
) -> Result<Option<Message>, String> {
    if event.kind == "m.room.encrypted" {
        return Err("it is encrypted; export the room from a session that can read it".to_owned());
    }
    if event.kind != "m.room.message" {
        return Ok(None);
    }
    let content = event.content.new_content.as_deref().unwrap_or(&event.content);
    let body = content.body.as_deref().unwrap_or_default();
    let is_reply = event
        .content
        .relates_to
        .as_ref()
        .is_some_and(|relation| relation.in_reply_to.is_some());
    let body = if is_reply { without_fallback(body) } else { body };
    let text = match content.msgtype.as_deref().unwrap_or("m.text") {
        "m.image" | "m.file" | "m.audio" | "m.video" => with_attachments("", [body].into_iter()),
        _ => body.to_owned(),
    };
    let moment = event.origin_server_ts.and_then(moment::of_number);
    let speaker = names
        .get(&*event.sender)
        .cloned()
        .unwrap_or_else(|| event.sender.to_string());
    Ok(Some(said(Some(speaker), &text, moment, room, options)))
}

/// Removes the quotation that replies begin with: lines after `> `, and an empty line.
fn without_fallback(body: &str) -> &str {
    let mut rest = body;
    while rest.starts_with("> ") || rest.starts_with(">\n") {
        rest = rest.split_once('\n').map_or("", |(_, after)| after);
    }
    rest.strip_prefix('\n').unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPORT: &str = r##"{"room_name": "Hives", "room_creator": "@ada:bees.example", "topic": "", "export_date": "01/05/2023",
        "exported_by": "@ada:bees.example", "messages": [
      {"type": "m.room.member", "sender": "@ada:bees.example", "state_key": "@ada:bees.example", "origin_server_ts": 1682926100000,
          "content": {"membership": "join", "displayname": "Ada King"}},
      {"type": "m.room.message", "event_id": "$1", "sender": "@ada:bees.example", "origin_server_ts": 1682926200000,
          "content": {"msgtype": "m.text", "body": "Do they hum?"}},
      {"type": "m.room.message", "event_id": "$2", "sender": "@bob:bees.example", "origin_server_ts": 1682926260000,
          "content": {"msgtype": "m.text", "body": "> <@ada:bees.example> Do they hum?\n\nAll day.",
          "m.relates_to": {"m.in_reply_to": {"event_id": "$1"}}}},
      {"type": "m.room.encrypted", "sender": "@bob:bees.example", "origin_server_ts": 1682926260000,
          "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
    ]}"##;

    #[test]
    fn reads_an_export() {
        assert!(is_export(EXPORT));
        let found = read("hives.json", EXPORT, &ReadOptions::default()).expect("an export");
        assert_eq!(found.len(), 3, "{found:?}");
        let first = found[0].as_ref().expect("a message");
        assert_eq!(
            (first.speaker.as_deref(), first.text().as_str()),
            (Some("Ada King"), "Do they hum?")
        );
        assert_eq!(
            first.moment.expect("a time").at.to_string(),
            "2023-05-01T07:30:00.000Z"
        );
        let reply = found[1].as_ref().expect("a message");
        assert_eq!(
            (reply.speaker.as_deref(), reply.text().as_str()),
            (Some("@bob:bees.example"), "All day.")
        );
        assert_eq!(
            (first.thread.as_deref(), reply.thread.as_deref()),
            (Some("$1"), Some("$1"))
        );
        assert!(
            found[2]
                .as_ref()
                .expect_err("encrypted")
                .to_string()
                .contains("encrypted")
        );
    }
}
