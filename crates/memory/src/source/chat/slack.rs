//! Exports of Slack: the file of a day in a channel, or the whole archive.
//!
//! In the archive, `users.json` has the names of people, and each channel has a folder with a file for each day. The
//! replies of a thread follow on its first message.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Document, said, with_attachments};
use crate::error::MemoryError;
use crate::message::Message;
use crate::source::{Item, ReadOptions, moment};

#[derive(Deserialize)]
struct Entry<'t> {
    #[serde(borrow, rename = "type", default)]
    kind: Cow<'t, str>,
    #[serde(borrow, default)]
    subtype: Option<Cow<'t, str>>,
    #[serde(borrow)]
    ts: Cow<'t, str>,
    #[serde(borrow, default)]
    thread_ts: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    user: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    username: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    user_profile: Option<Profile<'t>>,
    #[serde(borrow, default)]
    bot_profile: Option<Bot<'t>>,
    #[serde(borrow, default)]
    text: Option<Cow<'t, str>>,
    #[serde(default)]
    attachments: Option<Vec<Value>>,
    #[serde(default)]
    files: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct Profile<'t> {
    #[serde(borrow, default)]
    real_name: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    display_name: Option<Cow<'t, str>>,
}

#[derive(Deserialize)]
struct Bot<'t> {
    #[serde(borrow, default)]
    name: Option<Cow<'t, str>>,
}

#[derive(Deserialize)]
struct User<'t> {
    #[serde(borrow)]
    id: Cow<'t, str>,
    #[serde(borrow, default)]
    name: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    real_name: Option<Cow<'t, str>>,
    #[serde(borrow, default)]
    profile: Option<Profile<'t>>,
}

/// The subtypes of messages that people and bots write. Slack itself reports the others: who joined, new topics, reminders.
const WRITTEN: [&str; 6] = [
    "bot_message",
    "file_share",
    "file_comment",
    "me_message",
    "thread_broadcast",
    "reply_broadcast",
];

/// The names of people, by their ids.
#[derive(Debug, Default)]
pub struct People(HashMap<String, String>);

impl People {
    /// Reads `users.json`; no names if it is malformed.
    pub fn of(text: &str) -> People {
        let users: Vec<User<'_>> = serde_json::from_str(text).unwrap_or_default();
        let named = users.into_iter().filter_map(|user| {
            let profile = user.profile.as_ref();
            let names = [
                profile.and_then(|profile| profile.real_name.as_deref()),
                user.real_name.as_deref(),
                profile.and_then(|profile| profile.display_name.as_deref()),
                user.name.as_deref(),
            ];
            let name = names.into_iter().flatten().find(|name| !name.is_empty())?;
            Some((user.id.to_string(), name.to_owned()))
        });
        People(named.collect())
    }

    fn name<'n>(&'n self, id: &'n str) -> &'n str {
        self.0.get(id).map_or(id, String::as_str)
    }
}

/// Whether the first bytes of a JSON text are the messages of a day.
pub fn is_day(beginning: &str) -> bool {
    beginning.trim_start().starts_with('[')
        && beginning.contains("\"ts\"")
        && beginning.contains("\"type\"")
        && beginning.contains("\"message\"")
}

/// Reads the messages of one file. `channel` is the name of its folder.
///
/// # Errors
///
/// [`MemoryError::Invalid`] if the text is not a list.
pub fn read_day(
    name: &str,
    text: &str,
    channel: Option<&str>,
    people: &People,
    options: &ReadOptions,
) -> Result<Vec<Item>, MemoryError> {
    let mut messages_of = Channel::default();
    messages_of.add(Document::new(name, text), channel, people, options)?;
    Ok(messages_of.in_order())
}

/// Reads the messages of all channels. `files` are the archive's JSON files with their paths in it.
pub fn read_archive(name: &str, files: &BTreeMap<String, String>, options: &ReadOptions) -> Vec<Item> {
    let people = files
        .get("users.json")
        .map(|text| People::of(text))
        .unwrap_or_default();
    let mut channels: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (path, text) in files {
        if let Some((channel, _)) = path.split_once('/') {
            channels.entry(channel).or_default().push((path, text));
        }
    }
    let mut messages = Vec::new();
    for (channel, days) in channels {
        let mut messages_of = Channel::default();
        for (path, text) in days {
            let document = Document {
                path: Some(path),
                ..Document::new(name, text)
            };
            if let Err(error) = messages_of.add(document, Some(channel), &people, options) {
                messages.push(Err(error));
            }
        }
        messages.extend(messages_of.in_order());
    }
    messages
}

/// The messages of a channel, by the times of their threads' first messages.
#[derive(Default)]
struct Channel {
    messages: Vec<(String, String, Item)>,
}

impl Channel {
    fn add(
        &mut self,
        document: Document<'_>,
        channel: Option<&str>,
        people: &People,
        options: &ReadOptions,
    ) -> Result<(), MemoryError> {
        let list: Vec<&RawValue> = document.frame("the messages of a day from an export of Slack")?;
        let channel = channel.map(|name| format!("#{name}"));
        let mut last = (String::new(), String::new());
        let mut times = Vec::new();
        let read = document.messages(&list, |entry: Entry<'_>| {
            let message = message(&entry, channel.as_deref(), people, options)?;
            Ok(message.map(|message| {
                let ts = entry.ts.to_string();
                let thread = entry
                    .thread_ts
                    .as_ref()
                    .map_or_else(|| ts.clone(), |thread| thread.to_string());
                times.push((thread.clone(), ts.clone()));
                // Times are unique in a channel.
                let id_of = |ts: &str| {
                    Some(format!(
                        "slack/{}/{ts}",
                        channel.as_deref()?.trim_start_matches('#')
                    ))
                };
                Message {
                    id: id_of(&ts),
                    thread: entry.thread_ts.as_deref().and_then(id_of),
                    ..message
                }
            }))
        });
        let mut times = times.into_iter();
        for message in read {
            // A message that cannot be read stands after the one before it.
            if message.is_ok() {
                last = times.next().unwrap_or_default();
            }
            self.messages.push((last.0.clone(), last.1.clone(), message));
        }
        Ok(())
    }

    fn in_order(mut self) -> Vec<Item> {
        self.messages
            .sort_by(|left, right| (&left.0, &left.1).cmp(&(&right.0, &right.1)));
        self.messages.into_iter().map(|(_, _, message)| message).collect()
    }
}

fn message(
    entry: &Entry<'_>,
    channel: Option<&str>,
    people: &People,
    options: &ReadOptions,
) -> Result<Option<Message>, String> {
    let is_written = entry
        .subtype
        .as_deref()
        .is_none_or(|subtype| WRITTEN.contains(&subtype));
    if entry.kind != "message" || !is_written {
        return Ok(None);
    }
    let moment = entry.ts.parse().ok().and_then(moment::of_number);
    let moment = moment.ok_or_else(|| format!("its `ts` is `{}`, and not seconds since 1970", entry.ts))?;
    let mut text = plain(entry.text.as_deref().unwrap_or_default(), people);
    if text.trim().is_empty() {
        // Bots write their words into attachments.
        let words = entry.attachments.iter().flatten().filter_map(|attachment| {
            let fields = ["text", "title", "fallback"].iter();
            fields
                .filter_map(|field| attachment[*field].as_str())
                .find(|text| !text.is_empty())
        });
        text = words
            .map(|words| plain(words, people))
            .collect::<Vec<_>>()
            .join("\n");
    }
    let files = entry.files.iter().flatten();
    let files = files.filter_map(|file| file["title"].as_str().or_else(|| file["name"].as_str()));
    let text = with_attachments(&text, files);
    Ok(Some(said(
        speaker(entry, people),
        &text,
        Some(moment),
        channel,
        options,
    )))
}

fn speaker(entry: &Entry<'_>, people: &People) -> Option<String> {
    let user = entry.user.as_deref();
    let known = user.and_then(|id| people.0.get(id)).map(String::as_str);
    let profile = entry.user_profile.as_ref();
    let names = [
        known,
        profile.and_then(|profile| profile.real_name.as_deref()),
        profile.and_then(|profile| profile.display_name.as_deref()),
        entry.username.as_deref(),
        entry.bot_profile.as_ref().and_then(|bot| bot.name.as_deref()),
        user,
    ];
    names
        .into_iter()
        .flatten()
        .find(|name| !name.is_empty())
        .map(str::to_owned)
}

/// Writes Slack's markup as text: `<@U1>` becomes the person's name, `<#C1|bees>` the channel, `<https://…|words>` words
/// with the address.
fn plain(text: &str, people: &People) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        let Some((tag, after)) = after.split_once('>') else {
            break;
        };
        written.push_str(before);
        let (target, label) = tag
            .split_once('|')
            .map_or((tag, None), |(target, label)| (target, Some(label)));
        match (target.chars().next(), label) {
            (Some('@'), label) => {
                written.push('@');
                written.push_str(label.unwrap_or_else(|| people.name(&target[1..])));
            }
            (Some('#'), label) => {
                written.push('#');
                written.push_str(label.unwrap_or(&target[1..]));
            }
            (Some('!'), label) => {
                written.push('@');
                written.push_str(label.map_or(&target[1..], |label| label.trim_start_matches('@')));
            }
            (_, Some(label)) if label != target => written.push_str(&format!("{label} ({target})")),
            _ => written.push_str(target),
        }
        rest = after;
    }
    written.push_str(rest);
    written
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = r#"[{"id": "U1", "name": "ada", "real_name": "Ada King", "profile": {"real_name": "Ada King",
        "display_name": "ada"}},
                            {"id": "U2", "name": "bob", "profile": {"display_name": "Bob"}}]"#;

    const DAY: &str = r#"[
      {"type": "message", "subtype": "channel_join", "user": "U1", "text": "<@U1> has joined the channel", "ts": "1682926100.000100"},
      {"type": "message", "user": "U1", "text": "Do they hum &amp; dance, <@U2>? See <https://bees.example|the page>",
          "ts": "1682926200.000200", "thread_ts": "1682926200.000200", "reply_count": 1},
      {"type": "message", "user": "U2", "text": "Lunch?", "ts": "1682926230.000300"},
      {"type": "message", "user": "U2", "text": "All day.", "ts": "1682926260.000400", "thread_ts": "1682926200.000200",
          "files": [{"name": "hive.png", "title": "Hive"}]},
      {"type": "message", "user": "U2", "text": "Later", "ts": "soon"},
      {"type": "message", "subtype": "bot_message", "username": "builds", "text": "", "attachments": [{"fallback": "Build 7 failed"}],
          "ts": "1682926300.000500"}
    ]"#;

    #[test]
    fn reads_a_day_with_its_threads() {
        assert!(is_day(DAY));
        let found = read_day(
            "d.json",
            DAY,
            Some("hives"),
            &People::of(USERS),
            &ReadOptions::default(),
        );
        let found = found.expect("a day");
        let texts: Vec<String> = found
            .iter()
            .map(|message| match message {
                Ok(message) => format!(
                    "{}: {}",
                    message.speaker.as_deref().unwrap_or("-"),
                    message.text()
                ),
                Err(error) => error.to_string(),
            })
            .collect();
        assert_eq!(texts.len(), 5, "{texts:?}");
        assert_eq!(
            texts[0],
            "Ada King: Do they hum & dance, @Bob? See the page (https://bees.example)"
        );
        assert!(
            texts[1].starts_with("Bob: All day.\n[attachment: Hive]"),
            "the reply follows: {texts:?}"
        );
        assert!(
            texts[2].starts_with("d.json, message 5, line 8: its `ts` is `soon`"),
            "{texts:?}"
        );
        assert_eq!(texts[3], "Bob: Lunch?");
        assert_eq!(texts[4], "builds: Build 7 failed");
        let first = found[0].as_ref().expect("a message");
        assert_eq!(first.tags, ["#hives"]);
        assert_eq!(
            first.moment.expect("a time").at.to_string(),
            "2023-05-01T07:30:00.000Z"
        );
    }

    #[test]
    fn reads_an_archive_by_channels() {
        let files = BTreeMap::from(
            [
                ("users.json", USERS),
                ("channels.json", "[]"),
                ("hives/2023-05-01.json", DAY),
                ("drums/2023-05-01.json", "{}"),
            ]
            .map(|(path, text)| (path.to_owned(), text.to_owned())),
        );
        let found = read_archive("export.zip", &files, &ReadOptions::default());
        assert_eq!(found.len(), 6);
        let error = found[0].as_ref().expect_err("an object").to_string();
        assert!(
            error.starts_with("export.zip, drums/2023-05-01.json, line 1: "),
            "{error}"
        );
    }
}
